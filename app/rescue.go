package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/job"
)

// rescuer gives back jobs whose holder is gone: claimed ones return to the
// queue, running ones fail, retryable (section 14).
type rescuer struct {
	store   ClaimStore
	queue   Queue
	backoff job.Backoff
	metrics *Metrics
	log     *slog.Logger
}

// rescueConcurrency lets the failures of one round share their statements.
const rescueConcurrency = 64

func (r *rescuer) giveBack(ctx context.Context, held []job.Held) {
	var group errgroup.Group
	group.SetLimit(rescueConcurrency)
	var leases []job.Lease
	var waits []time.Duration
	for _, h := range held {
		if h.State == job.Assigned {
			leases, waits = append(leases, h.Lease), append(waits, r.wait(h))
			continue
		}
		group.Go(func() error { r.fail(ctx, h); return nil })
	}
	if len(leases) > 0 {
		r.requeue(ctx, leases, waits)
	}
	_ = group.Wait() // the functions above report what goes wrong themselves
}

// wait is nothing at first; a job that loses holder after holder backs off, so
// that it cannot take down one worker after the other at full speed.
func (r *rescuer) wait(h job.Held) time.Duration {
	if h.LeaseExpiries == 0 {
		return 0
	}
	return r.backoff.Ceiling(h.LeaseExpiries)
}

func (r *rescuer) requeue(ctx context.Context, leases []job.Lease, waits []time.Duration) {
	tasks, err := r.store.Release(ctx, leases, waits)
	if err != nil {
		r.log.Warn("cannot requeue jobs of a lost worker", "error", err)
		return
	}
	for _, t := range tasks {
		r.metrics.repaired.WithLabelValues("rescuer_requeued").Inc()
		r.log.Info("job transition", "action", "requeue", "job_id", t.JobID.String(), "current_state", job.Assigned, "next_state", job.Queued)
		r.queue.Enqueue(t)
	}
}

func (r *rescuer) fail(ctx context.Context, h job.Held) {
	f := failedFinish(h, job.WorkerLost, r.backoff)
	done, err := r.store.Finish(ctx, f)
	if errors.Is(err, job.ErrStale) {
		return
	}
	if err != nil {
		r.log.Warn("cannot fail a job of a lost worker", "job_id", h.JobID.String(), "error", err)
		return
	}
	r.metrics.repaired.WithLabelValues("rescuer_failed").Inc()
	r.metrics.entered(job.Failed, h.WorkKind)
	r.log.Info("job transition", "action", "fail", "job_id", h.JobID.String(), "current_state", job.Running, "next_state", job.Failed,
		"work_kind", h.WorkKind, "error_code", f.Failure.Code, "error_message", f.Failure.Detail)
	if done.Next != nil {
		r.metrics.retried.WithLabelValues("auto").Inc()
		r.queue.Enqueue(*done.Next)
	}
}
