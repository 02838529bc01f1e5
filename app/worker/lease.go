package worker

import (
	"context"
	"errors"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

var errLapsed = errors.New("the lease could not be renewed in time")

// Operators can drain a worker by any of its last maxIdentities ids.
const maxIdentities = 100

// Run registers the worker, and renews the lease with heartbeats until ctx ends. After the loss of a lease, it stops all jobs and
// registers again with a new id. When ctx ends, it releases the lease. Call Drain before ctx ends. Call Run only once.
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

func (w *Worker) pause() time.Duration { return w.cfg.Heartbeat / 5 }

// remaining returns how long the worker may still use a lease that it requested at `asked`. Work ends after 9/10 of the lease, so it stops
// before the lease expires in storage.
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

func (w *Worker) keep(ctx context.Context, id job.ID, asked time.Time) {
	leased, end := context.WithCancelCause(ctx)
	defer end(nil)
	// A timer ends the lease when it expires, even while a request hangs.
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
		return // storage has already ended the lease
	}
	// End the lease in storage, too. A renewal may have been stored although its response was lost. Then the worker's jobs would wait until
	// the renewed lease expires.
	retiring, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Heartbeat)
	defer cancel()
	if err := w.Store.Retire(retiring, id); err != nil {
		w.Log.WarnContext(ctx, "cannot sign off the worker; its lease will expire", "action", "retire_worker", "worker_id", id.String(),
			app.ErrorFields(err))
	}
}

func (w *Worker) beat(ctx context.Context, id job.ID, lapse *time.Timer) error {
	wait := w.cfg.Heartbeat
	for app.Rest(ctx, wait, w.trigger) {
		asked := time.Now()
		held, err := w.Store.Renew(ctx, id, w.cfg.Lease)
		switch {
		case errors.Is(err, job.ErrWorkerDead):
			return err
		case ctx.Err() != nil: // the lease has ended, so the loop ends
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

// lose stops the jobs of a lease. err is the reason, or nil after a planned release.
func (w *Worker) lose(id job.ID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id != id {
		return // already lost
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

// reconcile compares the jobs that storage assigns to this worker with the jobs that it runs. It stops running jobs that storage does not
// list. It does not interrupt the write of an outcome, because storage stops listing a job when its outcome is stored. If two heartbeats
// in a row list a job that does not run here, the response to its claim was lost. reconcile then releases the job.
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

// giveBack releases claims of jobs that do not run here. ASSIGNED jobs are requeued, RUNNING jobs fail.
func (w *Worker) giveBack(ctx context.Context, worker job.ID, lost []job.ClaimID) {
	w.Log.WarnContext(ctx, "requeueing jobs that are assigned to this worker but do not run in it", "action", "requeue", "jobs", len(lost))
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat/2) // must not delay the next heartbeat
	defer cancel()
	held, err := w.Store.Held(ctx, worker, lost)
	if err != nil {
		w.Log.WarnContext(ctx, "cannot read the jobs to requeue", "action", "requeue", "worker_id", worker.String(), app.ErrorFields(err))
		return
	}
	_ = w.GiveBack(ctx, held) // GiveBack logs errors; the next heartbeat tries again
}
