package main

import (
	"context"
	"fmt"
	"time"
)

// judge compares a finished job and its report with what they must be: the
// given final state after the given attempt. It returns the report for what
// is particular to a kind; it judges the job as read, so callers read it at
// the end.
func (v *visit) judge(ctx context.Context, t ticket, j jobView, state string, attempt int) (reportView, error) {
	v.judgeJob(t, j, state, attempt)
	r, err := v.report(ctx, t)
	if err != nil {
		return r, err
	}
	v.judgeReport(t, j, r)
	v.findings = append(v.findings, judgeEvents(v.kind, t, j, r.Events)...)
	return r, nil
}

func (v *visit) judgeJob(t ticket, j jobView, state string, attempt int) {
	v.attempts = j.Attempt
	if j.State != state {
		why := ""
		if j.Failure != nil {
			why = fmt.Sprintf(" (%s: %s)", j.Failure.Code, j.Failure.Detail)
		}
		v.differs("job %s ended %s%s, expected %s", t.id, j.State, why, state)
	}
	if j.Outcome != outcomes[j.State] {
		v.differs("the job is %s with outcome %s, expected %s", j.State, orNone(j.Outcome), outcomes[j.State])
	}
	if j.Attempt != attempt {
		v.differs("the job ended on attempt %d, expected %d", j.Attempt, attempt)
	}
	if j.MaxAttempts < j.Attempt {
		v.differs("the job has max_attempts %d at attempt %d", j.MaxAttempts, j.Attempt)
	}
	if j.JobID != t.id || j.Type != t.kind || j.WorkKind != v.kind.name {
		v.differs("the job reads as %s, %s of kind %s; submitted was %s, %s", j.JobID, j.Type, orNone(j.WorkKind), t.id, t.kind)
	}
	if j.CreatedAt == nil || j.UpdatedAt == nil || j.UpdatedAt.Before(j.CreatedAt.Time) {
		v.differs("created_at and updated_at are missing or in the wrong order")
	}
	if got := timeOf(j.ExecutionAt); !got.Equal(t.executionAt) {
		v.differs("the job has execution_at %s, submitted was %s", clock(got), clock(t.executionAt))
	}
	if j.Definition != nil {
		v.judgeDefinition(*j.Definition)
	}
	v.judgeFailure(t, j)
	v.judgeResult(j)
}

// judgeDefinition holds what the service made of the kind against the row.
func (v *visit) judgeDefinition(d definition) {
	if want := v.kind.duration.Milliseconds(); want > 0 && d.DurationMS != want {
		v.differs("definition.duration_ms is %d, the catalogue has %d", d.DurationMS, want)
	}
	if want := v.kind.outcome == stateFailed; d.ShouldFail != want {
		v.differs("definition.should_fail is %t, the catalogue has %t", d.ShouldFail, want)
	}
	if d.PayloadSize != v.kind.payload {
		v.differs("definition.payload_size is %d, the catalogue has %d", d.PayloadSize, v.kind.payload)
	}
}

// judgeFailure looks at the failure document of a failed attempt. A failure
// for another reason than the kind's own (a lost worker, a timeout) must not
// pass for it.
func (v *visit) judgeFailure(t ticket, j jobView) {
	f, want := j.Failure, v.kind.failure
	if j.State != stateFailed {
		if f != nil {
			v.differs("the %s job carries a failure", j.State)
		}
		return
	}
	if f == nil {
		v.differs("the failed job carries no failure")
		return
	}
	if !contractCodes[f.Code] {
		v.differs("failure.code is %q, which the contract does not have", f.Code)
	}
	if f.JobID != t.id {
		v.differs("failure.jobId is %q, expected %s", f.JobID, t.id)
	}
	if f.Retryable == nil {
		v.differs("failure.retryable is missing")
	}
	if f.Retryable != nil && *f.Retryable && f.RetryAfter < 1 {
		v.differs("failure.retryable is true without a retryAfter of at least 1")
	}
	if want == nil {
		return // that it failed at all is noted elsewhere
	}
	if f.Retryable != nil && *f.Retryable != want.retryable {
		v.differs("failure.retryable is %t, expected %t", *f.Retryable, want.retryable)
	}
	status := stateFailed
	if want.timedOut {
		status = "TIMED_OUT"
	}
	if f.JobStatus != status {
		v.differs("failure.jobStatus is %q, expected %s", f.JobStatus, status)
	}
	switch {
	case want.timedOut && f.Code != codeTimeout:
		v.differs("failure.code is %s, expected %s", f.Code, codeTimeout)
	case !want.timedOut && (f.Code == codeTimeout || f.Code == codeWorkerUnavailable):
		v.differs("the job failed for another reason than its own: %s (%s)", f.Code, f.Detail)
	}
}

// judgeResult looks at the description of the result where there is one.
func (v *visit) judgeResult(j jobView) {
	if j.State != stateSucceeded || j.Result == nil {
		return
	}
	if j.Result.SizeBytes == nil || *j.Result.SizeBytes != v.kind.payload {
		v.differs("result.size_bytes is %s, expected %d", showInt(j.Result.SizeBytes), v.kind.payload)
	}
	if len(j.Result.Checksum) == 0 || string(j.Result.Checksum) == "null" {
		v.differs("the result has no checksum")
	}
}

func (v *visit) judgeReport(t ticket, j jobView, r reportView) {
	if r.JobID != t.id {
		v.differs("the report is of job %q, expected %s", r.JobID, t.id)
	}
	if r.Outcome != outcomes[j.State] {
		v.differs("the report has outcome %s, the job is %s", orNone(r.Outcome), j.State)
	}
	if r.FinishedAt == nil || r.DurationMS == nil {
		v.differs("the report lacks finished_at or duration_ms")
		return
	}
	v.duration = time.Duration(*r.DurationMS) * time.Millisecond
	if r.StartedAt == nil {
		if v.duration != 0 || j.State != stateCanceled {
			v.differs("the report of the %s job has no started_at and a duration of %s", j.State, show(v.duration))
		}
		return
	}
	if r.StartedAt.Before(t.executionAt) {
		v.differs("the job started %s before its execution_at", show(t.executionAt.Sub(r.StartedAt.Time)))
	}
	took := r.FinishedAt.Sub(r.StartedAt.Time)
	if took < 0 {
		v.differs("the report has finished_at before started_at")
	}
	if off := took - v.duration; off < -time.Millisecond || off > time.Millisecond {
		v.differs("the report has duration_ms %d, but %s lie between started_at and finished_at", *r.DurationMS, show(took))
	}
	if v.scale == nil || j.State != stateSucceeded {
		return
	}
	// A tenth is left for rounding and for clocks that are being corrected.
	if least := time.Duration(float64(v.kind.duration) * *v.scale); v.duration < least-least/10-time.Millisecond {
		v.differs("the work took %s, at this time scale it must take %s", show(v.duration), show(least))
	}
}

// ending gives a finished job's end as the table shows it.
func ending(j jobView) string {
	f := j.Failure
	switch {
	case j.State != stateFailed || f == nil:
		return j.State
	case f.JobStatus == "TIMED_OUT":
		return "FAILED, timed out"
	case f.Retryable != nil && *f.Retryable:
		return "FAILED, retryable"
	default:
		return stateFailed
	}
}
