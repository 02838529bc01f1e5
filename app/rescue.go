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
// queue, running ones fail, retryable (section 14). It does not know which of
// them have a callback, so it hints each client: rescues are rare.
type rescuer struct {
	store   ClaimStore
	queue   Queue
	settler *Settler
	backoff job.Backoff
	metrics *Metrics
	log     *slog.Logger
}

// rescueConcurrency lets the failures of one round share their statements.
const rescueConcurrency = 64

// giveBack gives back what it can, logs what it cannot, and answers with the
// first error.
func (r *rescuer) giveBack(ctx context.Context, held []job.Held) error {
	var group errgroup.Group
	group.SetLimit(rescueConcurrency)
	var claimed []job.Held
	for _, h := range held {
		if h.State == job.Assigned {
			claimed = append(claimed, h)
			continue
		}
		group.Go(func() error { return r.fail(ctx, h) })
	}
	if len(claimed) > 0 {
		group.Go(func() error { return r.requeue(ctx, claimed) })
	}
	return group.Wait()
}

// wait is nothing at first; a job that loses holder after holder backs off, so
// that it cannot take down one worker after the other at full speed.
func (r *rescuer) wait(h job.Held) time.Duration {
	if h.LeaseExpiries == 0 {
		return 0
	}
	return r.backoff.Ceiling(h.LeaseExpiries)
}

func (r *rescuer) requeue(ctx context.Context, claimed []job.Held) error {
	leases := make([]job.Lease, len(claimed))
	waits := make([]time.Duration, len(claimed))
	holds := make(map[job.ID]job.Held, len(claimed))
	for i, h := range claimed {
		leases[i], waits[i], holds[h.JobID] = h.Lease, r.wait(h), h
	}
	tasks, err := r.store.Release(ctx, leases, waits)
	if err != nil {
		r.log.Warn("cannot requeue jobs of a lost worker", "action", "requeue", "jobs", len(claimed), "error", err)
		return err
	}
	for _, t := range tasks {
		h := holds[t.JobID]
		r.metrics.repaired.WithLabelValues("rescuer_requeued").Inc()
		r.metrics.entered(job.Queued, h.WorkKind)
		r.transition("requeue", h, job.Assigned, job.Queued)
		r.queue.Announce(job.News{ClientID: h.ClientID, JobID: h.JobID})
		r.queue.Wake(h.ClientID)
		r.queue.Enqueue(t)
	}
	return nil
}

func (r *rescuer) fail(ctx context.Context, h job.Held) error {
	f := failedFinish(h, job.WorkerLost, r.backoff)
	done, err := r.store.Finish(ctx, f)
	if errors.Is(err, job.ErrStale) {
		return nil // it ended, or was given back, in the meantime
	}
	if err != nil {
		r.log.Warn("cannot fail a job of a lost worker", "action", "fail", "request_id", h.RequestID,
			"client_id", h.ClientID.String(), "job_id", h.JobID.String(), "attempt", h.Attempt, "error", err)
		return err
	}
	r.metrics.repaired.WithLabelValues("rescuer_failed").Inc()
	r.metrics.ended(job.Failed, h.WorkKind, done)
	r.transition("fail", h, job.Running, job.Failed, failureAttrs(f.Failure)...)
	r.queue.Announce(endOf(done))
	r.queue.Wake(h.ClientID)
	if done.Next == nil {
		r.settler.Touch(done.BatchID)
		return nil
	}
	h.Attempt = done.Next.Attempt
	r.transition("auto_retry", h, job.Failed, job.Queued)
	r.queue.Enqueue(*done.Next)
	return nil
}

// transition writes the line of a change of a job that was held.
func (r *rescuer) transition(action string, h job.Held, from, to job.State, more ...slog.Attr) {
	j := job.Job{ID: h.JobID, ClientID: h.ClientID, RequestID: h.RequestID, CorrelationID: h.CorrelationID, WorkKind: h.WorkKind}
	logTransition(r.log, action, &j, from, to, append(more, slog.Int("attempt", h.Attempt))...)
}
