package decode

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

func (r *reader) work(req *job.Request) {
	if req.WorkKind != job.Custom {
		req.Warnings = ignoredParams(req.Params, "")
		return
	}
	req.Warnings = ignoredParams(req.Params, behaviorName)
	var params struct{ Behavior json.RawMessage }
	_ = json.Unmarshal(req.Params, &params) // cannot fail: the schema has checked it
	req.Behavior = &job.Behavior{}
	if len(params.Behavior) == 0 || string(params.Behavior) == "null" {
		return
	}
	in := newReader(r.schemas, params.Behavior, Limits{TestBed: r.limits.TestBed})
	defer in.done()
	in.base, in.guess, in.limit = r.base+"/params/"+behaviorName, r.guess, r.limit
	in.document("Behavior", req.Behavior)
	in.checkResult(in.base+"/result", &req.Behavior.Result)
	r.guess = in.guess
	r.add(&in.findings)
}

const (
	behaviorName = "behavior"
	maxWarnings  = 10
	ignored      = "The work kind ignores this member: it is stored and shown with the job, but has no effect."
)

// ignoredParams returns a warning for each member of params that the work kind ignores. After maxWarnings warnings, one more warning says
// how many other members are ignored. Pointers are relative to the job request.
func ignoredParams(params []byte, used string) (warnings []job.Violation) {
	more := 0
	for name := range members(params) {
		switch {
		case name == used:
		case len(warnings) < maxWarnings && len(name) <= maxPointerBytes:
			warnings = append(warnings, job.Violation{Pointer: "/params/" + pointerEscapes.Replace(name), Detail: ignored})
		default:
			more++
		}
	}
	if more > 0 {
		warnings = append(warnings, job.Violation{Pointer: "/params", Detail: "And " + job.Grouped(more) + " more members: " + ignored})
	}
	return warnings
}

func members(object []byte) func(yield func(name string, value []byte) bool) {
	return func(yield func(name string, value []byte) bool) {
		r := newReader(nil, object, Limits{})
		defer r.done()
		for r.token(); r.err == nil && r.json.PeekKind() == '"'; {
			name := string(unquoted(r.scalar()))
			if value := r.scalar(); r.err != nil || !yield(name, value) {
				return
			}
		}
	}
}

func (r *reader) checkResult(at string, p *job.PlannedResult) {
	if p.Size != nil && p.Body != nil {
		r.malformedAt(at, "Give a result a size or a body, not both.")
	}
	if n := len(value(p.Body)); n > job.MaxResultBytes {
		r.invalidAt(at+"/body", fmt.Sprintf("A result may have at most %d bytes, but this has %d.", job.MaxResultBytes, n))
	}
}

// plannedProblem reads a problem document. Members without a field in the struct below become extensions.
func (r *reader) plannedProblem(at string, text []byte) job.PlannedProblem {
	var sent struct {
		Type       string         `json:"type"`
		Title      string         `json:"title"`
		Status     int            `json:"status"`
		Detail     string         `json:"detail"`
		Code       job.Code       `json:"code"`
		Retryable  *bool          `json:"retryable"`
		RetryAfter int            `json:"retryAfter"`
		Stage      job.Stage      `json:"stage"`
		Extensions jsontext.Value `json:",embed"`
	}
	_ = jsonv2.Unmarshal(text, &sent, jsonv2.WithUnmarshalers(r.types)) // cannot fail: the schema has checked it
	var more []byte
	count := 0
	for name, value := range members(sent.Extensions) {
		count++
		more, _ = jsontext.AppendQuote(append(more, ','), name)
		more = append(append(more, ':'), value...)
	}
	if count > job.MaxExtensions || len(more) > job.MaxExtensionBytes {
		r.invalidAt(at, fmt.Sprintf("A problem may have at most %d extension members, with at most %d bytes in total.",
			job.MaxExtensions, job.MaxExtensionBytes))
		more = nil
	}
	if more != nil {
		more[0] = '{'
		more = append(more, '}')
	}
	return job.PlannedProblem{Type: sent.Type, Title: sent.Title, Status: sent.Status, Detail: sent.Detail, Code: sent.Code,
		Retryable: sent.Retryable, RetryAfter: sent.RetryAfter, Stage: sent.Stage, Extensions: more}
}
