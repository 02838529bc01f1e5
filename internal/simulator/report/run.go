package report

import (
	"fmt"
	"slices"

	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Run is all that a report shows. Recorder.Run fills in the numbers, the caller the first members and the last.
type Run struct {
	Scenario    string
	Description string
	Text        string // the scenario file
	Seed        uint64
	Command     string // without secrets: it is written as it stands
	Service     []Setting
	Machine     []Setting

	Started time.Time
	Took    time.Duration
	Numbers Numbers
	Series  Series
	Stages  []Stage
	Faults  []Fault     // the first of them
	Kinds   []FaultKind // all of them, by name

	Verdict      *judge.Verdict // nil: the run was not judged
	Expectations []Expectation
	Notes        []string // what a reader must know, such as what could not be asked
}

// Setting is a name and a value that was chosen or found.
type Setting struct{ Name, Value string }

// Expectation is what the scenario or the command wanted of the numbers.
type Expectation struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Series are the numbers over time, all of the same length, with a value for each Step from the start on.
type Series struct {
	Step      time.Duration
	Arrivals  []int64
	Answers   []Line // by class
	Finished  []Line // by final state
	States    []Line // jobs in a state at the end of the step
	Workers   []int64
	Delivered []int64
	Refused   []int64 // deliveries
	Submit    []Tail
	Finish    []Tail
}

// Line is one named series.
type Line struct {
	Name   string
	Values []int64
}

// Tail is the latency of one step, exact to 1 %. Without a Count there is none.
type Tail struct {
	Count    int64
	P50, P99 time.Duration
}

// Outcome is a run's verdict in short.
type Outcome string

// Outcomes, the worst first.
const (
	Violated Outcome = "VIOLATIONS"
	Unmet    Outcome = "EXPECTATIONS NOT MET"
	Unjudged Outcome = "NOT JUDGED"
	Passed   Outcome = "PASSED"
)

// Outcome says how the run went.
func (run Run) Outcome() Outcome {
	unmet := func(e Expectation) bool { return !e.OK }
	switch {
	case run.Verdict != nil && run.Verdict.ViolationCount > 0:
		return Violated
	case slices.ContainsFunc(run.Expectations, unmet):
		return Unmet
	case run.checked() == 0:
		return Unjudged
	default:
		return Passed
	}
}

// checked counts the invariants that were checked.
func (run Run) checked() int {
	n := 0
	for _, i := range judge.Invariants {
		if run.Verdict != nil && run.Verdict.Checked[i.Key] > 0 {
			n++
		}
	}
	return n
}

// sentence is the verdict in words.
func (run Run) sentence() string {
	v := run.Verdict
	if v == nil {
		return "The run was not judged."
	}
	found := "no violation"
	if v.ViolationCount > 0 {
		found = plural(v.ViolationCount, "violation")
	}
	text := fmt.Sprintf("%d of %d invariants checked over %s jobs and %s facts: %s",
		run.checked(), len(judge.Invariants), grouped(v.Jobs), grouped(v.Facts), found)
	met := 0
	for _, e := range run.Expectations {
		if e.OK {
			met++
		}
	}
	if n := len(run.Expectations); n > 0 {
		text += fmt.Sprintf("; %d of %d expectations met", met, n)
	}
	return text + "."
}
