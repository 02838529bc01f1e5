package report

import (
	"encoding/json"
	"io"
	"strings"
	"time"
)

// Of violations, the JSON lists this many, and the facts of the first ones.
const (
	jsonViolations = 100
	jsonHistories  = 10
	jsonFaults     = 2000
)

// document is the JSON report. Its members are stable: new ones may come, none
// goes or changes its meaning while Version stays. Times of day are RFC 3339,
// lengths of time are in milliseconds. Series have one value a step.
type document struct {
	Version    int               `json:"version"` // 1
	Outcome    Outcome           `json:"outcome"`
	Scenario   string            `json:"scenario"`
	Seed       uint64            `json:"seed"`
	Command    string            `json:"command"`
	Service    map[string]string `json:"service"`
	Machine    map[string]string `json:"machine"`
	StartedAt  time.Time         `json:"started_at"`
	DurationMS float64           `json:"duration_ms"`
	Totals     struct {
		Arrivals   int64            `json:"arrivals"`
		Answers    map[string]int64 `json:"answers"`
		Finished   map[string]int64 `json:"finished"`
		States     map[string]int64 `json:"states"`
		Deliveries map[string]int64 `json:"deliveries"` // taken, not_taken
		Faults     int64            `json:"faults"`
	} `json:"totals"`
	Latency struct {
		Submit jsonLatency `json:"submit"`
		Finish jsonLatency `json:"finish"`
	} `json:"latency_ms"`
	Expectations []Expectation   `json:"expectations"`
	Verdict      *jsonVerdict    `json:"verdict"` // null: not judged
	FaultKinds   []jsonFaultKind `json:"fault_kinds"`
	Stages       []jsonStage     `json:"stages"`
	Notes        []string        `json:"notes"`
	Series       jsonSeries      `json:"series"`
	Faults       []jsonFault     `json:"faults"` // the first 2,000
}

type jsonLatency struct {
	Count int64   `json:"count"`
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	Max   float64 `json:"max"`
}

type jsonVerdict struct {
	Jobs           int64           `json:"jobs"`
	Tickets        int64           `json:"tickets"`
	Facts          int64           `json:"facts"`
	ViolationCount int64           `json:"violation_count"`
	Invariants     []jsonInvariant `json:"invariants"`
	Violations     []jsonViolation `json:"violations"` // the first 100
}

type jsonInvariant struct {
	Key     string `json:"key"`
	Title   string `json:"title"`
	Checked int64  `json:"checked"`
	Skipped string `json:"skipped,omitempty"` // why it was not checked
}

type jsonViolation struct {
	Invariant string   `json:"invariant"`
	What      string   `json:"what"`
	Job       string   `json:"job,omitempty"`
	Ticket    int64    `json:"ticket,omitempty"`
	History   []string `json:"history,omitempty"` // of the first 10
}

type jsonFaultKind struct {
	Kind       string  `json:"kind"`
	Times      int64   `json:"times"`
	Count      int64   `json:"count"`
	DurationMS float64 `json:"duration_ms"`
}

type jsonStage struct {
	Name string  `json:"name"`
	AtMS float64 `json:"at_ms"` // after the start
}

type jsonFault struct {
	Kind       string  `json:"kind"`
	Target     string  `json:"target"`
	AtMS       float64 `json:"at_ms"` // after the start
	DurationMS float64 `json:"duration_ms"`
	Count      int     `json:"count"`
}

type jsonSeries struct {
	StepMS    float64            `json:"step_ms"`
	Arrivals  []int64            `json:"arrivals"`
	Answers   map[string][]int64 `json:"answers"`
	Finished  map[string][]int64 `json:"finished"`
	States    map[string][]int64 `json:"states"`
	Workers   []int64            `json:"workers"`
	Delivered []int64            `json:"deliveries_taken"`
	Refused   []int64            `json:"deliveries_not_taken"`
	SubmitP50 []*float64         `json:"submit_p50_ms"` // null: none in this step
	SubmitP99 []*float64         `json:"submit_p99_ms"`
	FinishP50 []*float64         `json:"finish_p50_ms"`
	FinishP99 []*float64         `json:"finish_p99_ms"`
}

// WriteJSON writes the report for programs: one object, whose members document describes.
func WriteJSON(w io.Writer, run Run) error {
	n, started := run.Numbers, run.Started
	d := document{
		Version: 1, Outcome: run.Outcome(), Scenario: run.Scenario, Seed: run.Seed, Command: run.Command,
		Service: settingMap(run.Service), Machine: settingMap(run.Machine), StartedAt: started.UTC(), DurationMS: ms(run.Took),
		Expectations: append([]Expectation{}, run.Expectations...), Verdict: jsonVerdictOf(run),
		FaultKinds: []jsonFaultKind{}, Stages: []jsonStage{},
		Notes: append([]string{}, run.Notes...), Series: jsonSeriesOf(run.Series), Faults: []jsonFault{},
	}
	d.Totals.Arrivals, d.Totals.Faults = n.Arrivals, n.Injected
	d.Totals.Answers, d.Totals.Finished, d.Totals.States = countMap(n.Answers), countMap(n.Finished), countMap(n.States)
	d.Totals.Deliveries = map[string]int64{"taken": n.Delivered, "not_taken": n.Refused}
	d.Latency.Submit, d.Latency.Finish = jsonLatencyOf(n.Submit), jsonLatencyOf(n.Finish)
	for _, k := range run.Kinds {
		d.FaultKinds = append(d.FaultKinds, jsonFaultKind{k.Kind, k.Times, k.Count, ms(k.Lasted)})
	}
	for _, s := range run.Stages {
		d.Stages = append(d.Stages, jsonStage{s.Name, ms(s.Begun.Sub(started))})
	}
	for _, f := range run.Faults[:min(len(run.Faults), jsonFaults)] {
		d.Faults = append(d.Faults, jsonFault{f.Kind, f.Target, ms(f.At.Sub(started)), ms(f.Until.Sub(f.At)), f.Count})
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(d)
}

func jsonVerdictOf(run Run) *jsonVerdict {
	if run.Verdict == nil {
		return nil
	}
	v := run.Verdict
	d := &jsonVerdict{
		Jobs: v.Jobs, Tickets: v.Tickets, Facts: v.Facts, ViolationCount: v.ViolationCount,
		Invariants: []jsonInvariant{}, Violations: []jsonViolation{},
	}
	for _, i := range run.invariants() {
		d.Invariants = append(d.Invariants, jsonInvariant{i.Key, i.Title, i.Checked, i.Why})
	}
	for i, violation := range v.Violations[:min(len(v.Violations), jsonViolations)] {
		story := storyOf(violation)
		one := jsonViolation{
			Invariant: violation.Invariant, What: strings.TrimPrefix(story.What, violation.Invariant+": "),
			Job: violation.Job, Ticket: violation.Ticket,
		}
		if i < jsonHistories {
			one.History = story.Facts
		}
		d.Violations = append(d.Violations, one)
	}
	return d
}

func jsonSeriesOf(s Series) jsonSeries {
	tail := func(list []Tail, value func(Tail) time.Duration) []*float64 {
		out := make([]*float64, len(list))
		for i, t := range list {
			if t.Count > 0 {
				v := ms(value(t))
				out[i] = &v
			}
		}
		return out
	}
	p50, p99 := func(t Tail) time.Duration { return t.P50 }, func(t Tail) time.Duration { return t.P99 }
	return jsonSeries{
		StepMS: ms(s.Step), Arrivals: s.Arrivals, Answers: lineMap(s.Answers), Finished: lineMap(s.Finished), States: lineMap(s.States),
		Workers: s.Workers, Delivered: s.Delivered, Refused: s.Refused,
		SubmitP50: tail(s.Submit, p50), SubmitP99: tail(s.Submit, p99), FinishP50: tail(s.Finish, p50), FinishP99: tail(s.Finish, p99),
	}
}

func jsonLatencyOf(l Latency) jsonLatency {
	return jsonLatency{l.Count, ms(l.Min), ms(l.Mean), ms(l.P50), ms(l.P90), ms(l.P95), ms(l.P99), ms(l.P999), ms(l.Max)}
}

func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// mapOf is a list as the object that JSON has for it.
func mapOf[T, V any](list []T, member func(T) (string, V)) map[string]V {
	m := make(map[string]V, len(list))
	for _, one := range list {
		name, value := member(one)
		m[name] = value
	}
	return m
}

func settingMap(list []Setting) map[string]string {
	return mapOf(list, func(s Setting) (string, string) { return s.Name, s.Value })
}

func countMap(list []Count) map[string]int64 {
	return mapOf(list, func(c Count) (string, int64) { return c.Name, c.N })
}

func lineMap(list []Line) map[string][]int64 {
	return mapOf(list, func(l Line) (string, []int64) { return l.Name, l.Values })
}
