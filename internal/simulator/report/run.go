package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Run is the data of a report. Recorder.Run sets Started, Took, Numbers, Series, Stages, Faults and Kinds. The caller sets the other
// fields.
type Run struct {
	Scenario    string            `json:"scenario"`
	Description string            `json:"description"`
	Text        string            `json:"scenario_text"` // content of the scenario file
	Seed        uint64            `json:"seed"`
	Command     string            `json:"command"` // must contain no secrets, because reports are published
	Service     map[string]string `json:"service"`
	Machine     map[string]string `json:"machine"`

	Started time.Time     `json:"started_at"`
	Took    time.Duration `json:"-"`
	Numbers Numbers       `json:"totals"`
	Series  Series        `json:"series"`
	Stages  []Stage       `json:"stages"`
	Faults  []Fault       `json:"faults"`      // at most 2,000; later faults are only counted
	Kinds   []FaultKind   `json:"fault_kinds"` // totals of all faults of each kind, sorted by kind

	WorkKinds    []WorkKind     `json:"work_kinds"` // empty unless the scenario says how jobs must end (Work.Expect)
	Verdict      *judge.Verdict `json:"verdict"`    // nil: not judged
	Expectations []Expectation  `json:"expectations"`
	Notes        []string       `json:"notes"` // remarks for the reader, such as data that the judge could not read
}

// Expectation is a value that the scenario or a flag requires, and the run's actual value.
type Expectation struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
	// If Evidence is true and the expectation is not met, the run is inconclusive.
	Evidence bool `json:"-"`
}

// WorkKind compares a work kind's jobs with the scenario's expectation.
type WorkKind struct {
	Kind       string   `json:"kind"`
	Expected   string   `json:"expected"`
	Got        string   `json:"got"`
	Jobs       int      `json:"jobs"`
	Attempts   int      `json:"attempts"`    // number of attempts of the last job of this kind
	DurationMS int      `json:"duration_ms"` // duration of this job's last attempt
	Findings   []string `json:"findings"`    // problems other than an unexpected outcome
}

// OK reports whether the expectation is met.
func (k WorkKind) OK() bool { return k.Got == k.Expected && len(k.Findings) == 0 }

// KindsMet returns the number of work kinds that are OK.
func (run Run) KindsMet() (met int) {
	for _, k := range run.WorkKinds {
		if k.OK() {
			met++
		}
	}
	return met
}

// Numbers are the totals of a run, or of a part of it.
type Numbers struct {
	Arrivals   int64            `json:"arrivals"`
	Answers    map[string]int64 `json:"answers"`  // submissions by class of the response
	Finished   map[string]int64 `json:"finished"` // by final state
	States     map[string]int64 `json:"states"`   // number of jobs by last observed state
	Deliveries Deliveries       `json:"deliveries"`
	Faults     int64            `json:"faults"` // sum of Fault.Count
	// NotAccepted maps a response's status and error code to the number of submissions that created no job.
	NotAccepted map[string]int64 `json:"not_accepted"`
	Workers     int64            `json:"-"`
	Submit      Latency          `json:"-"`
	Finish      Latency          `json:"-"`
}

func (n Numbers) clone() Numbers {
	n.Answers, n.Finished = maps.Clone(n.Answers), maps.Clone(n.Finished)
	n.States, n.NotAccepted = maps.Clone(n.States), maps.Clone(n.NotAccepted)
	return n
}

// Deliveries counts webhook messages: Taken got a 2xx response, NotTaken did not.
type Deliveries struct {
	Taken    int64 `json:"taken"`
	NotTaken int64 `json:"not_taken"`
}

// All returns the total number of messages.
func (d Deliveries) All() int64 { return d.Taken + d.NotTaken }

// Latency summarizes durations.
type Latency struct {
	Count                    int64
	Min, Mean, Max           time.Duration
	P50, P90, P95, P99, P999 time.Duration
}

// MarshalJSON writes milliseconds.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"count": l.Count, "min": ms(l.Min), "mean": ms(l.Mean), "max": ms(l.Max),
		"p50": ms(l.P50), "p90": ms(l.P90), "p95": ms(l.P95), "p99": ms(l.P99), "p99_9": ms(l.P999),
	})
}

// Series are time series. All have the same length: one value for each step of the run.
type Series struct {
	StepMS   float64            `json:"step_ms"`
	Arrivals []int64            `json:"arrivals"`
	Answers  map[string][]int64 `json:"answers"`  // by class
	Finished map[string][]int64 `json:"finished"` // by final state
	States   map[string][]int64 `json:"states"`   // number of jobs in each state at the end of the step
	Workers  []int64            `json:"workers"`
	Taken    []int64            `json:"deliveries_taken"`
	NotTaken []int64            `json:"deliveries_not_taken"`
	// The percentiles have a relative error of 1 %. null: no measurement in this step.
	SubmitP50 []*float64 `json:"submit_p50_ms"`
	SubmitP99 []*float64 `json:"submit_p99_ms"`
	FinishP50 []*float64 `json:"finish_p50_ms"`
	FinishP99 []*float64 `json:"finish_p99_ms"`
}

// Outcome is the verdict of a run in short form.
type Outcome string

// Possible outcomes. If several apply to a run, Run.Outcome returns the first of them in this order.
const (
	Violated     Outcome = "VIOLATIONS"
	Inconclusive Outcome = "INCONCLUSIVE"
	Unmet        Outcome = "EXPECTATIONS NOT MET"
	Unjudged     Outcome = "NOT JUDGED"
	Passed       Outcome = "PASSED"
)

// Outcome returns the run's outcome.
func (run Run) Outcome() Outcome {
	switch {
	case run.Verdict != nil && run.Verdict.ViolationCount > 0:
		return Violated
	case slices.ContainsFunc(run.Expectations, func(e Expectation) bool { return e.Evidence && !e.OK }):
		return Inconclusive
	case slices.ContainsFunc(run.Expectations, func(e Expectation) bool { return !e.OK }):
		return Unmet
	case run.checked() == 0:
		return Unjudged
	default:
		return Passed
	}
}

func (run Run) count(of func(judge.Result) bool) (n int) {
	if run.Verdict != nil {
		for _, r := range run.Verdict.Invariants {
			if of(r) {
				n++
			}
		}
	}
	return n
}

func (run Run) checked() int { return run.count(func(r judge.Result) bool { return r.Checked > 0 }) }

func (run Run) headline() string {
	held := run.count(func(r judge.Result) bool { return r.Result == judge.Held })
	return fmt.Sprintf("%d of %d invariants held: %s", held, len(judge.Invariants), run.Numbers.submissions())
}

func (n Numbers) submissions() string {
	share := func(classes ...string) string { return percent(n.of(classes...), total(n.Answers)) }
	text := fmt.Sprintf("%s of %s accepted, %s refused",
		share(Accepted, Replayed), plural(total(n.Answers), "submission"), share(Refused, Rejected, Planned))
	if n.Answers[Planned] > 0 {
		text += fmt.Sprintf(" (%s as planned)", share(Planned))
	}
	if n.Answers[Failed] > 0 {
		text += fmt.Sprintf(", %s failed", share(Failed))
	}
	return text + fmt.Sprintf(", %s unanswered", share(Unanswered))
}

func (n Numbers) of(classes ...string) (some int64) {
	for _, class := range classes {
		some += n.Answers[class]
	}
	return some
}

// Share returns the fraction of submissions with a response of one of the classes.
func (n Numbers) Share(classes ...string) float64 {
	return float64(n.of(classes...)) / float64(max(total(n.Answers), 1))
}

func (run Run) sentence() string {
	v := run.Verdict
	if v == nil {
		return "The run was not judged."
	}
	found := "no violation"
	if v.ViolationCount > 0 {
		found = plural(v.ViolationCount, "violation")
	}
	text := fmt.Sprintf("%d of %d invariants checked over %s and %s: %s",
		run.checked(), len(judge.Invariants), plural(v.Jobs, "job"), plural(v.Facts, "fact"), found)
	if n := len(run.Expectations); n > 0 {
		unmet := slices.DeleteFunc(slices.Clone(run.Expectations), func(e Expectation) bool { return e.OK })
		text += fmt.Sprintf("; %d of %d expectations met", n-len(unmet), n)
	}
	return text + "."
}
