package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// oneClient lets one client have all.
func oneClient(active, queued int) Limits {
	return Limits{Active: active, Queued: queued, ClientActive: active, ClientQueued: queued}
}

// shared gives each client a part of all.
func shared(all, share int) Limits {
	return Limits{Active: all, Queued: all, ClientActive: share, ClientQueued: share, ClientRate: 6000}
}

// Promise: contract 17
func TestLimitsAreExactWithinAProcess(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		const limit = 25
		s := w.service(limit)
		w.Background(s.deps.Capacity.Run)
		var accepted, refused atomic.Int64
		flood := func() {
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					_, err := s.Submit(context.Background(), newRequest())
					switch {
					case err == nil:
						accepted.Add(1)
					case job.CodeOf(err) == job.CodeQueueFull:
						refused.Add(1)
					}
				})
			}
			all.Wait()
		}
		flood()
		require.Equal(t, []int64{limit, 200 - limit}, []int64{accepted.Load(), refused.Load()})
		for range 5 { // and however often it is counted
			apptest.Pass(capacityInterval)
			flood()
			require.Len(t, w.Store.Rows, limit)
		}

		ended := 0
		for id := range w.Store.Rows {
			if ended++; ended <= 7 {
				w.Store.Change(id, func(r *apptest.Row) { w.Store.Move(r, job.Canceled) })
			}
		}
		apptest.Pass(capacityInterval)
		flood()
		require.Len(t, w.Store.Rows, limit+7)
	})
}

// A job that is stored while storage counts may be in the count or not; it
// must be counted here until a count that began later.
func TestLimitsHoldWhileStorageCounts(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		w.Store.Hook("Load", apptest.Hook{Before: apptest.Slow(300 * time.Millisecond), After: apptest.Slow(300 * time.Millisecond)})
		w.Store.Hook("InsertJob", apptest.Hook{Before: apptest.Slow(70 * time.Millisecond), After: apptest.Slow(70 * time.Millisecond)})
		w.Background(s.deps.Capacity.Run)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { _, _ = s.Submit(context.Background(), newRequest()) })
			apptest.Pass(20 * time.Millisecond)
			w.Store.Update(func() { require.LessOrEqual(t, len(w.Store.Rows), 10) })
		}
		all.Wait()
		require.Len(t, w.Store.Rows, 10)
		apptest.Pass(3 * time.Second)
		require.Zero(t, s.deps.Capacity.lease.used, "all are in the count")
		require.Equal(t, job.Load{Active: 10, Queued: 10}, w.Store.ledger.bound)
	})
}

func TestRefusalForLimitsTellsWhenToRetry(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		full := w.refused(w.service(0), withKey("k"))
		require.Equal(t, job.CodeQueueFull, full.Code)
		require.Equal(t, capacityInterval, full.RetryAfter)
		w.nothingDone()

		s := w.service(2)
		s.deps.Capacity.limit.Queued = 1
		w.submit(s)
		require.Equal(t, job.CodeQueueFull, w.refused(s).Code)
		w.submit(s, deferred(time.Hour)) // it is not queued yet
		require.Equal(t, job.CodeQueueFull, w.refused(s, deferred(time.Hour)).Code, "but it is active")
	})
}

func TestTheCountIsKeptWhileStorageIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s := w.service(3)
		w.Add()
		stop := w.Background(s.deps.Capacity.Run)
		w.Store.Hook("Load", apptest.Hook{Before: apptest.Fails(5, apptest.ErrStorage)})
		w.submit(s)
		w.submit(s)
		apptest.Pass(3 * capacityInterval)
		require.Equal(t, job.CodeQueueFull, w.refused(s).Code)
		apptest.Pass(5 * capacityInterval)
		require.Empty(t, s.deps.Capacity.accepted)
		require.Equal(t, job.Load{Active: 3, Queued: 3}, w.Store.ledger.bound)

		w.Store.Hook("Load", apptest.Hook{Before: apptest.Hangs})
		apptest.Pass(capacityInterval)
		stop() // at once, although storage hangs
	})
}

func TestOneClientCannotTakeAll(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		s, other := w.service(0), w.service(0) // two processes
		for _, p := range []*Service{s, other} {
			p.deps.Capacity = NewCapacity(shared(20, 5), w.Store, w.Logger)
			w.Background(p.deps.Capacity.Run)
		}
		for range 5 {
			w.submit(s, deferred(time.Hour))
		}
		full := w.refused(s)
		require.Equal(t, job.CodeQueueFull, full.Code)
		require.Contains(t, full.Detail, "one client may have 5 jobs that are not final")
		w.submit(s, of(apptest.ClientB)) // there is room for others

		apptest.Pass(capacityInterval)
		_ = w.refused(other) // what one process accepted, others know
		w.submit(other, of(apptest.ClientB))
		for range 3 {
			apptest.Pass(capacityInterval)
			_ = w.refused(s) // however often it is counted
		}
		for id := range w.Store.Rows {
			w.Store.Change(id, func(r *apptest.Row) { w.Store.Move(r, job.Canceled) })
		}
		apptest.Pass(capacityInterval)
		w.submit(s) // what has ended gives room
		w.submit(other)

		s.deps.Capacity = NewCapacity(Limits{Active: 20, Queued: 20, ClientActive: 5, ClientQueued: 4}, w.Store, w.Logger)
		w.submit(s)
		w.submit(s)
		require.Contains(t, w.refused(s).Detail, "one client may have 4 jobs in QUEUED")
		w.submit(s, deferred(time.Hour)) // it is not queued yet
	})
}

// slowCount is a storage whose count takes its time.
type slowCount struct {
	load          job.Load
	has           int // jobs of the client
	took          time.Duration
	all, byClient atomic.Int64 // counts that were made
}

func (s *slowCount) Load(ctx context.Context, _ int) (job.Counted, error) {
	s.all.Add(1)
	app.Sleep(ctx, s.took)
	return job.Counted{Jobs: s.load}, nil
}

func (s *slowCount) RenewLease(_ context.Context, l job.Lease) (job.Headroom, error) {
	return job.Headroom{Granted: l.Want.Max(l.Keep).Min(l.Limit.Plus(s.load, -1)), Processes: 1}, nil
}

func (s *slowCount) CloseLease(context.Context, job.Lease) error { return nil }

func (s *slowCount) LoadByClient(ctx context.Context, _, _ int) (map[job.ID]job.Load, error) {
	s.byClient.Add(1)
	app.Sleep(ctx, s.took)
	return map[job.ID]job.Load{apptest.ClientA: {Active: s.has, Queued: s.has}}, nil
}

func (s *slowCount) LiveWorkers(context.Context) (int, error) { return 1, nil }

// A count of many jobs takes no more than a hundredth of the time, unless room is short. That by client is
// made when a client may hold much, and often only while one that submits may have used up its share.
func TestCountsOfManyJobsAreFewUnlessTheyMatter(t *testing.T) {
	const million, tenth, twentieth = 1_000_000, 100 * time.Millisecond, 50 * time.Millisecond
	load := func(active, queued int) job.Load { return job.Load{Active: active, Queued: queued} }
	share := shared(10*million, million/4)
	for name, c := range map[string]struct {
		load     job.Load
		has      int // of these, the one client
		limits   Limits
		took     time.Duration
		accepted int // in each of 100 seconds
		min, max int64
	}{
		"many, and many come":       {load(million, million), 0, oneClient(10*million, 10*million), tenth, 5000, 9, 11},
		"many, quickly":             {load(million, million), 0, oneClient(10*million, 10*million), 30 * time.Millisecond, 0, 25, 34},
		"near the limit":            {load(million, million), 0, oneClient(million+1000, 10*million), tenth, 600, 85, 101},
		"near it, without requests": {load(million, million), 0, oneClient(million+1000, 10*million), tenth, 0, 9, 11},
		"scheduled ones, some come": {load(million, 10), 0, oneClient(10*million, 10*million), tenth, 500, 9, 11},
		"of those queued at limit":  {load(million, 10*million), 0, oneClient(20*million, 10*million), tenth, 1, 85, 101},

		"less than half a share":       {load(120_000, 120_000), 120_000, share, twentieth, 10, 0, 0},
		"far from the end of a share":  {load(800_000, 800_000), 130_000, share, twentieth, 10, 9, 11},
		"at the end of a share":        {load(800_000, 800_000), 250_000, share, twentieth, 1, 60, 91},
		"at its end, without requests": {load(800_000, 800_000), 250_000, share, twentieth, 0, 9, 11},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w, store := newWorldJobs(t), &slowCount{load: c.load, has: c.has, took: c.took}
			capacity := NewCapacity(c.limits, store, w.Logger)
			w.Background(capacity.Run)
			for range 100 {
				for range c.accepted {
					if room, err := capacity.reserve(t.Context(), apptest.ClientA, job.Load{Active: 1, Queued: 1}); err == nil {
						room.end(t.Context(), true, nil)
					}
				}
				apptest.Pass(time.Second)
			}
			counts := &store.all
			if c.limits == share {
				counts = &store.byClient
			}
			require.GreaterOrEqual(t, counts.Load(), c.min)
			require.LessOrEqual(t, counts.Load(), c.max)
		})
	}
}

// Two processes never exceed the limit together, although the answers of storage are lost and a process stands still.
//
// Promise: contract 17
func TestTwoProcessesNeverExceedTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldJobs) {
		const limit = 30
		one, two := w.service(limit), w.service(limit)
		for _, s := range []*Service{one, two} {
			w.Background(s.deps.Capacity.Run)
		}
		var unknown, lost atomic.Int64
		w.Store.Hook("InsertJob", apptest.Hook{After: func(context.Context) error {
			if unknown.Add(1)%7 == 0 {
				return apptest.ErrStorage
			}
			return nil
		}})
		w.Store.Hook("RenewLease", apptest.Hook{After: func(context.Context) error {
			if lost.Add(1)%5 == 0 {
				return apptest.ErrStorage
			}
			return nil
		}})
		within := func() {
			n := 0
			w.Store.Update(func() {
				for _, r := range w.Store.Rows {
					if !r.State.Final() {
						n++
					}
				}
			})
			require.LessOrEqual(t, n, limit)
		}
		for round := range 60 {
			var all sync.WaitGroup
			for _, s := range []*Service{one, two} {
				all.Go(func() {
					for range 3 {
						_, _ = s.Submit(t.Context(), newRequest())
						_, _, _ = s.SubmitBatch(t.Context(), newBatchRequest(newRequests(2)...))
					}
				})
			}
			all.Wait()
			within()
			if round%10 == 0 { // some end
				for id := range w.Store.Rows {
					w.Store.Change(id, func(r *apptest.Row) {
						if !r.State.Final() {
							w.Store.Move(r, job.Canceled)
						}
					})
					if id[15]%2 == 0 {
						break
					}
				}
			}
			apptest.Pass(300 * time.Millisecond)
		}
		w.Store.Hook("InsertJob", apptest.Hook{})
		w.Store.Hook("RenewLease", apptest.Hook{})
		apptest.Pass(leaseExpiry + 2*capacityInterval)
		for i := range 10 * limit {
			_, _ = []*Service{one, two}[i%2].Submit(t.Context(), newRequest())
			apptest.Pass(fullPause)
		}
		within()
		require.Equal(t, job.Load{Active: limit, Queued: limit}, w.Store.ledger.bound, "no room is lost")
	})
}
