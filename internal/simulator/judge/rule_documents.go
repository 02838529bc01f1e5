package judge

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkReceipt checks that the response to a submission has the job, its address, its time and an initial state.
func (c *checker) checkReceipt(s *history.Submission, t history.Answer) {
	switch {
	case t.Status >= 200 && t.Status < 400 && t.Job == "":
		c.must(false, answered, "the submission returned %d, but the response cannot be read: %s", t.Status, t.Error)
	case t.Status == 202 && s.Batch == "":
		c.must(!t.CreatedAt.IsZero(), answered, "the 202 response has no created_at")
		c.must(strings.HasSuffix(t.Location, "/v1/jobs/"+t.Job), answered,
			"the 202 response has Location %q, expected the address of the job", t.Location)
		begins := t.State == created || t.State == queued && s.ExecutionAt.IsZero()
		c.must(t.Replayed || begins || s.Type == emitEvent, answered, "the 202 response shows the new job as %s", t.State)
	}
}

// checkPolls checks the jobs that the owner's polls returned. They must show the submitted values and agree with the work kind and the
// state.
func (c *checker) checkPolls() {
	for _, f := range c.byKind[history.Looked] {
		if f.Shown != nil && f.Tenant == c.tenant {
			c.must(f.Shown.State != "", answered, "the owner's poll was refused: %s", f.Note)
			if f.Shown.State != "" {
				c.checkPoll(f.Shown)
			}
		}
	}
}

func (c *checker) checkPoll(shown *history.Job) {
	if s := c.submission; s != nil {
		same := shown.Type == s.Type && (s.WorkKind == "" || shown.WorkKind == s.WorkKind) && sameTime(shown.ExecutionAt, s.ExecutionAt)
		c.must(same, answered, "a poll shows %s of kind %s with execution_at %s, but the client submitted %s of kind %s with %s",
			shown.Type, shown.WorkKind, clock(shown.ExecutionAt), s.Type, s.WorkKind, clock(s.ExecutionAt))
	}
	c.must(shown.Outcome == outcomes[shown.State], answered, "a poll shows state %s with the wrong outcome %q", shown.State, shown.Outcome)
	c.must(c.madeAt(shown.CreatedAt) && !shown.CreatedAt.IsZero() && !shown.UpdatedAt.Before(shown.CreatedAt), answered,
		"a poll shows created_at %s and updated_at %s; created_at must be that of the job, and not be after updated_at",
		clock(shown.CreatedAt), clock(shown.UpdatedAt))
	c.must(inUTC(shown.CreatedAt) && inUTC(shown.UpdatedAt), answered, "a poll shows a time that is not in UTC")
	c.must(shown.Attempt <= shown.MaxAttempts, answered, "a poll shows max_attempts %d, but attempt %d", shown.MaxAttempts, shown.Attempt)
	c.checkFailureDocument(shown)
	if kind, known := catalogue[shown.WorkKind]; known {
		c.checkDefinition(kind, shown)
	}
}

func inUTC(t time.Time) bool {
	_, offset := t.Zone()
	return offset == 0
}

func (c *checker) checkDefinition(kind workKind, shown *history.Job) {
	if r := shown.Result; r != nil && shown.State == succeeded {
		c.must(r.SizeBytes == kind.result, expected, "result.size_bytes is %d, expected %d", r.SizeBytes, kind.result)
		c.must(r.Checksum != nil && r.Checksum.Value != "", answered, "the result has no checksum")
	}
	d := shown.Definition
	if d == nil {
		return
	}
	want := int(kind.duration.Milliseconds())
	c.must(want == 0 || d.DurationMS == want, expected, "definition.duration_ms is %d, expected %d", d.DurationMS, want)
	c.must(d.ShouldFail == (kind.fails > 0), expected, "definition.should_fail is %t, expected %t", d.ShouldFail, kind.fails > 0)
	c.must(d.PayloadSize == kind.result, expected, "definition.payload_size is %d, expected %d", d.PayloadSize, kind.result)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// checkFailureDocument checks that failed jobs have the member `failure`, and other jobs do not. The failure's code must equal the code in
// the report.
func (c *checker) checkFailureDocument(shown *history.Job) {
	d := shown.Failure
	if shown.State != failed || d == nil {
		c.must(d == nil, answered, "the job is %s, but has a `failure` member", shown.State)
		c.must(shown.State != failed, answered, "the failed job has no `failure` member")
		return
	}
	c.must(d.JobID == c.id, answered, "failure.jobId is %q", d.JobID)
	c.must(d.JobStatus == statusOf("job.failed", d.Code), answered, "failure.jobStatus %q does not fit the code %s", d.JobStatus, d.Code)
	advised := d.Code == codeDependency || d.Code == codeTimeout || d.Code == codeWorkerLost
	c.must(d.Retryable() == advised, answered, "failure.retryable is %t, expected %t for the code %s", d.Retryable(), advised, d.Code)
	c.must(!d.Retryable() || d.RetryAfter != nil && *d.RetryAfter >= 1, answered,
		"failure.retryable is true, but retryAfter is missing or below 1")
	if r := c.reports[shown.Attempt]; r != nil {
		c.must(d.Code == r.Failure, answered, "failure.code is %s, but the report of the attempt has %q", d.Code, r.Failure)
	}
}

const (
	resultKept = 24 * time.Hour // how long the service keeps a result after the end of its job
	resultGone = "410 RFA_RESULT_GONE"
)

// checkAPIReports checks that the API's reports equal the stored ones, and that unexpired results can be read.
func (c *checker) checkAPIReports() {
	for _, f := range c.byKind[history.APIReport] {
		r := f.Report
		c.must(r != nil, answered, "the API shows no report: %s", f.Note)
		if r == nil {
			continue
		}
		expired := r.ResultError == resultGone && c.run.latest(c.run.asOf(c.source)).Sub(r.FinishedAt) >= resultKept
		c.must(r.ResultError == "" || expired, answered, "the API does not give the result: %s", r.ResultError)
		c.must(r.Job == c.id, answered, "the report of attempt %d names job %q", r.Attempt, r.Job)
		s := c.reports[r.Attempt]
		c.must(c.row == nil || s != nil && r.Outcome == s.Outcome && sameTime(r.StartedAt, s.StartedAt) && r.FinishedAt.Equal(s.FinishedAt) &&
			r.DurationMS == s.DurationMS && r.Failure == s.Failure && len(r.Events) == s.EventSeq, answered,
			"the API shows a report of attempt %d that differs from the stored one", r.Attempt)
		c.checkAPIEvents(r)
	}
}

// checkAPIEvents checks that an attempt's report has all events up to the end of the attempt.
func (c *checker) checkAPIEvents(r *history.Report) {
	var was history.Event // At: time of the previous event; Next: the job's state after that event
	var start, end time.Time
	attempt := 1
	for i, e := range r.Events {
		must := func(ok bool, invariant, format string, args ...any) {
			c.must(ok, invariant, "event %d (%s) in the report of attempt %d "+format, append([]any{i + 1, e.Name, r.Attempt}, args...)...)
		}
		attempt += count(e.Name == nameRetried)
		must(e.Seq == i+1 && e.Attempt == attempt && !e.At.Before(was.At), logged, "is out of order: seq %d of attempt %d", e.Seq, e.Attempt)
		must(e.Job == c.id, answered, "belongs to job %q", e.Job)
		must(!c.logComplete || i < len(c.log) && sameEvent(e, c.log[i]), answered, "does not match event %d of the log", i+1)
		if was.At = e.At; e.Name == nameEmitted {
			continue
		}
		wrong := c.wrongScenario(e.Scenario)
		must(wrong == "", expected, "has %s", wrong)
		if e.Name == nameExhausted {
			continue
		}
		must(e.Prev == was.Next && e.Name == eventName(e.Prev, e.Next), logged, "leads from %q to %q, but the job was %q",
			e.Prev, e.Next, was.Next)
		was.Next, end = e.Next, e.At
		if e.Next == running && e.Attempt == r.Attempt {
			start = e.At
		}
	}
	c.must(attempt == r.Attempt && outcomes[was.Next] == r.Outcome && r.StartedAt.Equal(start) && r.FinishedAt.Equal(end), ended,
		"the report of attempt %d says %s from %s to %s, but its events say %s of attempt %d from %s to %s", r.Attempt, r.Outcome,
		clock(r.StartedAt), clock(r.FinishedAt), was.Next, attempt, clock(start), clock(end))
}

// sameEvent compares the members that both the API and the rows have.
func sameEvent(a, b history.Event) bool {
	at := a.At.Equal(b.At)
	a.At, a.Status, a.Job, a.Scenario = b.At, b.Status, b.Job, b.Scenario
	return at && a == b
}

// expectedOutcome returns the planned final state of the first attempt.
func expectedOutcome(kind string) string {
	switch {
	case catalogue[kind].fails > 0:
		return failed
	case strings.HasPrefix(kind, "CANCEL_"):
		return canceled
	}
	return succeeded
}

func (c *checker) wrongScenario(shown history.Scenario) string {
	kind, known := catalogue[c.kind]
	want := int(kind.duration.Milliseconds())
	switch {
	case !known:
		return ""
	case shown.WorkKind != c.kind:
		return fmt.Sprintf("work kind %q, expected %s", shown.WorkKind, c.kind)
	case shown.DurationMS == 0:
		return "no duration"
	case want != 0 && shown.DurationMS != want:
		return fmt.Sprintf("a duration of %d ms, expected %d", shown.DurationMS, want)
	case shown.ExpectedOutcome != expectedOutcome(c.kind):
		return fmt.Sprintf("expected_outcome %q, not %s", shown.ExpectedOutcome, expectedOutcome(c.kind))
	}
	return ""
}

// checkStream checks that the client's stream has each event of the job's log once, in order. If the stream was not read during the whole
// run, the check only looks for repeated events. The event that ends an attempt has no seq on a stream, so the check assumes the next seq.
func (c *checker) checkStream() {
	if c.tenant < 0 || !c.run.Streamed {
		return
	}
	next := count(c.run.Whole) // expected seq; 0: unknown
	ends := map[string]bool{}  // final events of attempts seen so far, by name and attempt
	for _, f := range c.byKind[history.Streamed] {
		if f.Tenant != c.tenant || f.Event == nil || f.Event.Name == "job.progress" {
			continue
		}
		e, name := f.Event, f.Event.Name
		switch {
		case e.Seq > 0:
			c.must(next == 0 || e.Seq >= next, streamed, "event %d (%s) came again, or after a later one", e.Seq, name)
			c.must(!c.run.Whole || e.Seq <= next, streamed, "the stream has event %d (%s), but not event %d before it", e.Seq, name, next)
			c.must(name != nameEmitted || c.emits(e.Emitted), streamed,
				"event %d (%s) is %q, which the client did not ask for", e.Seq, name, e.Emitted)
			next = e.Seq
		case endsAttempt(name):
			c.must(!ends[fmt.Sprint(name, e.Attempt)], streamed, "the stream has %s of attempt %d twice", name, e.Attempt)
			c.must(e.Status == "" || c.hasStatus(name, e.Attempt, e.Status), streamed,
				"%s of attempt %d has the wrong jobStatus %s", name, e.Attempt, e.Status)
			ends[fmt.Sprint(name, e.Attempt)] = true
		default:
			c.must(false, streamed, "the stream has %s without a seq", name)
			continue
		}
		wrong := c.wrongScenario(e.Scenario)
		c.must(wrong == "", streamed, "%s of attempt %d has %s", name, e.Attempt, wrong)
		if next > 0 {
			c.checkStreamed(f, name, next)
			next++
		}
	}
	switch j := c.job; {
	case !c.run.Whole:
	case c.logComplete:
		c.must(next > len(c.log), streamed, "the stream ends before event %d of %d", next, len(c.log))
	case j != nil && final(j.State):
		c.must(ends[fmt.Sprint(eventName(running, j.State), j.Attempt)], streamed,
			"the stream does not show that attempt %d ended as %s", j.Attempt, j.State)
	}
}

func (c *checker) hasStatus(name string, attempt int, status string) bool {
	if r := c.reports[attempt]; r != nil {
		return status == statusOf(name, r.Failure)
	}
	return status == statusOf(name, "") || status == statusOf(name, codeTimeout)
}

func (c *checker) checkStreamed(f *history.Fact, name string, seq int) {
	if len(c.log) == 0 || !c.logComplete {
		return
	}
	if seq > len(c.log) {
		c.must(false, streamed, "the stream has %s as event %d, but the log has only %d events", name, seq, len(c.log))
		return
	}
	e := c.log[seq-1]
	same := e.Name == name && e.Attempt == f.Event.Attempt && (f.Event.ID == "" || f.Event.ID == e.ID)
	c.must(same, streamed,
		"the stream has %s of attempt %d as event %d, which in the log is %s of attempt %d", name, f.Event.Attempt, seq, e.Name, e.Attempt)
	c.must(!same || !c.run.latest(f.At).Before(e.At), streamed, "event %d (%s) came %s before it happened",
		seq, name, e.At.Sub(c.run.serviceTime(f.At)))
}
