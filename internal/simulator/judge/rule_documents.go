package judge

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeReceipt: the answer to a submission has the job, its address, its time
// and a state in which a job begins; a refusal has no job.
func judgeReceipt(s *history.Submission, t history.Try, must func(ok bool, invariant, format string, args ...any)) {
	switch {
	case t.Status >= 400:
		must(t.Location == "", answered, "the refusal names a job (%s)", t.Location)
	case t.Status >= 200 && t.Job == "":
		must(false, answered, "the submission was answered with %d and cannot be read: %s", t.Status, t.Error)
	case t.Status == 202 && s.Batch == "":
		must(!t.CreatedAt.IsZero(), answered, "the acceptance has no created_at")
		must(strings.HasSuffix(t.Location, "/v1/jobs/"+t.Job), answered,
			"the acceptance has Location %q, expected the address of the job", t.Location)
		begins := t.State == created || t.State == queued && s.ExecutionAt == nil
		must(t.Replayed || begins || s.Type == emitEvent, answered, "the job was accepted as %s", t.State)
	}
}

// judgePolls: each poll shows the job that was asked for, as its kind defines it,
// with the document that belongs to its state.
func (q *inquiry) judgePolls() {
	for _, f := range q.byKind[history.Looked] {
		told := f.Told
		if told == nil || told.State == "" || f.Tenant != q.tenant {
			continue
		}
		q.look(answered)
		if s := q.submission(); s != nil {
			same := told.Type == s.Type && (s.WorkKind == "" || told.WorkKind == s.WorkKind) && sameMoment(told.ExecutionAt, s.ExecutionAt)
			q.must(same, answered, "a poll tells %s of kind %s with execution_at %s, asked for was %s of kind %s with %s",
				told.Type, told.WorkKind, moment(told.ExecutionAt), s.Type, s.WorkKind, moment(s.ExecutionAt))
		}
		ordered := !told.CreatedAt.IsZero() && !told.UpdatedAt.Before(told.CreatedAt)
		q.must(ordered, answered, "a poll tells created_at and updated_at not at all or in the wrong order")
		q.must(inUTC(told.CreatedAt) && inUTC(told.UpdatedAt), answered, "a poll tells a time that is not in UTC")
		q.must(told.Attempt <= told.MaxAttempts, answered, "a poll tells max_attempts %d at attempt %d", told.MaxAttempts, told.Attempt)
		q.judgeDefinition(told)
		q.judgeFailureDocument(told)
		q.judgeResultDocument(told)
	}
	for _, f := range q.byKind[history.Acted] {
		if a := f.Action; a != nil && a.Status == 200 && f.Tenant == q.tenant {
			q.must(a.Error == "", answered, "the answer to %s cannot be read: %s", a.Verb, a.Error)
			q.must(a.Error != "" || !a.UpdatedAt.IsZero(), answered, "the answer to %s has no updated_at", a.Verb)
		}
	}
}

func inUTC(t time.Time) bool {
	_, offset := t.Zone()
	return offset == 0
}

func (q *inquiry) judgeDefinition(told *history.Job) {
	kind, known := catalogue[told.WorkKind]
	if !known || told.DurationMS == nil {
		return
	}
	want := kind.duration.Milliseconds()
	q.must(want == 0 || *told.DurationMS == want, expected, "definition.duration_ms is %d, the catalogue has %d", *told.DurationMS, want)
	q.must(told.ShouldFail == (kind.fails > 0), expected,
		"definition.should_fail is %t, the catalogue has %t", told.ShouldFail, kind.fails > 0)
	q.must(told.PayloadSize == nil || *told.PayloadSize == int64(kind.result), expected,
		"definition.payload_size is %d, the catalogue has %d", deref(told.PayloadSize), kind.result)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// judgeFailureDocument: a failed job carries the document of its failure, of the
// same code as the report of the attempt, and no other job does.
func (q *inquiry) judgeFailureDocument(told *history.Job) {
	d := told.Document
	if told.State != failed || d == nil {
		q.must(d == nil, answered, "the %s job carries a failure", told.State)
		q.must(told.State != failed, answered, "the failed job carries no failure")
		return
	}
	q.must(d.Job == q.job, answered, "failure.jobId is %q", d.Job)
	q.must(d.Status == statusOf("job.failed", d.Code), answered, "failure.jobStatus is %q with the code %s", d.Status, d.Code)
	advised := d.Code == codeDependency || d.Code == codeTimeout || d.Code == codeWorkerLost
	q.must(d.Retryable == advised, answered, "failure.retryable is %t, expected %t with the code %s", d.Retryable, advised, d.Code)
	q.must(!d.Retryable || d.RetryAfter != nil && *d.RetryAfter >= 1, answered, "failure.retryable is true without a retryAfter of at least 1")
	if r := q.reports[told.Attempt]; r != nil {
		q.must(d.Code == r.Failure, answered, "failure.code is %s, the report of the attempt has %q", d.Code, r.Failure)
	}
}

func (q *inquiry) judgeResultDocument(told *history.Job) {
	kind, known := catalogue[told.WorkKind]
	if r := told.Result; r != nil && known && told.State == succeeded {
		q.must(r.Size == int64(kind.result), expected, "result.size_bytes is %d, expected %d", r.Size, kind.result)
		q.must(r.Checksum, answered, "the result has no checksum")
	}
}

// judgeReportDocuments: a report is of the job, and so are its events, which say
// what the catalogue says of the kind; started_at is the start of its attempt, which
// judgeFence looks at where there are rows.
func (q *inquiry) judgeReportDocuments() {
	for _, f := range q.byKind[history.ToldReport] {
		r := f.Report
		if r == nil {
			continue
		}
		q.must(r.Job == q.job, answered, "the report of attempt %d is of job %q", r.Attempt, r.Job)
		q.must(!r.FinishedAt.IsZero(), answered, "the report of attempt %d lacks finished_at", r.Attempt)
		q.must(len(r.Events) > 0, answered, "the report of attempt %d has no events", r.Attempt)
		var start *time.Time
		for i, e := range r.Events {
			if e.Next == running && e.Attempt == r.Attempt {
				start = &r.Events[i].At
			}
			q.must(e.Job == q.job, answered, "event %d (%s) is of job %q", i+1, e.Name, e.Job)
			q.judgeEventData(i+1, e)
		}
		same := start == nil && r.StartedAt == nil || start != nil && r.StartedAt != nil && start.Equal(*r.StartedAt)
		q.must(same || q.row != nil, answered,
			"the report of attempt %d has started_at %s, its events tell the start %s", r.Attempt, moment(r.StartedAt), moment(start))
	}
}

func (q *inquiry) judgeEventData(n int, e history.Event) {
	kind, known := catalogue[q.kind()]
	if !known || e.Name == nameEmitted {
		return
	}
	q.must(e.WorkKind == q.kind(), answered, "event %d (%s) has work_kind %q in its data", n, e.Name, e.WorkKind)
	want := kind.duration.Milliseconds()
	q.must(e.DurationMS == nil || want == 0 || *e.DurationMS == want, expected,
		"event %d (%s) has duration_ms %d in its data, the catalogue has %d", n, e.Name, deref(e.DurationMS), want)
	outcome := succeeded
	switch {
	case kind.fails > 0:
		outcome = failed
	case strings.HasPrefix(q.kind(), "CANCEL_"):
		outcome = canceled
	}
	q.must(e.Expected == "" || e.Expected == outcome, expected,
		"event %d (%s) has expected_outcome %s in its data, the catalogue has %s", n, e.Name, e.Expected, outcome)
}

// readEventData takes what an event says of the work out of its data.
func readEventData(data json.RawMessage, into *history.Event) {
	var d struct {
		WorkKind        string `json:"work_kind"`
		DurationMS      *int64 `json:"duration_ms"`
		ExpectedOutcome string `json:"expected_outcome"`
	}
	_ = json.Unmarshal(data, &d) // what is not there is judged as such
	into.WorkKind, into.DurationMS, into.Expected = d.WorkKind, d.DurationMS, d.ExpectedOutcome
}
