package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// execute runs a claimed job to its end. When it cannot bring it there, the
// claim was lost, and the job is its new holder's or the rescuer's.
//
// What it returns is for the queue: nil, that the attempt failed, or that none was
// begun.
func (w *Worker) execute(ctx context.Context, worker job.ID, c *job.Claim) error {
	claimed, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, stop := context.WithCancelCause(claimed)
	defer stop(nil)
	held := w.hold(worker, c.ClaimID, lose, stop)
	w.reportAssigned(ctx, worker, c)
	if !held {
		w.log.InfoContext(ctx, "a claimed job is not run", append(about(c, "run"), "worker_id", worker.String())...)
		return job.ErrTaskStale
	}
	defer w.drop(c.ClaimID)
	if w.refuses(c.Job.WorkKind) { // its task did not name the kind, or the refusal is new
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
	// Somebody else ended the attempt, or will. Its progress is known here alone.
	w.queue.Publish(job.Notification{ClientID: c.Job.ClientID, JobID: c.JobID, Attempt: c.Attempt, Ended: true})
	return nil
}

// taskEnd says how the task of an attempt ended.
func taskEnd(f job.Finish) error {
	if f.Failure == nil {
		return nil
	}
	return &job.TaskFailed{Text: string(f.Failure.Code) + ": " + f.Failure.Detail}
}

// reportAssigned logs, counts and publishes what a claim has committed.
func (w *Worker) reportAssigned(ctx context.Context, worker job.ID, c *job.Claim) {
	attrs := []slog.Attr{slog.Int("attempt", c.Attempt), slog.String("worker_id", worker.String())}
	if c.WasCreated {
		app.LogTransition(ctx, w.log, "schedule", &c.Job, job.Created, job.Queued, attrs...)
	}
	app.LogTransition(ctx, w.log, "assign", &c.Job, job.Queued, job.Assigned, attrs...)
	app.Publish(w.queue, &c.Job, app.NotificationOf(&c.Job))
	w.metrics.Claimed(ctx, c)
}

// start moves the job to RUNNING, before its work begins, as often as it takes
// while the claim is held, and reports whether it did. Without it the job is not
// this worker's to run: it was canceled, or the lease has ended.
func (w *Worker) start(ctx context.Context, c *job.Claim) bool {
	for ctx.Err() == nil {
		at, err := w.store.Start(ctx, c.ClaimID)
		switch {
		case err == nil:
			c.Job.StartedAt = &at
			w.reportStarted(ctx, c, at)
			return true
		case errors.Is(err, job.ErrStale):
			w.fenced(ctx, c, "start")
			return false
		case !w.again(ctx, c, "start", err):
			return false
		}
	}
	return false
}

// reportStarted logs, counts and publishes what a start has committed.
func (w *Worker) reportStarted(ctx context.Context, c *job.Claim, at time.Time) {
	app.LogTransition(ctx, w.log, "run", &c.Job, job.Assigned, job.Running, slog.Int("attempt", c.Attempt))
	app.Publish(w.queue, &c.Job, app.NotificationOf(&c.Job))
	w.metrics.Started(ctx, c, at)
}

// again waits before a write is repeated, and reports whether it may be:
// while the claim is held. A write whose answer was lost finds its own work
// done and comes back as stale: harmless, because nothing is decided on it
// that storage did not decide.
func (w *Worker) again(ctx context.Context, c *job.Claim, operation string, err error) bool {
	if ctx.Err() == nil {
		w.log.WarnContext(ctx, "storage trouble while a job is held", append(about(c, operation), app.ErrorFields(err))...)
		app.Sleep(ctx, w.pause())
	}
	if ctx.Err() != nil {
		w.log.InfoContext(ctx, "a job is let go of", append(about(c, operation), "reason", context.Cause(ctx).Error())...)
		return false
	}
	return true
}

func (w *Worker) fenced(ctx context.Context, c *job.Claim, operation string) {
	w.metrics.FencedWrites.WithLabelValues(operation).Inc()
	w.log.InfoContext(ctx, "a late write changed nothing", append(about(c, operation), "fence", c.Fence)...)
}

// about names a held job in a log line (section 16).
func about(c *job.Claim, action string) []any {
	return []any{"action", action, "request_id", c.Job.RequestID, "client_id", c.Job.ClientID.String(),
		"job_id", c.JobID.String(), "attempt", c.Attempt}
}

// work starts the job and runs it, in a span of its own, and judges how it ended.
// ok is false when the holder has nothing to say: the job did not start, was
// canceled or taken away.
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
		w.log.ErrorContext(ctx, "job definition unusable", append(about(c, "run"), app.ErrorFields(err))...)
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
	case errors.Is(cause, errTimeLimit), errors.Is(err, errTimeLimit): // however it ended: the limit is hard (section 17)
		return w.failed(c, job.TimedOut), true
	case err == nil && !complete(result, d):
		w.log.ErrorContext(ctx, "job output unusable", append(about(c, "finish"), app.ErrorFields(errIncomplete))...)
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
		w.log.ErrorContext(ctx, "job crashed", append(about(c, "finish"), app.ErrorFields(err))...)
		return w.failed(c, job.WorkPanicked), true
	}
}

// usable checks a definition that was read back: nothing runs on defaults
// (section 14).
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

// run calls the runner; a panic of the work becomes an error.
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
	return w.runner.Run(ctx, *c.Job.Definition, c.Attempt, on)
}

// emit records an event of the work's own, as often as it takes while the claim is
// held, and tells those who wait for events.
func (w *Worker) emit(ctx context.Context, c *job.Claim, before int, e job.Emission) error {
	for {
		err := w.store.Emit(ctx, c.ClaimID, before, e)
		switch {
		case err == nil:
			app.Publish(w.queue, &c.Job, app.NotificationOf(&c.Job))
			return nil
		case errors.Is(err, job.ErrStale):
			w.fenced(ctx, c, "emit")
			return err
		case app.Refused(err):
			return err
		case !w.again(ctx, c, "emit", err):
			return cmp.Or(context.Cause(ctx), err)
		}
	}
}

// reporter publishes how far an attempt has come: never backwards, and nothing
// once the work was stopped or end was called.
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
		w.queue.Publish(job.Notification{ClientID: c.Job.ClientID, JobID: c.JobID, Attempt: c.Attempt, Progress: &p})
	}
	return report, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// complete reports whether a result is what the definition promises.
func complete(r *job.Result, d *job.Definition) bool {
	return r != nil && r.MediaType != "" && len(r.Body) == d.PayloadSize && sha256.Sum256(r.Body) == r.SHA256
}

func (w *Worker) failed(c *job.Claim, reason job.Reason) job.Finish {
	held := job.Held{
		ClaimID: c.ClaimID, WorkKind: c.Job.WorkKind, MaxAttempts: c.Job.MaxAttempts, AutoRetry: c.Job.AutoRetry,
		Retry: c.Job.Definition.Policy(),
	}
	if p := plannedFailure(c); reason == job.CustomFailed && p != nil {
		return held.FailAsPlanned(p, w.cfg.Backoff, rand.Float64())
	}
	return held.Fail(reason, w.cfg.Backoff, rand.Float64())
}

// plannedFailure is the failure that the request for a CUSTOM job plans for the attempt, nil for none.
func plannedFailure(c *job.Claim) *job.PlannedFailure {
	if c.Job.Definition == nil {
		return nil
	}
	return c.Job.Definition.Behavior.FailureOf(c.Attempt)
}

// finish writes the outcome, as often as it takes while the claim is held, and
// answers with nil if it did. A success that cannot be stored is a failure
// (section 14): repeating it would keep the job RUNNING for good; f is then that
// failure.
func (w *Worker) finish(ctx context.Context, c *job.Claim, f *job.Finish) (err error) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanReport)
	app.Describe(span, &c.Job, c.Attempt)
	var state job.State // unknown unless it was written here
	defer func() { app.EndSpan(span, c.JobID, state, err) }()
	for {
		done, err := w.store.Finish(ctx, *f)
		switch {
		case err == nil:
			state = f.State
			w.reportFinished(ctx, c, *f, done)
			return nil
		case errors.Is(err, job.ErrStale):
			w.fenced(ctx, c, "finish")
			return err
		case f.State == job.Succeeded && app.Refused(err):
			w.log.ErrorContext(ctx, "job outcome cannot be stored", append(about(c, "finish"), app.ErrorFields(err))...)
			*f = w.failed(c, job.OutputInvalid)
		case !w.again(ctx, c, "finish", err):
			return err
		}
	}
}

// reportFinished logs, counts and publishes what was committed, and enqueues an
// automatic retry.
func (w *Worker) reportFinished(ctx context.Context, c *job.Claim, f job.Finish, done job.Finished) {
	app.LogTransition(ctx, w.log, "finish", &c.Job, job.Running, f.State, append(app.FailureAttrs(f.Failure),
		slog.Int("attempt", f.Attempt))...)
	w.metrics.Finished(ctx, f, c.Job.WorkKind, done)
	app.Publish(w.queue, &c.Job, done.Notification())
	for _, t := range done.Resumed {
		w.queue.Enqueue(t)
	}
	if done.Next != nil {
		app.LogTransition(ctx, w.log, "auto_retry", &c.Job, job.Failed, job.Queued, slog.Int("attempt", done.Next.Attempt))
		next := *done.Next
		next.ClientID, next.WorkKind, next.Reason = c.Job.ClientID, c.Job.WorkKind, f.Failure.Reason
		app.Enqueue(ctx, w.queue, next)
		return
	}
	w.completer.Touch(done.BatchID)
}
