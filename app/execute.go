package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Handle looks at the job that a task names and, if it waits and is due,
// executes it. It returns nil once there is nothing left to do for the task:
// the outcome is committed, or the task turned out to be spent. An error means
// that storage could not be asked or written; the queue offers the task again.
//
// ctx is the queue's: it bounds the waiting for a slot and nothing else.
func (w *Worker) Handle(ctx context.Context, t job.Task) error {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.slots }()

	own := context.WithoutCancel(ctx)
	claim, err := w.claim(own, t)
	if err != nil || claim == nil {
		return err
	}
	return w.execute(own, claim)
}

// claimTries bounds how often a job that becomes due while it is being claimed
// is claimed again at once.
const claimTries = 3

func (w *Worker) claim(ctx context.Context, t job.Task) (*job.Claim, error) {
	for range claimTries {
		worker := w.identity()
		if worker.IsZero() {
			return nil, errBusy
		}
		claim, not, err := w.store.Claim(ctx, worker, t.JobID, t.Attempt)
		switch {
		case err != nil:
			return nil, err
		case claim != nil:
			return claim, nil
		case not.WorkerDead:
			return nil, job.ErrWorkerDead
		case !not.StillWaiting:
			w.metrics.tasksDropped.WithLabelValues("spent").Inc()
			return nil, nil
		case not.Wait > 0:
			return nil, w.postpone(ctx, job.Task{JobID: t.JobID, Attempt: t.Attempt, Dispatch: not.Dispatch})
		}
	}
	return nil, errBusy
}

// postpone dispatches a job anew for its time. This task's name is taken while
// it runs, so the job gets a new one.
func (w *Worker) postpone(ctx context.Context, t job.Task) error {
	tasks, err := w.store.Redispatch(ctx, []job.Task{t})
	for _, next := range tasks {
		w.queue.Enqueue(next)
	}
	return err
}

// execute runs a claimed job to its end.
func (w *Worker) execute(ctx context.Context, c *job.Claim) error {
	claimed, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, stop := context.WithCancelCause(claimed)
	defer stop(nil)
	w.hold(c.Lease, lose, stop)
	defer w.drop(c.Lease)
	logTransition(w.log, "assign", &c.Job, job.Queued, job.Assigned)
	w.metrics.queueWait.WithLabelValues(string(c.Job.WorkKind)).Observe(c.Job.UpdatedAt.Sub(c.Job.RunAt).Seconds())

	started, err := w.start(claimed, c)
	if err != nil || started.IsZero() {
		return err
	}
	logTransition(w.log, "run", &c.Job, job.Assigned, job.Running)
	w.metrics.entered(job.Running, c.Job.WorkKind)

	finish, ok := w.work(working, c)
	if !ok {
		return nil // the job is somebody else's now, or canceled: say nothing
	}
	return w.finish(claimed, c, finish)
}

// start moves the job to RUNNING; the zero time says that the claim is stale.
func (w *Worker) start(ctx context.Context, c *job.Claim) (time.Time, error) {
	for {
		started, err := w.store.Start(ctx, c.Lease)
		switch {
		case err == nil:
			return started, nil
		case errors.Is(err, job.ErrStale):
			w.fenced(c, "start")
			return time.Time{}, nil
		case !w.again(ctx, c, "start", err):
			return time.Time{}, err
		}
	}
}

// again waits before a write is repeated, and reports whether it may be:
// while the claim is held. A write whose answer was lost finds its own work
// done and comes back as stale: harmless, because nothing is decided on it
// that storage did not decide.
func (w *Worker) again(ctx context.Context, c *job.Claim, operation string, err error) bool {
	w.log.Warn("storage trouble while a job is held", "operation", operation, "job_id", c.JobID.String(), "error", err)
	return sleep(ctx, w.pause())
}

func (w *Worker) fenced(c *job.Claim, operation string) {
	w.metrics.fencedWrites.WithLabelValues(operation).Inc()
	w.log.Info("a late write changed nothing", "operation", operation, "job_id", c.JobID.String(), "attempt", c.Attempt, "fence", c.Fence)
}

// work runs the job and judges how it ended. ok is false when the holder has
// nothing to say: the job was canceled or taken away.
func (w *Worker) work(ctx context.Context, c *job.Claim) (finish job.Finish, ok bool) {
	if c.Job.Definition == nil {
		return w.failed(c, job.DefinitionInvalid), true
	}
	if err := c.Job.Definition.Validate(); err != nil {
		w.log.Error("job definition unusable", "job_id", c.JobID.String(), "error", err)
		return w.failed(c, job.DefinitionInvalid), true
	}
	limited, cancel := context.WithTimeoutCause(ctx, w.cfg.Limit, errTimeLimit)
	defer cancel()
	result, err := w.run(limited, c)
	var failure interface{ FailureReason() job.Reason }
	switch cause := context.Cause(limited); {
	case errors.Is(cause, errCanceled), errors.Is(cause, errLeaseLost):
		return job.Finish{}, false
	case err == nil && !complete(result, c.Job.Definition):
		return w.failed(c, job.OutputInvalid), true
	case err == nil:
		f := job.Finish{Lease: c.Lease, State: job.Succeeded, Result: result}
		if c.Job.Type == job.EmitEvent {
			f.Emit = c.Job.Definition.Emit
		}
		return f, true
	case errors.As(err, &failure):
		return w.failed(c, failure.FailureReason()), true
	case errors.Is(cause, errTimeLimit):
		return w.failed(c, job.TimedOut), true
	case errors.Is(cause, errShutdown):
		return w.failed(c, job.WorkerShutdown), true
	default:
		w.log.Error("job crashed", "job_id", c.JobID.String(), "error", err)
		return w.failed(c, job.WorkPanicked), true
	}
}

// run calls the runner; a panic of the work becomes an error.
func (w *Worker) run(ctx context.Context, c *job.Claim) (result *job.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.runner.Run(ctx, *c.Job.Definition, c.Attempt, nil)
}

// complete reports whether a result is what the definition promises.
func complete(r *job.Result, d *job.Definition) bool {
	return r != nil && r.MediaType != "" && len(r.Body) == d.PayloadSize && sha256.Sum256(r.Body) == r.SHA256
}

func (w *Worker) failed(c *job.Claim, reason job.Reason) job.Finish {
	return failedFinish(job.Held{
		Lease: c.Lease, WorkKind: c.Job.WorkKind, MaxAttempts: c.Job.MaxAttempts, AutoRetry: c.Job.AutoRetry,
	}, reason, w.cfg.Backoff)
}

// failedFinish ends an attempt as FAILED; with auto_retry a retryable failure
// queues the next attempt in the same commit.
func failedFinish(h job.Held, reason job.Reason, b job.Backoff) job.Finish {
	f := job.Finish{
		Lease: h.Lease, State: job.Failed, Failure: job.NewFailure(reason, h.Attempt, b),
		Exhausted: h.Attempt >= h.MaxAttempts,
	}
	if h.AutoRetry && f.Failure.Retryable && !f.Exhausted {
		wait := b.Wait(h.Attempt, rand.Float64())
		f.RetryWait = &wait
	}
	return f
}

// finish writes the outcome, as often as it takes while the claim is held.
func (w *Worker) finish(ctx context.Context, c *job.Claim, f job.Finish) error {
	for {
		done, err := w.store.Finish(ctx, f)
		switch {
		case err == nil:
			w.tell(c, f, done)
			return nil
		case errors.Is(err, job.ErrStale):
			w.fenced(c, "finish")
			return nil
		case !w.again(ctx, c, "finish", err):
			return err
		}
	}
}

// tell says what was committed: to the log, the metrics and the queue.
func (w *Worker) tell(c *job.Claim, f job.Finish, done job.Finished) {
	var more []slog.Attr
	if f.Failure != nil {
		more = append(more, slog.Int("attempt", f.Attempt), slog.String("error_code", string(f.Failure.Code)),
			slog.String("error_message", f.Failure.Detail), slog.String("reason", string(f.Failure.Reason)))
	}
	logTransition(w.log, "finish", &c.Job, job.Running, f.State, more...)
	w.metrics.entered(f.State, c.Job.WorkKind)
	w.metrics.execution.WithLabelValues(string(c.Job.WorkKind)).Observe(done.Duration.Seconds())
	if done.Next != nil {
		logTransition(w.log, "auto_retry", &c.Job, job.Failed, job.Queued)
		w.metrics.retried.WithLabelValues("auto").Inc()
		w.queue.Enqueue(*done.Next)
	}
}
