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

// maxIdentities is how many leases back a worker knows by which id operators named it.
const maxIdentities = 100

// Run keeps the lease until ctx ends: it registers, beats, and when the lease
// is lost stops everything and registers under a new id. When ctx ends, the
// lease is given up for good; Drain must have come before. It may be called
// once.
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

// remaining is how long a lease that was asked for at the given moment may be
// relied on. It is counted from before the request, and ends early by a tenth,
// so this side gives up before storage does: what it runs has time to stop.
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

// keep holds a lease for as long as it can be renewed, or until ctx ends, and
// then ends all that goes with it.
func (w *Worker) keep(ctx context.Context, id job.ID, asked time.Time) {
	leased, end := context.WithCancelCause(ctx)
	defer end(nil)
	// A clock of its own: the lease ends in time even while a request hangs.
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
	// Storage may count the lease on, if the answer to a renewal was lost; its
	// jobs would wait for that in vain.
	retiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Heartbeat)
	defer cancel()
	if err := w.Store.Retire(retiring, id); err != nil {
		w.Log.WarnContext(ctx, "cannot retire the worker; its lease will run out", "action", "retire_worker", "worker_id", id.String(),
			app.ErrorFields(err))
	}
}

// beat renews the lease at the heartbeat's interval until ctx ends or storage
// says that the lease has.
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

// lose ends the lease on this side: nothing more is claimed under it, and
// nothing that it held is written. A nil error says that it was given up.
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

// reconcile compares what storage says this worker holds with what it does
// hold. Jobs that are no longer its own are stopped; one whose outcome is just
// being written is left alone, because it may be missing from the answer for
// that reason, and the write finds out by itself. Jobs that it does not know
// of, on two beats, and that it is not asking for either, come from a claim or
// start whose answer was lost: they are given back, again with each beat until storage
// agrees.
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
