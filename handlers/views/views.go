// Package views converts domain types to response types. It has the conversions that several resources need.
package views

import (
	"encoding/hex"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Views converts jobs and events for clients.
type Views struct {
	Links     job.Links
	TimeScale float64       // factor for the run time of jobs; used for estimates
	Retention time.Duration // how long a final job is kept; 0: expires_at is omitted
}

// JobPath returns the path of a job.
func JobPath(id job.ID) string { return "/v1/jobs/" + id.String() }

// ResultPath returns the path of a job's result.
func ResultPath(id job.ID) string { return JobPath(id) + "/result" }

// Summary returns a job as an entry of a list.
func (s Views) Summary(j *job.Job) api.JobSummary {
	return api.JobSummary{JobMembers: membersOf(j), Links: api.SelfLink{Self: s.Links.At(JobPath(j.ID))}}
}

func membersOf(j *job.Job) api.JobMembers {
	v := api.JobMembers{
		JobID: j.ID, Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: view.OrNull(j.Outcome),
		CreatedAt: job.Time(j.CreatedAt), ExecutionAt: job.TimeOf(j.ExecutionAt), UpdatedAt: job.Time(j.UpdatedAt),
		StartedAt: job.TimeOf(j.StartedAt), FinishedAt: job.TimeOf(j.FinishedAt),
		Attempt: j.Attempt, Attempts: j.Attempt, MaxAttempts: j.MaxAttempts, CanRetry: j.CanRetry(),
		BatchID: view.OrNull(j.BatchID), CorrelationID: view.OrNull(j.CorrelationID),
		ScheduleID: view.OrNull(j.ScheduleID), ScheduledFor: job.TimeOf(j.ScheduledFor),
	}
	if j.State == job.Canceled {
		v.CanceledAt = v.FinishedAt
	}
	return v
}

// Job returns the full view of a job.
func (s Views) Job(j *job.Job, now time.Time) *api.Job {
	v := &api.Job{
		JobMembers: membersOf(j), AutoRetry: j.AutoRetry, Retry: Policy(j.Definition.Policy()), Callback: view.OrNull(j.Callback),
		EstimatedCompletion: job.TimeOf(j.EstimatedCompletion(s.TimeScale)), ExpiresAt: s.expiryOf(j),
		Params: j.Params, Links: s.linksOf(j, now), Waiting: waitingOf(j),
	}
	if d := j.Definition; d != nil {
		v.Definition = &api.Definition{
			WorkKind: d.WorkKind, DurationMS: int(d.DurationMS), ShouldFail: d.ShouldFail, PayloadSize: d.PayloadSize,
			ExpectedOutcome: d.ExpectedOutcome,
		}
	}
	switch j.State {
	case job.Running:
		v.Progress = j.Progress
	case job.Failed:
		v.Failure = new(s.Links.Document(j.Origin(), j.CurrentAttempt()))
	case job.Succeeded:
		v.Result = s.resultOf(j, now)
	}
	return v
}

func waitingOf(j *job.Job) *api.Waiting {
	if j.Waiting == "" || !j.State.Waiting() {
		return nil
	}
	v := &api.Waiting{Reason: j.Waiting}
	if j.Waiting == job.WaitingScheduled || j.Waiting == job.WaitingBackoff {
		v.Until = job.TimeOf(&j.RunAt)
	}
	return v
}

func (s Views) expiryOf(j *job.Job) *job.Time {
	if !j.State.Final() || j.FinishedAt == nil || s.Retention <= 0 {
		return nil
	}
	return job.TimeOf(new(j.FinishedAt.Add(s.Retention)))
}

func (s Views) linksOf(j *job.Job, now time.Time) api.JobLinks {
	self := s.Links.At(JobPath(j.ID))
	links := api.JobLinks{Self: self, Events: self + "/events", Attempts: self + "/attempts", Deliveries: self + "/deliveries"}
	if !j.State.Final() {
		links.Cancel = new(self + "/cancel")
	}
	if j.CanRetry() {
		links.Retry = new(self + "/retry")
	}
	if j.State.Final() || j.Attempt > 1 {
		links.Report = new(self + "/report")
	}
	if HasResult(j, now) {
		links.Result = new(self + "/result")
	}
	if !j.BatchID.IsZero() {
		links.Batch = new(s.Links.At(job.BatchPath(j.BatchID)))
	}
	if !j.ScheduleID.IsZero() {
		links.Schedule = new(s.Links.At(job.SchedulePath(j.ScheduleID)))
	}
	return links
}

// Changed returns the result of a requested change of state.
func Changed(c job.Change) api.JobChange {
	return api.JobChange{JobID: c.JobID, State: c.State, UpdatedAt: job.Time(c.UpdatedAt), Changed: c.Changed}
}

// Retried returns the result of a requested retry.
func Retried(c job.Change) any {
	return struct {
		api.JobChange
		Attempt int `json:"attempt"`
	}{Changed(c), c.Attempt}
}

// BulkReceipt returns the response to the start of a bulk operation.
func BulkReceipt(b *job.Bulk) api.BulkReceipt {
	return api.BulkReceipt{BulkID: b.ID, State: b.State(), CreatedAt: job.Time(b.CreatedAt)}
}

// BulkItem returns what a bulk operation did to one job.
func BulkItem(i job.BulkItem) api.BulkItem {
	return api.BulkItem{JobID: i.JobID, Result: i.Result, Code: view.OrNull(i.Code), Detail: view.OrNull(i.Detail), At: job.TimeOf(i.At)}
}

// Policy returns the view of a retry policy; nil if there is none.
func Policy(p *job.RetryPolicy) *api.RetryPolicy {
	if p == nil {
		return nil
	}
	return &api.RetryPolicy{MaxAttempts: view.OrNull(p.MaxAttempts), Backoff: backoffOf(p), Codes: p.Codes}
}

func backoffOf(p *job.RetryPolicy) *api.Backoff {
	if len(p.Delays) == 0 {
		return nil
	}
	v := &api.Backoff{Strategy: new(string(p.Strategy))}
	switch p.Strategy {
	case job.Exponential:
		v.Base, v.Max = new(p.Delays[0].String()), new(p.Delays[len(p.Delays)-1].String())
	case job.Constant:
		v.Delay = new(p.Delays[0].String())
	case job.Listed:
		for _, d := range p.Delays {
			v.Delays = append(v.Delays, d.String())
		}
	}
	return v
}

// Event returns the view of a job's event.
func Event(e job.Event) api.Event {
	v := api.Event{
		EventID: e.ID, EventName: e.Name, PrevState: view.OrNull(e.Prev), NextState: view.OrNull(e.Next),
		Timestamp: job.Time(e.At), Data: e.Data,
	}
	if !e.JobID.IsZero() {
		v.JobID, v.Seq, v.Attempt = &e.JobID, &e.Seq, &e.Attempt
	}
	return v
}

// Occurrence returns the view of any event of a client. Events of batches and webhooks have no job.
func Occurrence(o job.Occurrence) api.Event {
	v := Event(o.Event)
	v.WebhookID = view.OrNull(o.Webhook)
	if o.Batch != nil {
		v.BatchID = &o.Batch.ID
	}
	return v
}

// MediaOf returns the media type of an outcome document (async-problem-details, section 11.7).
func MediaOf(d job.Document) string {
	if d.IsProblem() {
		return problem.Media
	}
	return "application/json"
}

func (s Views) resultOf(j *job.Job, now time.Time) *api.Result {
	r := j.Result
	switch {
	case r == nil:
		return nil
	case r.Expired(now):
		return &api.Result{State: new("EXPIRED"), ExpiredAt: job.TimeOf(&r.ExpiresAt)}
	}
	return &api.Result{
		State: new("AVAILABLE"), MediaType: &r.MediaType, SizeBytes: &r.Size,
		Checksum:  &api.Checksum{Algorithm: "sha256", Value: hex.EncodeToString(r.SHA256[:])},
		ExpiresAt: job.TimeOf(&r.ExpiresAt), DownloadURL: new(s.Links.At(ResultPath(j.ID))),
	}
}

// HasResult reports whether a job has a result that can be read now.
func HasResult(j *job.Job, now time.Time) bool {
	return j.State == job.Succeeded && j.Result != nil && !j.Result.Expired(now)
}
