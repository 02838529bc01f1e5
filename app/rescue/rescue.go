// Package rescue requeues or fails jobs of dead workers.
package rescue

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Rescuer releases assigned jobs that no worker runs any more. ASSIGNED jobs are queued again, and RUNNING jobs fail (API contract,
// section 14). Rescuer does not know which jobs have a callback, so it calls Queue.Deliver for every job.
type Rescuer struct {
	Store     *repo.Store
	Queue     app.Queue
	Completer *batches.Completer
	Backoff   job.Backoff
	Metrics   *app.Metrics
	Tracer    trace.Tracer
	Log       *slog.Logger
	OfDead    bool // true if the workers' leases have expired; false if a live worker returns jobs
}

// rescueConcurrency is the maximum number of failures that are stored at the same time. One statement can store several failures.
const rescueConcurrency = 64

// GiveBack releases as many jobs as it can, logs the others, and returns the first error.
func (r *Rescuer) GiveBack(ctx context.Context, held []job.Held) error {
	var group errgroup.Group
	group.SetLimit(rescueConcurrency)
	var claimed []job.Held
	for _, h := range held {
		if h.State == job.Assigned {
			claimed = append(claimed, h)
			continue
		}
		group.Go(func() error { return r.fail(ctx, h) })
	}
	if len(claimed) > 0 {
		group.Go(func() error { return r.requeue(ctx, claimed) })
	}
	return group.Wait()
}

// wait returns how long a job must wait before the next claim. The wait is a backoff if earlier workers of the job have died, and
// otherwise 0. Without the backoff, a job that crashes its worker would soon crash all workers.
func (r *Rescuer) wait(h job.Held) time.Duration {
	if h.LeaseExpiries == 0 {
		return 0
	}
	return r.Backoff.Ceiling(h.LeaseExpiries)
}

func (r *Rescuer) requeue(ctx context.Context, claimed []job.Held) error {
	claims := make([]job.ClaimID, len(claimed))
	waits := make([]time.Duration, len(claimed))
	holds := make(map[job.ID]job.Held, len(claimed))
	for i, h := range claimed {
		claims[i], waits[i], holds[h.JobID] = h.ClaimID, r.wait(h), h
	}
	began := time.Now()
	tasks, err := r.Store.Release(ctx, claims, waits)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot requeue jobs of a lost worker", "action", "requeue", "jobs", len(claimed), app.ErrorFields(err))
		return err
	}
	for _, t := range tasks {
		r.reportRequeued(ctx, holds[t.JobID], t, began)
	}
	return nil
}

// Each job gets its own span, although one statement has requeued all jobs.
func (r *Rescuer) reportRequeued(ctx context.Context, h job.Held, t job.Task, began time.Time) {
	ctx, span := r.begin(ctx, h, trace.WithTimestamp(began))
	defer app.EndSpan(span, h.JobID, job.Queued, nil)
	r.Metrics.Repaired.WithLabelValues("rescuer_requeued").Inc()
	r.expired(job.Assigned)
	r.Metrics.Entered(job.Queued, h.WorkKind)
	app.LogTransition(ctx, r.Log, "requeue", jobOf(h), job.Assigned, job.Queued, slog.Int("attempt", h.Attempt))
	r.Queue.Publish(job.Notification{ClientID: h.ClientID, JobID: h.JobID})
	r.Queue.Deliver(h.ClientID, h.JobID)
	app.Enqueue(ctx, r.Queue, t)
}

func (r *Rescuer) expired(s job.State) {
	if r.OfDead {
		r.Metrics.LeasesExpired.WithLabelValues(string(s)).Inc()
	}
}

func (r *Rescuer) begin(ctx context.Context, h job.Held, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := telemetry.Continue(ctx, r.Tracer, h.TraceParent, telemetry.SpanRescue, options...)
	app.Describe(span, jobOf(h), h.Attempt)
	return ctx, span
}

func (r *Rescuer) fail(ctx context.Context, h job.Held) (err error) {
	var state job.State
	ctx, span := r.begin(ctx, h)
	defer func() { app.EndSpan(span, h.JobID, state, err) }()
	f := h.Fail(job.WorkerLost, r.Backoff, rand.Float64())
	done, err := r.Store.Finish(ctx, f)
	if errors.Is(err, job.ErrStale) {
		return nil // the job ended or was released in the meantime
	}
	if err != nil {
		r.Log.WarnContext(ctx, "cannot record that a job of a lost worker failed", "action", "fail", "request_id", h.RequestID,
			"client_id", h.ClientID.String(), "job_id", h.JobID.String(), "attempt", h.Attempt, app.ErrorFields(err))
		return err
	}
	state = done.State
	r.Metrics.Repaired.WithLabelValues("rescuer_failed").Inc()
	r.expired(job.Running)
	app.ReportFinished(ctx, r.Queue, r.Metrics, r.Log, "fail", jobOf(h), f, done)
	r.Queue.Deliver(h.ClientID, h.JobID)
	if done.Next == nil {
		r.Completer.Touch(done.BatchID)
	}
	return nil
}

func jobOf(h job.Held) *job.Job {
	return &job.Job{ID: h.JobID, ClientID: h.ClientID, RequestID: h.RequestID, CorrelationID: h.CorrelationID, WorkKind: h.WorkKind}
}
