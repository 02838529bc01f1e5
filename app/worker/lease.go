package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// errLapsed is why a lease ends that could not be renewed in time.
var errLapsed = errors.New("the lease could not be renewed in time")

// maxIdentities is how many of a worker's past lease ids are remembered, since operators may drain any of them.
const maxIdentities = 100

// Run keeps the lease until ctx ends. It registers and beats. When the lease is lost, it stops everything and registers under a new id.
// When ctx ends, it releases the lease for good; Drain must have come before. It may be called once.
func (w *Worker) Run(ctx context.Context) {
	defer w.refuse(ctx)
	for ctx.Err() == nil {
		asked := time.Now()
		id, err := w.register(ctx)
		if err == nil {
			w.keep(ctx, id, asked)
			continue
		}
		if ctx.Err() == nil {
			w.Log.WarnContext(ctx, "cannot register the worker", "action", "register_worker", app.ErrorFields(err))
		}
		if !app.Sleep(ctx, w.pause()) {
			return
		}
	}
}

// pause is the wait after a failed attempt to reach storage.
func (w *Worker) pause() time.Duration { return w.cfg.Heartbeat / 5 }

// remaining returns how long a lease may be relied on. It counts from before the request and ends early by a tenth, so this side gives up
// before storage does: its work has time to stop.
func (w *Worker) remaining(asked time.Time) time.Duration {
	return time.Until(asked.Add(w.cfg.Lease - w.cfg.Lease/10))
}

func (w *Worker) register(ctx context.Context) (job.ID, error) {
	id := app.NewID()
	if err := w.Store.Register(ctx, id, w.cfg.Name, w.cfg.Concurrency, w.cfg.Lease); err != nil {
		return job.ID{}, err
	}
	w.mu.Lock()
	w.id = id
	w.ids = append(w.ids[max(0, len(w.ids)+1-maxIdentities):], id)
	w.signalChange()
	w.mu.Unlock()
	w.suspects = nil
	w.Log.InfoContext(ctx, "worker registered", "action", "register_worker", "worker_id", id.String(), "concurrency", w.cfg.Concurrency)
	return id, nil
}

// keep holds a lease for as long as it can be renewed, or until ctx ends. Then it ends all work under the lease.
func (w *Worker) keep(ctx context.Context, id job.ID, asked time.Time) {
	leased, end := context.WithCancelCause(ctx)
	defer end(nil)
	// A separate timer ends the lease in time even while a request hangs.
	lapse := time.AfterFunc(w.remaining(asked), func() {
		w.lose(id, errLapsed)
		end(errLapsed)
	})
	defer lapse.Stop()
	switch err := w.beat(leased, id, lapse); {
	case ctx.Err() != nil:
		w.lose(id, nil)
	case errors.Is(err, job.ErrWorkerDead):
		w.lose(id, err)
		return // storage knows
	}
	// If the answer to a renewal was lost, storage may consider the lease valid; its jobs would wait for that in vain.
	retiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Heartbeat)
	defer cancel()
	if err := w.Store.Retire(retiring, id); err != nil {
		w.Log.WarnContext(ctx, "cannot retire the worker; its lease will run out", "action", "retire_worker", "worker_id", id.String(),
			app.ErrorFields(err))
	}
}

// beat renews the lease at the heartbeat's interval until ctx ends or storage says that the lease has ended.
func (w *Worker) beat(ctx context.Context, id job.ID, lapse *time.Timer) error {
	wait := w.cfg.Heartbeat
	for app.Rest(ctx, wait, w.trigger) {
		asked := time.Now()
		held, err := w.Store.Renew(ctx, id, w.cfg.Lease)
		switch {
		case errors.Is(err, job.ErrWorkerDead):
			return err
		case ctx.Err() != nil: // the loop ends
		case err != nil:
			w.Log.WarnContext(ctx, "heartbeat failed", "action", "heartbeat", "worker_id", id.String(), app.ErrorFields(err))
			wait = w.pause()
		default:
			lapse.Reset(w.remaining(asked))
			wait = w.cfg.Heartbeat
			w.reconcile(ctx, id, held, asked)
		}
	}
	return context.Cause(ctx)
}

// lose ends the lease on this side: it ends claiming and writing under the lease. A nil error means that it was released.
func (w *Worker) lose(id job.ID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != id {
		return // lost already
	}
	if err != nil {
		w.Log.Error("the worker lost its lease and stops its jobs", "action", "heartbeat", "worker_id", id.String(), "jobs", len(w.holding),
			app.ErrorFields(err))
		w.Metrics.LeasesLost.Inc()
	}
	w.id = job.ID{}
	for _, h := range w.holding {
		h.lose(errLeaseLost)
	}
	w.signalChange()
}

// reconcile compares the jobs that storage assigns to this worker with those that it holds. It stops jobs that are no longer its own,
// except one with an outcome being written: that may be why it is missing, and the write finds out by itself. Jobs that are unknown on
// two beats, and not being claimed, come from a claim or start with a lost answer: the worker releases them, again with each beat until
// storage agrees.
func (w *Worker) reconcile(ctx context.Context, worker job.ID, held []job.ClaimID, asked time.Time) {
	unknown := make(map[job.ClaimID]bool, len(held))
	for _, claim := range held {
		unknown[claim] = true
	}
	w.mu.Lock()
	for claim, h := range w.holding {
		if !unknown[claim] && h.since.Before(asked) {
			h.stop(errLeaseLost)
		}
	}
	for claim := range unknown {
		if w.busy[attempt{claim.JobID, claim.Attempt}] {
			delete(unknown, claim)
		}
	}
	w.mu.Unlock()
	var lost []job.ClaimID
	for claim := range unknown {
		if w.suspects[claim] {
			lost = append(lost, claim)
		}
	}
	w.suspects = unknown
	if len(lost) > 0 {
		w.giveBack(ctx, worker, lost)
	}
}

// giveBack ends claims that storage has for this worker but that it does not run: ASSIGNED jobs return to the queue, RUNNING jobs fail.
func (w *Worker) giveBack(ctx context.Context, worker job.ID, lost []job.ClaimID) {
	w.Log.WarnContext(ctx, "giving back jobs that this worker does not run", "action", "requeue", "jobs", len(lost))
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat/2) // the next beat must not wait for it
	defer cancel()
	held, err := w.Store.Held(ctx, worker, lost)
	if err != nil {
		w.Log.WarnContext(ctx, "cannot read the jobs to give back", "action", "requeue", "worker_id", worker.String(), app.ErrorFields(err))
		return
	}
	_ = w.GiveBack(ctx, held) // it has logged what failed; the next beat tries again
}
