package worker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func (w *Worker) failed(c *job.Claim, reason job.Reason) job.Finish {
	held := job.Held{
		ClaimID: c.ClaimID, WorkKind: c.Job.WorkKind, MaxAttempts: c.Job.MaxAttempts, AutoRetry: c.Job.AutoRetry,
		Retry: c.Job.Definition.Policy(),
	}
	if p := c.Job.Definition.FailureOf(c.Attempt); reason == job.CustomFailed && p != nil {
		return held.FailAsPlanned(p, w.cfg.Backoff, rand.Float64())
	}
	return held.Fail(reason, w.cfg.Backoff, rand.Float64())
}

// finish stores the outcome. If storage rejects a success, finish stores a failure instead, and changes f to this failure (API contract,
// section 14). Otherwise the job would stay RUNNING forever.
func (w *Worker) finish(ctx context.Context, c *job.Claim, f *job.Finish) (err error) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanReport)
	app.Describe(span, &c.Job, c.Attempt)
	var state job.State // remains empty if nothing was stored
	defer func() { app.EndSpan(span, c.JobID, state, err) }()
	unstorable := func(err error) bool { return f.State == job.Succeeded && app.Refused(err) }
	for {
		var done job.Finished
		err := w.write(ctx, c, "finish", unstorable, func() (err error) {
			done, err = w.Store.Finish(ctx, *f)
			return err
		})
		switch {
		case err == nil:
			state = f.State
			app.ReportFinished(ctx, w.Queue, w.Metrics, w.Log, "finish", &c.Job, *f, done)
			if done.Next == nil {
				w.Completer.Touch(done.BatchID)
			}
			return nil
		case !unstorable(err):
			return err
		}
		w.Log.ErrorContext(ctx, "job outcome cannot be stored", append(about(c, "finish"), app.ErrorFields(err))...)
		*f = w.failed(c, job.OutputInvalid)
	}
}

// write calls `do` until it succeeds or the claim is lost. It also stops if `giveUp` returns true for an error. If the response to a
// stored outcome is lost, the retry returns job.ErrStale. This does no harm, because the outcome is already stored.
func (w *Worker) write(ctx context.Context, c *job.Claim, operation string, giveUp func(error) bool, do func() error) (err error) {
	for ctx.Err() == nil {
		err = do()
		switch {
		case err == nil, giveUp != nil && giveUp(err):
			return err
		case errors.Is(err, job.ErrStale):
			w.Metrics.FencedWrites.WithLabelValues(operation).Inc()
			w.Log.InfoContext(ctx, "a write without a claim changed nothing", append(about(c, operation), "fence", c.Fence)...)
			return err
		case ctx.Err() == nil:
			w.Log.WarnContext(ctx, "cannot store a change of a job; trying again", append(about(c, operation), app.ErrorFields(err))...)
			app.Sleep(ctx, w.pause())
		}
	}
	w.Log.InfoContext(ctx, "stopped handling a job", append(about(c, operation), "reason", context.Cause(ctx).Error())...)
	return cmp.Or(context.Cause(ctx), err)
}

func taskEnd(f job.Finish) error {
	if f.Failure == nil {
		return nil
	}
	return &job.TaskFailed{Text: string(f.Failure.Code) + ": " + f.Failure.Detail}
}
