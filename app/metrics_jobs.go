package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

type jobMetrics struct {
	Submitted, Queued, Running, Succeeded, Failed, Canceled *prometheus.CounterVec
	Retried, RetryOutcomes                                  *prometheus.CounterVec
	BulkItems                                               *prometheus.CounterVec
	queueWait, execution                                    *prometheus.HistogramVec
	lateness, queued, assigned                              prometheus.Histogram
}

var ends = []string{string(job.Succeeded), string(job.Failed), string(job.Canceled)}

func newJobMetrics(in telemetry.Factory) jobMetrics {
	kinds := make([]string, 0, len(job.Kinds()))
	for _, k := range job.Kinds() {
		kinds = append(kinds, string(k))
	}
	kind := []string{"work_kind"}
	m := jobMetrics{
		Submitted: in.Counters("jobs_submitted_total", "Jobs accepted.", kind, kinds...),
		Queued:    in.Counters("jobs_queued_total", "Times that a job entered QUEUED.", kind, kinds...),
		Running:   in.Counters("jobs_running_total", "Times that a job entered RUNNING.", kind, kinds...),
		Succeeded: in.Counters("jobs_succeeded_total", "Jobs that succeeded.", kind, kinds...),
		Failed:    in.Counters("jobs_failed_total", "Attempts that failed.", []string{"work_kind", "error_code"}),
		Canceled:  in.Counters("jobs_canceled_total", "Jobs that were canceled.", kind, kinds...),
		Retried:   in.Counters("job_retries_total", "Retries queued, by who requested them.", []string{"by"}, "client", "auto"),
		RetryOutcomes: in.Counters("job_retry_outcomes_total", "Retries (attempts after the first) that ended, by outcome.",
			[]string{"outcome"}, ends...),
		BulkItems: in.Counters("bulk_items_total", "Jobs handled by bulk operations.", []string{"action", "result"}),
		queueWait: in.Histograms("job_queue_wait_seconds", "Time from a job's due time until its claim.", telemetry.Long, kind, kinds...),
		execution: in.Histograms("job_execution_seconds", "Time from RUNNING to the attempt's end.", telemetry.Long,
			[]string{"work_kind", "outcome"}),
		queued:   in.Histogram("job_queued_seconds", "Time that a job spent in QUEUED, including a retry's backoff.", telemetry.Long),
		assigned: in.Histogram("job_assigned_seconds", "Time from ASSIGNED to RUNNING.", telemetry.Quick),
		lateness: in.Histogram("job_schedule_lateness_seconds", "Time from a job's execution_at until it was QUEUED.", telemetry.Quick),
	}
	for _, k := range job.Kinds() {
		m.Failed.WithLabelValues(string(k), string(usualFailure(k)))
		for _, end := range ends {
			m.execution.WithLabelValues(string(k), end)
		}
	}
	for _, action := range job.BulkActions {
		for _, result := range job.BulkResults[1:] {
			m.BulkItems.WithLabelValues(string(action), string(result))
		}
	}
	return m
}

// usualFailure returns the code of a failed first attempt of a kind. For kinds that never fail by themselves, it returns the code of a
// dead worker.
func usualFailure(k job.Kind) job.Code {
	if reason, fails := k.FailsOn(1); fails {
		return reason.Spec().Code
	}
	return job.CodeWorkerUnavailable
}

// Entered counts a job's entry into QUEUED or RUNNING.
func (m *jobMetrics) Entered(s job.State, k job.Kind) {
	switch s {
	case job.Queued:
		m.Queued.WithLabelValues(string(k)).Inc()
	case job.Running:
		m.Running.WithLabelValues(string(k)).Inc()
	case job.Created, job.Assigned, job.Succeeded, job.Failed, job.Canceled:
	}
}

// Scheduled counts a job that became due and was queued or claimed. It also records how late the job was.
func (m *jobMetrics) Scheduled(ctx context.Context, j *job.Job) {
	m.Entered(job.Queued, j.WorkKind)
	if j.ExecutionAt != nil && !j.UpdatedAt.IsZero() {
		telemetry.Observe(ctx, m.lateness, max(0, j.UpdatedAt.Sub(*j.ExecutionAt)))
	}
}

// Claimed records how long a claimed job has waited.
func (m *jobMetrics) Claimed(ctx context.Context, c *job.Claim) {
	if c.WasCreated {
		m.Scheduled(ctx, &c.Job)
	}
	telemetry.Observe(ctx, m.queueWait.WithLabelValues(string(c.Job.WorkKind)), c.Job.UpdatedAt.Sub(c.Job.RunAt))
	telemetry.Observe(ctx, m.queued, c.Job.UpdatedAt.Sub(c.QueuedAt))
}

// Started counts the start of a claimed job.
func (m *jobMetrics) Started(ctx context.Context, c *job.Claim, at time.Time) {
	m.Entered(job.Running, c.Job.WorkKind)
	telemetry.Observe(ctx, m.assigned, at.Sub(c.Job.UpdatedAt))
}

// Finished counts the end of an attempt, and its automatic retry.
func (m *jobMetrics) Finished(ctx context.Context, f job.Finish, k job.Kind, done job.Finished) {
	if f.State == job.Failed {
		m.Failed.WithLabelValues(string(k), string(f.Failure.Code)).Inc()
	} else {
		m.Succeeded.WithLabelValues(string(k)).Inc()
	}
	m.ran(ctx, k, f.State, done.Duration)
	m.ended(f.Attempt, f.State)
	if done.Next != nil {
		m.Entered(job.Queued, k)
		m.Retried.WithLabelValues("auto").Inc()
	}
}

// WasCanceled counts a canceled job. `before` is the job before the cancel.
func (m *jobMetrics) WasCanceled(ctx context.Context, before *job.Job, c job.Change) {
	m.Canceled.WithLabelValues(string(before.WorkKind)).Inc()
	if before.State == job.Running && before.StartedAt != nil {
		m.ran(ctx, before.WorkKind, job.Canceled, max(0, c.UpdatedAt.Sub(*before.StartedAt)))
	}
	m.ended(c.Attempt, job.Canceled)
}

func (m *jobMetrics) ran(ctx context.Context, k job.Kind, outcome job.State, d time.Duration) {
	telemetry.Observe(ctx, m.execution.WithLabelValues(string(k), string(outcome)), d)
}

func (m *jobMetrics) ended(attempt int, outcome job.State) {
	if attempt > 1 {
		m.RetryOutcomes.WithLabelValues(string(outcome)).Inc()
	}
}
