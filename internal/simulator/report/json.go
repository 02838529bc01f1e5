package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// document is the JSON report. Its members are stable: new ones may come, none
// goes or changes its meaning while Version stays. Times of day are RFC 3339,
// lengths of time are in milliseconds. Series have one value a step.
type document struct {
	Version  int     `json:"version"` // 1
	Outcome  Outcome `json:"outcome"`
	Headline string  `json:"headline"`
	Sentence string  `json:"sentence"`
	Run
	DurationMS float64            `json:"duration_ms"`
	Latency    map[string]Latency `json:"latency_ms"` // submit, finish
	Verdict    *verdict           `json:"verdict"`    // null: not judged
}

type verdict struct {
	judge.Verdict
	Invariants []judge.Result `json:"invariants"`
}

func documentOf(run Run) document {
	d := document{
		Version: 1, Outcome: run.Outcome(), Headline: run.headline(), Sentence: run.sentence(), Run: run, DurationMS: ms(run.Took),
		Latency: map[string]Latency{"submit": run.Numbers.Submit, "finish": run.Numbers.Finish},
	}
	d.Started = run.Started.UTC().Round(time.Millisecond)
	d.Stages, d.Faults, d.Kinds = list(run.Stages), list(run.Faults), list(run.Kinds)
	d.Expectations, d.Notes, d.WorkKinds = list(run.Expectations), list(run.Notes), list(run.WorkKinds)
	if v := run.Verdict; v != nil {
		d.Verdict = &verdict{*v, v.Results()}
		d.Verdict.Violations = list(v.Violations)
	}
	return d
}

// list is never null in JSON.
func list[T any](values []T) []T { return append([]T{}, values...) }

// WriteJSON writes the report for programs: one object, whose members document describes.
func WriteJSON(w io.Writer, run Run) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(documentOf(run))
}
