package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// execute runs a claimed job to its end. If the claim is lost, it stops, because another process is then responsible for the job.
//
// It returns job.TaskFailed for a failed attempt, and job.ErrTaskStale if the attempt did not start. In all other cases, it returns nil.
func (w *Worker) execute(ctx context.Context, worker job.ID, c *job.Claim) error {
	claimed, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, stop := context.WithCancelCause(claimed)
	defer stop(nil)
	held := w.hold(worker, c.ClaimID, lose, stop)
	w.reportAssigned(ctx, worker, c)
	if !held {
		w.Log.InfoContext(ctx, "skipping a claimed job", append(about(c, "run"), "worker_id", worker.String())...)
		return job.ErrTaskStale
	}
	defer w.drop(c.ClaimID)
	if w.refuses(c.Job.WorkKind) { // check again: the task may lack the kind, or the kind was refused after Handle's check
		w.giveBack(ctx, worker, []job.ClaimID{c.ClaimID})
		return job.ErrTaskStale
	}
	finish, started, ok := w.work(working, c)
	switch {
	case !started:
		if errors.Is(context.Cause(working), errShutdown) {
			w.giveBack(ctx, worker, []job.ClaimID{c.ClaimID})
		}
		return job.ErrTaskStale
	case ok && w.finish(claimed, c, &finish) == nil:
		return taskEnd(finish)
	}
	// Another process stores the end of the attempt. This worker still announces the end, because its published progress is now outdated.
	w.Queue.Publish(job.Notification{ClientID: c.Job.ClientID, JobID: c.JobID, Attempt: c.Attempt, Ended: true})
	return nil
}

func (w *Worker) reportAssigned(ctx context.Context, worker job.ID, c *job.Claim) {
	attrs := []slog.Attr{slog.Int("attempt", c.Attempt), slog.String("worker_id", worker.String())}
	if c.WasCreated {
		app.LogTransition(ctx, w.Log, "schedule", &c.Job, job.Created, job.Queued, attrs...)
	}
	app.LogTransition(ctx, w.Log, "assign", &c.Job, job.Queued, job.Assigned, attrs...)
	app.Publish(w.Queue, &c.Job, app.NotificationOf(&c.Job))
	w.Metrics.Claimed(ctx, c)
}

// start stores that the job runs. It returns false if the job was canceled or the lease has ended.
func (w *Worker) start(ctx context.Context, c *job.Claim) bool {
	var at time.Time
	err := w.write(ctx, c, "start", nil, func() (err error) {
		at, err = w.Store.Start(context.WithoutCancel(ctx), c.ClaimID) // not canceled: a canceled Start could still be committed
		return err
	})
	if err != nil {
		return false
	}
	c.Job.StartedAt = &at
	app.LogTransition(ctx, w.Log, "run", &c.Job, job.Assigned, job.Running, slog.Int("attempt", c.Attempt))
	app.Publish(w.Queue, &c.Job, app.NotificationOf(&c.Job))
	w.Metrics.Started(ctx, c, at)
	return true
}

func about(c *job.Claim, action string) []any {
	return []any{"action", action, "request_id", c.Job.RequestID, "client_id", c.Job.ClientID.String(),
		"job_id", c.JobID.String(), "attempt", c.Attempt}
}

// `ok` is false if the job did not start, was canceled, or lost its lease.
func (w *Worker) work(ctx context.Context, c *job.Claim) (finish job.Finish, started, ok bool) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanRun)
	app.Describe(span, &c.Job, c.Attempt)
	defer func() { endRun(span, finish, context.Cause(ctx)) }()
	if !w.start(ctx, c) {
		return finish, false, false
	}
	finish, ok = w.outcome(ctx, c)
	return finish, true, ok
}

func (w *Worker) outcome(ctx context.Context, c *job.Claim) (finish job.Finish, ok bool) {
	d := c.Job.Definition
	if err := usable(d, c.Job.Type); err != nil {
		w.Log.ErrorContext(ctx, "job definition unusable", append(about(c, "run"), app.ErrorFields(err))...)
		return w.failed(c, job.DefinitionInvalid), true
	}
	limited, timeline, cancel := w.limited(ctx, c)
	defer cancel()
	result, err := w.run(limited, c, timeline)
	defer func() { finish.EndedAt = timeline.ended(err) }()
	var failure interface{ FailureReason() job.Reason }
	switch cause := context.Cause(limited); {
	case errors.Is(cause, errCanceled), errors.Is(cause, errLeaseLost), errors.Is(err, job.ErrStale):
		return job.Finish{}, false
	case errors.As(err, &failure):
		return w.failed(c, failure.FailureReason()), true
	case errors.Is(cause, errTimeLimit), errors.Is(err, errTimeLimit): // success after the limit does not count (API contract, section 17)
		return w.failed(c, job.TimedOut), true
	case err == nil && !complete(result, d):
		w.Log.ErrorContext(ctx, "job output unusable", append(about(c, "finish"), app.ErrorFields(errIncomplete))...)
		return w.failed(c, job.OutputInvalid), true
	case err == nil:
		f := job.Finish{ClaimID: c.ClaimID, State: job.Succeeded, Result: result}
		if c.Job.Type == job.EmitEvent {
			f.Emit = d.Emit
		}
		return f, true
	case errors.Is(cause, errShutdown):
		return w.failed(c, job.WorkerShutdown), true
	case errors.Is(err, job.ErrExhausted):
		w.refuseKind(ctx, c.Job.WorkKind, err)
		return w.failed(c, job.WorkerExhausted), true
	case errors.Is(err, job.ErrBadDefinition):
		return w.failed(c, job.DefinitionInvalid), true
	default:
		w.Log.ErrorContext(ctx, "job crashed", append(about(c, "finish"), app.ErrorFields(err))...)
		return w.failed(c, job.WorkPanicked), true
	}
}

// usable checks a stored definition. A missing value is an error, never replaced by a default (API contract, section 14).
func usable(d *job.Definition, t job.Type) error {
	switch {
	case d == nil:
		return job.ErrBadDefinition
	case t == job.EmitEvent && d.Emit == nil:
		return fmt.Errorf("%w: no event to emit", job.ErrBadDefinition)
	}
	return d.Validate()
}

var errIncomplete = errors.New("the work ended without a complete result")

func (w *Worker) run(ctx context.Context, c *job.Claim, timeline *timeline) (result *job.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	report, end := w.reporter(ctx, c)
	defer end()
	on := job.Observer{Progress: report, Emit: func(before int, e job.Emission) error {
		e.At = timeline.latest()
		return w.emit(ctx, c, before, e)
	}}
	if timeline != nil {
		on.Clock = timeline
	}
	return w.Runner.Run(ctx, *c.Job.Definition, c.Attempt, on)
}

func (w *Worker) emit(ctx context.Context, c *job.Claim, before int, e job.Emission) error {
	err := w.write(ctx, c, "emit", app.Refused, func() error { return w.Store.Emit(ctx, c.ClaimID, before, e) })
	if err == nil {
		app.Publish(w.Queue, &c.Job, app.NotificationOf(&c.Job))
	}
	return err
}

// reporter publishes the progress of an attempt. It drops progress that decreases, or that comes after the attempt's end.
func (w *Worker) reporter(ctx context.Context, c *job.Claim) (report func(job.Progress), end func()) {
	var mu sync.Mutex
	over, reached := false, 0
	report = func(p job.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if over || ctx.Err() != nil || p.Percentage < reached {
			return
		}
		reached = p.Percentage
		w.Queue.Publish(job.Notification{ClientID: c.Job.ClientID, JobID: c.JobID, Attempt: c.Attempt, Progress: &p})
	}
	return report, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

func complete(r *job.Result, d *job.Definition) bool {
	return r != nil && r.MediaType != "" && len(r.Body) == d.PayloadSize && sha256.Sum256(r.Body) == r.SHA256
}
