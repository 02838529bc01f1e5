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

// Handle executes the job of a task if the job is waiting and due. It returns nil if the attempt succeeded, or the job was canceled or
// lost. It returns job.TaskFailed if the attempt failed, and job.ErrTaskStale if there was nothing to do. It returns job.TaskEarly if the
// job is not due, or this worker refuses the kind. After any other error, the queue offers the task again.
//
// ctx limits the wait for a slot and a lease. Its end does not stop the job.
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

// claimTries limits the claims for a task. A worker repeats a claim after a short wait, or after an error such as a lost lease. Claims that
// fail because storage is down do not count.
const claimTries = 3

// After a storage error, this worker may own the job without knowing it. So the worker repeats the claim under the same lease, and gets
// the stored claim.
func (w *Worker) claim(ctx context.Context, t job.Task) (worker job.ID, claim *job.Claim, err error) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanAssign)
	defer func() { endAssign(span, t, worker, claim, err) }()
	own := context.WithoutCancel(ctx) // not canceled: storage could keep a canceled claim, and the job would have no worker
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
			if job.CodeOf(failed) != job.CodeStorageUnavailable { // storage works, so this claim is at fault: count the try
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

// A worker waits up to `soon` for a job to become due, and then returns the task.
const soon = 50 * time.Millisecond

func (w *Worker) dropTask(reason string) error {
	w.Metrics.TasksDropped.WithLabelValues(reason).Inc()
	return job.ErrTaskStale
}

// stoppedWait is the delay of a task that reached a paused or drained worker.
const stoppedWait = time.Second

// Stopped reports whether operators have stopped this worker from fetching tasks. A drain also applies to the worker's later leases.
func (w *Worker) Stopped(p job.Pauses) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.ids, p.StopsWorker) || p.StopsWorker(w.id)
}

// pauseClaims waits after a failed claim. Otherwise the worker would fetch and fail many tasks.
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
