package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// chaos does random concurrent operations on a few jobs, including operations under leases that ended long ago.
type chaos struct {
	f       *fixture
	stores  []*repo.Store
	removes bool
	seed    uint64

	mu      sync.Mutex
	jobs    []job.ID
	batches []job.ID
	hooks   []job.ID
	leases  []job.ClaimID
	claimed map[job.ClaimID]job.ID
	sent    map[any]bool
	errs    []error
}

func newChaos(f *fixture, jobs int) *chaos {
	c := &chaos{f: f, stores: f.twoStores(), claimed: map[job.ClaimID]job.ID{}, sent: map[any]bool{},
		seed: uint64(time.Now().UnixNano()), jobs: f.submitted(jobs)}
	f.t.Logf("seed %d", c.seed)
	return c
}

func (c *chaos) dice(who int) *rand.Rand { return rand.New(rand.NewPCG(c.seed, uint64(who))) }

func (c *chaos) note(err error) {
	if err == nil || errors.Is(err, job.ErrStale) || job.CodeOf(err) == job.CodeJobGone {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

const chaosBatch = 3

func pick[T any](c *chaos, r *rand.Rand, from *[]T) (v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(*from) == 0 {
		return v
	}
	return (*from)[r.IntN(len(*from))]
}

func (c *chaos) submit(ctx context.Context, s *repo.Store, r *rand.Rand) {
	if r.IntN(4) == 0 {
		b, _, err := s.InsertBatch(ctx, c.f.batch(chaosBatch))
		c.note(err)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.batches, c.jobs = append(c.batches, b.ID), append(c.jobs, jobsOf(b)...)
		}
		return
	}
	sub := c.f.submission(attempts(1 + r.IntN(4)))
	if r.IntN(2) == 0 {
		deferred(time.Duration(r.IntN(200)) * time.Millisecond)(&sub)
	}
	if r.IntN(2) == 0 {
		sub.IdempotencyKey = fmt.Sprint("k", r.IntN(3))
	}
	receipt, err := s.InsertJob(ctx, sub)
	c.note(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && !receipt.Replayed {
		c.jobs = append(c.jobs, receipt.JobID)
	}
}

func (c *chaos) claim(ctx context.Context, s *repo.Store, r *rand.Rand, worker job.ID) {
	claim, _, err := s.Claim(ctx, worker, pick(c, r, &c.jobs), 1+r.IntN(3))
	c.note(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim != nil {
		if holder, ok := c.claimed[claim.ClaimID]; ok && holder != worker {
			c.errs = append(c.errs, fmt.Errorf("two workers have claim %+v", claim.ClaimID))
		}
		c.claimed[claim.ClaimID] = worker
		c.leases = append(c.leases, claim.ClaimID)
	}
}

func (c *chaos) finish(ctx context.Context, s *repo.Store, r *rand.Rand) {
	l := pick(c, r, &c.leases)
	end := success(l)
	if r.IntN(3) > 0 {
		end = failure(l, job.FailedOnce)
		j, err := c.f.store.Job(ctx, c.f.client, l.JobID)
		switch {
		case err != nil:
			return
		case l.Attempt >= j.MaxAttempts:
			end.Exhausted = true
		case r.IntN(2) == 0:
			end = withRetry(end, time.Duration(r.IntN(20))*time.Millisecond)
		}
	}
	if r.IntN(4) == 0 {
		end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(`1`)}
	}
	_, err := s.Finish(ctx, end)
	c.note(err)
}

func (c *chaos) maintain(ctx context.Context, s *repo.Store, r *rand.Rand) {
	switch r.IntN(6) {
	case 5:
		c.note(errOf(s.CompleteBatches(ctx, []job.ID{pick(c, r, &c.batches)})))
	case 4: // makes some ended jobs old, and removes them
		if !c.removes {
			return
		}
		c.note(errOf(c.f.db.Exec(ctx, `UPDATE jobs SET finished_at = finished_at - interval '31 days'
			WHERE finished_at > created_at AND job_id = (SELECT job_id FROM jobs ORDER BY random() LIMIT 1)`)))
		c.note(errOf(s.Clean(ctx, 3)))
	case 0:
		c.note(errOf(s.QueueDue(ctx, 5)))
	case 3:
		leases := []job.ClaimID{pick(c, r, &c.leases), pick(c, r, &c.leases)}
		c.note(errOf(s.Release(ctx, leases, []time.Duration{0, time.Millisecond})))
	case 1:
		held, err := s.Orphans(ctx, 5)
		c.note(err)
		for _, h := range held {
			if h.State == job.Running {
				c.note(errOf(s.Finish(ctx, failure(h.ClaimID, job.WorkerLost))))
			} else {
				c.note(errOf(s.Release(ctx, []job.ClaimID{h.ClaimID, pick(c, r, &c.leases)}, []time.Duration{0, 0})))
			}
		}
	default:
		c.note(errOf(s.Waiting(ctx, job.QueueCursor{}, time.Minute, 5)))
	}
}

func (c *chaos) deliver(ctx context.Context, s *repo.Store, r *rand.Rand) {
	hook := pick(c, r, &c.hooks)
	var err error
	switch r.IntN(10) {
	case 0:
		err = errOf(s.UpdateWebhook(ctx, c.f.client, hook, enabled(r.IntN(4) > 0)))
	case 1:
		err = errOf(s.RedeliverFailed(ctx, c.f.client, hook, time.Time{}, 5))
	case 2:
		err = errOf(s.ReplayEvents(ctx, c.f.client, hook, time.Now().Add(-time.Hour), job.Position{}, 5))
	case 3:
		err = errOf(s.FailOrphans(ctx, 2, 5))
	case 4:
		err = errOf(s.ReclaimDeliveries(ctx, 5))
	default:
		c.send(ctx, s, r, hook)
	}
	if job.CodeOf(err) != job.CodeConflict { // a conflict means that the webhook is disabled
		c.note(err)
	}
}

func (c *chaos) send(ctx context.Context, s *repo.Store, r *rand.Rand, hook job.ID) {
	due, _, err := s.DueDeliveries(ctx, job.EndpointKey{}, 10, 1+r.IntN(5), 100, 0, 0)
	c.note(err)
	for i, t := range due {
		if t.Endpoint != hook {
			continue
		}
		p, _, err := s.ClaimDelivery(ctx, t.ID, time.Duration(r.IntN(50))*time.Millisecond)
		c.note(err)
		if p == nil {
			continue
		}
		c.mu.Lock()
		if claim := [2]any{p.ID, p.Fence}; c.sent[claim] {
			c.errs = append(c.errs, fmt.Errorf("%+v was claimed twice", p))
		} else {
			c.sent[claim] = true
		}
		c.mu.Unlock()
		switch (i + r.IntN(2)) % 4 {
		case 0:
			c.note(errOf(s.RecordDelivery(ctx, delivered(*p))))
		case 1:
			c.note(errOf(s.RecordDelivery(ctx, refused(*p, 0))))
		case 2:
			c.note(s.ReleaseDelivery(ctx, p.ID, p.Fence))
		default:
			c.note(errOf(s.RecordDelivery(ctx, givenUp(*p))))
		}
	}
}

func (c *chaos) step(ctx context.Context, s *repo.Store, r *rand.Rand, worker job.ID) {
	switch n := r.IntN(22); {
	case n < 3:
		c.submit(ctx, s, r)
	case n < 8:
		c.claim(ctx, s, r, worker)
	case n < 12:
		c.note(errOf(s.Start(ctx, pick(c, r, &c.leases))))
	case n < 16:
		c.finish(ctx, s, r)
	case n < 17 && r.IntN(4) == 0:
		c.note(errOf(s.Cancel(ctx, c.f.client, pick(c, r, &c.jobs))))
	case n < 18:
		c.note(errOf(s.Retry(ctx, c.f.client, pick(c, r, &c.jobs), 1+r.IntN(3), 0, "")))
	case n < 19 && c.removes && r.IntN(4) == 0:
		if err := s.Delete(ctx, c.f.client, pick(c, r, &c.jobs)); job.CodeOf(err) != job.CodeConflict {
			c.note(err)
		}
	case n < 20 && len(c.hooks) > 0:
		c.deliver(ctx, s, r)
	default:
		c.maintain(ctx, s, r)
	}
}

// Promise: contract 19
func TestInvariantsHoldUnderRandomConcurrentOperations(t *testing.T) {
	f := setup(t, strict)
	hook := f.subscribe("*")
	c := newChaos(f, 10)
	c.removes, c.hooks = true, []job.ID{f.subscribe("*"), f.subscribe("*")}
	workers := []job.ID{f.worker, f.newWorker(), f.newWorker(), f.newWorker()}
	const callers, steps = 12, 250
	inParallel(callers, func(i int) {
		r := c.dice(i)
		for n := range steps {
			if i == 0 && n == steps/2 { // a worker dies
				f.expireWorker(workers[3])
			}
			c.step(f.ctx(), c.stores[i%2], r, workers[r.IntN(len(workers))])
		}
	})
	require.NoError(t, errors.Join(c.errs...))
	for _, id := range c.batches { // each batch is completed once, and its outcome counts all jobs
		for _, open := range must(f.store.OpenJobs(f.ctx(), f.client, id))(t) {
			f.cancel(open)
		}
	}
	f.completeBatches()
	f.exec(`UPDATE jobs SET finished_at = finished_at + interval '31 days' WHERE finished_at < created_at`) // undoes the UPDATE in maintain
	require.Equal(t, len(c.batches), f.count(`batches WHERE succeeded + failed + canceled = $1`, chaosBatch))
	f.checkInvariants()
	require.Zero(t, f.count(`events e FULL JOIN (SELECT * FROM deliveries WHERE webhook_id = $1) d USING (event_id)
		WHERE d.delivery_id IS NULL OR e.job_id <> d.job_id OR e.seq <> d.seq`, hook.String()), "each event has its delivery")
	for _, name := range []string{job.EventRunning, job.EventSucceeded, job.EventFailed, job.EventCanceled, job.EventRetried,
		job.EventLeaseExpired} {
		require.NotZero(t, f.count(`events WHERE event_name = $1`, name), "no event %s", name)
	}
	require.NotZero(t, f.count(`client_events WHERE event_name = 'webhook.disabled'`))
	require.NotZero(t, f.count(`deliveries WHERE state = 'DELIVERED'`))
}

func (f *fixture) checkInvariants() {
	require.Empty(f.t, must(repotest.Violations(f.ctx(), f.db))(f.t))
}
