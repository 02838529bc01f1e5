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

// Handle looks at the job that a task names and, if it waits and is due,
// executes it. It returns nil or a job.TaskFailed once there is nothing left to
// do for the task: the outcome is committed, or the job is somebody else's now;
// job.ErrTaskStale if there was nothing to do; job.TaskEarly if the job's time,
// which storage knows, has not come, or its kind cannot be run here at the moment. Another error means that the job could not
// be claimed; the queue offers the task again.
//
// ctx is the queue's: it bounds the waiting for a slot and for a lease, and
// nothing else.
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

// claimTries bounds how often a job that becomes due while it is being claimed
// is claimed again at once, a claim for which the lease was over under the next
// lease, and one that storage refuses while it is there.
const claimTries = 3

// claim claims the job of a task, and says under which identity; without an
// error the claim is not nil.
//
// When storage fails, the claim may have come about all the same, and this worker
// holds the job: so it is asked again, for as long as this worker is who it is,
// and a claim that came about is answered then.
func (w *Worker) claim(ctx context.Context, t job.Task) (worker job.ID, claim *job.Claim, err error) {
	ctx, span := telemetry.Start(ctx, telemetry.SpanAssign)
	defer func() { endAssign(span, t, worker, claim, err) }()
	own := context.WithoutCancel(ctx) // a claim that is given up half-way would have no holder
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
			if job.CodeOf(failed) != job.CodeStorageUnavailable { // this job is what storage has trouble with
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

// soon is for how long a slot waits for the time of a job: the queue would offer it later than that.
const soon = 50 * time.Millisecond

// dropTask counts a task with which there is nothing to do.
func (w *Worker) dropTask(reason string) error {
	w.Metrics.TasksDropped.WithLabelValues(reason).Inc()
	return job.ErrTaskStale
}

// stoppedWait is after which a task that was fetched before everything, or this worker, was stopped is offered again.
const stoppedWait = time.Second

// Stopped reports whether this worker is to fetch no tasks, by what operators have stopped. A worker that lost its lease and has
// another one, with an id of its own, stays drained.
func (w *Worker) Stopped(p job.Pauses) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.ids, p.StopsWorker) || p.StopsWorker(w.id)
}

// pauseClaims holds a slot for a moment after a failed claim, so that a queue full of
// tasks is not churned through while storage or the lease is gone.
func (w *Worker) pauseClaims(ctx context.Context) {
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	app.Rest(ctx, w.pause(), changed)
}

// beatNow asks for a heartbeat at once: it finds out about the lease.
func (w *Worker) beatNow() {
	select {
	case w.trigger <- struct{}{}:
	default:
	}
}
