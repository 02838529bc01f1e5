package worker

import (
	"context"
	"time"
)

// Drain stops claiming and waits for the running jobs until ctx ends. Then it stops the remaining jobs, which fail with a retryable
// failure. Claimed jobs that have not started return to the queue. If a stopped job does not end within the duration of a lease, Drain
// stops waiting, and the rescuer releases the job later. Run must not end before Drain returns, because Run renews the lease.
func (w *Worker) Drain(ctx context.Context) {
	w.refuse(ctx)
	grace := ctx.Done()
	var bound <-chan time.Time
	for {
		w.mu.Lock()
		id, busy, changed := w.id, len(w.busy), w.changed
		w.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-changed:
		case <-grace:
			grace, bound = nil, time.After(w.cfg.Lease)
			w.stopAll()
		case <-bound:
			w.Log.ErrorContext(ctx, "jobs did not stop in time; the leader will requeue them", "action", "drain", "jobs", busy)
			w.lose(id, nil)
			return
		}
	}
}

// WaitingMessage is logged once if jobs still run when a drain begins.
const WaitingMessage = "waiting for running jobs"

func (w *Worker) refuse(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return
	}
	w.draining = true
	w.signalChange()
	if deadline, bounded := ctx.Deadline(); bounded && len(w.busy) > 0 {
		w.Log.InfoContext(ctx, WaitingMessage, "action", "drain", "jobs", len(w.busy), "grace_ms", time.Until(deadline).Milliseconds())
	}
}

func (w *Worker) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, h := range w.holding {
		h.stop(errShutdown)
	}
}
