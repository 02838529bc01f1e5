package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Handle executes the job of a task if the job is waiting and due. It returns nil if the attempt succeeded, the job was canceled, or the
// lease was lost. It returns job.TaskFailed after a failed attempt, and job.ErrTaskStale if no attempt was made. It returns job.TaskEarly
// if the job is not due, or if this worker is stopped or refuses the kind. After any other error, the queue offers the task again.
//
// The end of ctx ends the wait for a slot or a lease, but does not stop the job.
func (w *Worker) Handle(ctx context.Context, t job.Task) error {
	if w.refuses(t.WorkKind) {
		return &job.TaskEarly{Wait: refusalWait}
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.slots }()

	about := attempt{t.JobID, t.Attempt}
	if !w.enter(about) {
		return w.dropTask("stale")
	}
	defer w.leave(about)
	worker, claim, err := w.claim(ctx, t)
	if err != nil {
		return err
	}
	return w.execute(context.WithoutCancel(ctx), worker, claim)
}

// claimTries is the maximum number of claims for a task. A worker repeats a claim after a lost lease, for example. Claims that fail
// because storage is down do not count.
const claimTries = 3

// If the response to a claim is lost, this worker may own the job without knowing it. It repeats the claim under the same lease, and then
// gets the stored claim.
func (w *Worker) claim(ctx context.Context, t job.Task) (worker job.ID, claim *job.Claim, err error) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanAssign)
	defer func() { endAssign(span, t, worker, claim, err) }()
	own := context.WithoutCancel(ctx) // not canceled: a canceled claim could still be stored, and the job would have no worker
	var failed error
	for tries := 0; tries < claimTries; {
		if worker, err = w.identity(ctx); err != nil {
			return job.ID{}, nil, errors.Join(failed, err)
		}
		var not job.NotClaimed
		claim, not, failed = w.Store.Claim(own, worker, t.JobID, t.Attempt)
		if failed != nil {
			w.Log.WarnContext(ctx, "cannot claim a job", "action", "assign", "job_id", t.JobID.String(), "attempt", t.Attempt,
				app.ErrorFields(failed))
			w.pauseClaims(ctx)
			if job.CodeOf(failed) != job.CodeStorageUnavailable { // storage works, so the error is about this claim: count the try
				tries++
			}
			if ctx.Err() != nil {
				return job.ID{}, nil, failed
			}
			continue
		}
		tries++
		switch {
		case claim != nil:
			return worker, claim, nil
		case not.WorkerDead:
			w.beatNow()
			w.pauseClaims(ctx)
		case not.Unknown:
			return job.ID{}, nil, w.dropTask("unknown")
		case not.Throttled:
			return job.ID{}, nil, w.dropTask("client_limit")
		case not.Paused:
			return job.ID{}, nil, w.dropTask("paused")
		case not.Stopped:
			return job.ID{}, nil, &job.TaskEarly{Wait: stoppedWait}
		case !not.StillWaiting:
			return job.ID{}, nil, w.dropTask("stale")
		case not.Wait > 0:
			if wait := w.cfg.Clock.Wait(not.Wait); wait > soon || !app.Sleep(ctx, wait) {
				return job.ID{}, nil, &job.TaskEarly{Wait: wait}
			}
		}
	}
	return job.ID{}, nil, errors.Join(failed, errBusy)
}

// A worker waits for a job that becomes due within `soon`. For a later job, the worker returns the task to the queue.
const soon = 50 * time.Millisecond

func (w *Worker) dropTask(reason string) error {
	w.Metrics.TasksDropped.WithLabelValues(reason).Inc()
	return job.ErrTaskStale
}

// stoppedWait is the delay of a task that reached a paused or drained worker.
const stoppedWait = time.Second

// Stopped reports whether operators have paused all jobs, or drained this worker by one of its latest ids.
func (w *Worker) Stopped(p job.Pauses) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.ids, p.StopsWorker) || p.StopsWorker(w.id)
}

// pauseClaims waits after a failed claim. Without the wait, the worker would fetch many tasks and fail to claim their jobs.
func (w *Worker) pauseClaims(ctx context.Context) {
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	app.Rest(ctx, w.pause(), changed)
}

func (w *Worker) beatNow() {
	select {
	case w.trigger <- struct{}{}:
	default:
	}
}
