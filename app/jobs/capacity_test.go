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

func TestLimitsAreExactWithinAProcess(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		const limit = 25
		s := w.service(limit)
		w.Background(s.capacity.Run)
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
		require.Equal(t, int64(limit), accepted.Load())
		require.Equal(t, int64(200-limit), refused.Load())
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
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Store.Hook("Load", apptest.Hook{
			Before: func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil },
			After:  func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil },
		})
		w.Store.Hook("InsertJob", apptest.Hook{
			Before: func(context.Context) error { time.Sleep(70 * time.Millisecond); return nil },
			After:  func(context.Context) error { time.Sleep(70 * time.Millisecond); return nil },
		})
		w.Background(s.capacity.Run)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { _, _ = s.Submit(context.Background(), newRequest()) })
			apptest.Pass(20 * time.Millisecond)
			w.Store.Mu.Lock()
			stored := len(w.Store.Rows)
			w.Store.Mu.Unlock()
			require.LessOrEqual(t, stored, 10)
		}
		all.Wait()
		require.Len(t, w.Store.Rows, 10)
		apptest.Pass(3 * time.Second)
		require.Equal(t, job.Load{}, s.capacity.mine, "all are in the count")
		require.Equal(t, job.Load{Active: 10, Queued: 10}, s.capacity.counted)
	})
}

func TestDeferredJobsDoNotFillTheQueue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(2)
		s.capacity.maxQueued = 1
		submit := func(change ...func(*job.Request)) job.Code {
			if _, err := s.Submit(context.Background(), newRequest(change...)); err != nil {
				return job.CodeOf(err)
			}
			return ""
		}
		require.Empty(t, submit())
		require.Equal(t, job.CodeQueueFull, submit())
		require.Empty(t, submit(deferred(time.Hour)), "it is not queued yet")
		require.Equal(t, job.CodeQueueFull, submit(deferred(time.Hour)), "but it is active")
	})
}

func TestRefusalForLimitsTellsWhenToRetry(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		_, err := w.service(0).Submit(context.Background(), newRequest(withKey("k")))
		var full *job.Error
		require.ErrorAs(t, err, &full)
		require.Equal(t, job.CodeQueueFull, full.Code)
		require.Equal(t, capacityInterval, full.RetryAfter)
		w.nothingDone()
	})
}

func TestTheCountIsKeptWhileStorageIsAway(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(3)
		w.Add()
		stop := w.Background(s.capacity.Run)
		w.Store.Hook("Load", apptest.Hook{Before: apptest.Fails(5, apptest.ErrStorage)})
		for range 2 {
			_, err := s.Submit(context.Background(), newRequest())
			require.NoError(t, err)
		}
		apptest.Pass(3 * capacityInterval)
		_, err := s.Submit(context.Background(), newRequest())
		require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
		require.NotEmpty(t, w.Log.Lines(t, map[string]any{"msg": "cannot count jobs"}))
		apptest.Pass(5 * capacityInterval)
		require.Empty(t, s.capacity.accepted)
		require.Equal(t, job.Load{Active: 3, Queued: 3}, s.capacity.counted)

		w.Store.Hook("Load", apptest.Hook{Before: apptest.Hangs})
		apptest.Pass(capacityInterval)
		stop() // at once, although storage hangs
	})
}

// slowCount is a storage whose count takes its time.
type slowCount struct {
	load   job.Load
	took   time.Duration
	counts atomic.Int64

	shares   map[job.ID]job.Load
	byClient atomic.Int64
}

func (s *slowCount) Load(ctx context.Context, _ int) (job.Load, error) {
	s.counts.Add(1)
	app.Sleep(ctx, s.took)
	return s.load, nil
}

func (s *slowCount) LoadByClient(ctx context.Context, _, _ int) (map[job.ID]job.Load, error) {
	s.byClient.Add(1)
	app.Sleep(ctx, s.took)
	return s.shares, nil
}

func (s *slowCount) LiveWorkers(context.Context) (int, error) { return 1, nil }

// A count of many jobs takes no more than a hundredth of the time, unless the
// limit is near or the count is cheap.
func TestCountsOfManyJobsAreFewUnlessTheyMatter(t *testing.T) {
	const million = 1_000_000
	for name, c := range map[string]struct {
		load           job.Load
		limit          int // of active jobs
		took           time.Duration
		accepted       int // here, in each second
		fewest, counts int64
	}{
		"few":                        {job.Load{Active: 99_999, Queued: 10}, million, 100 * time.Millisecond, 0, 85, 100},
		"many":                       {job.Load{Active: million, Queued: million}, 10 * million, 100 * time.Millisecond, 0, 9, 11},
		"many, and many come":        {job.Load{Active: million, Queued: million}, 10 * million, 100 * time.Millisecond, 5000, 9, 11},
		"many, quickly":              {job.Load{Active: million, Queued: million}, 10 * million, 30 * time.Millisecond, 0, 25, 34},
		"near the limit":             {job.Load{Active: million, Queued: million}, million + 90_000, 100 * time.Millisecond, 0, 85, 100},
		"at the limit":               {job.Load{Active: million, Queued: million}, million, 100 * time.Millisecond, 0, 85, 100},
		"the limit can be reached":   {job.Load{Active: million, Queued: million}, million + 200_000, 100 * time.Millisecond, 0, 22, 50},
		"scheduled ones, some come":  {job.Load{Active: million, Queued: 10}, 10 * million, 100 * time.Millisecond, 500, 9, 11},
		"scheduled ones, many come":  {job.Load{Active: million, Queued: 10}, 10 * million, 100 * time.Millisecond, 5000, 9, 11},
		"of those queued near limit": {job.Load{Active: million, Queued: 10 * million}, 20 * million, 100 * time.Millisecond, 0, 85, 100},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				store := &slowCount{load: c.load, took: c.took}
				capacity := NewCapacity(oneClient(c.limit, 10*million), store, w.Logger)
				w.Background(capacity.Run)
				for range 100 {
					for range c.accepted {
						if done, err := capacity.reserve(apptest.ClientA, job.Load{Active: 1, Queued: 1}); err == nil {
							done(true)
						}
					}
					apptest.Pass(time.Second)
				}
				require.GreaterOrEqual(t, store.counts.Load(), c.fewest)
				require.LessOrEqual(t, store.counts.Load(), c.counts)
			})
		})
	}
}

// shared gives each client a part of all.
func shared(all, share int) Limits {
	return Limits{Active: all, Queued: all, ClientActive: share, ClientQueued: share, ClientRate: 6000}
}

func TestOneClientCannotTakeAll(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s, other := w.service(0), w.service(0) // two processes
		s.capacity, other.capacity = NewCapacity(shared(20, 5), w.Store, w.Logger), NewCapacity(shared(20, 5), w.Store, w.Logger)
		w.Background(s.capacity.Run)
		w.Background(other.capacity.Run)
		submit := func(s *Service, client job.ID, change ...func(*job.Request)) error {
			_, err := s.Submit(context.Background(), newRequest(append(change, func(r *job.Request) { r.ClientID = client })...))
			return err
		}
		for range 5 {
			require.NoError(t, submit(s, apptest.ClientA, deferred(time.Hour)))
		}
		var full *job.Error
		require.ErrorAs(t, submit(s, apptest.ClientA), &full)
		require.Equal(t, job.CodeQueueFull, full.Code)
		require.Contains(t, full.Detail, "one client may have 5 jobs that are not final")
		require.NoError(t, submit(s, apptest.ClientB), "there is room for others")

		apptest.Pass(capacityInterval)
		require.Error(t, submit(other, apptest.ClientA), "what one process accepted, others know")
		require.NoError(t, submit(other, apptest.ClientB))
		for range 3 {
			apptest.Pass(capacityInterval)
			require.Error(t, submit(s, apptest.ClientA), "however often it is counted")
		}
		for id := range w.Store.Rows {
			w.Store.Change(id, func(r *apptest.Row) { w.Store.Move(r, job.Canceled) })
		}
		apptest.Pass(capacityInterval)
		require.NoError(t, submit(s, apptest.ClientA), "what has ended gives room")
		require.NoError(t, submit(other, apptest.ClientA))
	})
}

func TestShareOfQueuedJobs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(0)
		s.capacity = NewCapacity(Limits{Active: 20, Queued: 20, ClientActive: 5, ClientQueued: 2}, w.Store, w.Logger)
		for range 2 {
			require.NoError(t, second(s.Submit(context.Background(), newRequest())))
		}
		err := second(s.Submit(context.Background(), newRequest()))
		require.ErrorContains(t, err, "one client may have 2 jobs in QUEUED")
		require.NoError(t, second(s.Submit(context.Background(), newRequest(deferred(time.Hour)))), "it is not queued yet")
	})
}

// The count by client is made when a client may hold much, and often only while
// one that submits may have used up its share.
func TestCountsByClientAreFewUnlessTheyMatter(t *testing.T) {
	const million = 1_000_000
	for name, c := range map[string]struct {
		all, has int
		accepted int // here, in each second
		min, max int64
	}{
		"less than half a share":       {120_000, 120_000, 10, 0, 0},
		"far from the end of a share":  {800_000, 130_000, 10, 9, 11},
		"at the end of a share":        {800_000, 250_000, 1, 60, 91},
		"at its end, without requests": {800_000, 250_000, 0, 9, 11},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				store := &slowCount{
					load: job.Load{Active: c.all, Queued: c.all}, took: 50 * time.Millisecond,
					shares: map[job.ID]job.Load{apptest.ClientA: {Active: c.has, Queued: c.has}},
				}
				capacity := NewCapacity(shared(10*million, million/4), store, w.Logger)
				w.Background(capacity.Run)
				for range 100 {
					for range c.accepted {
						if done, err := capacity.reserve(apptest.ClientA, job.Load{Active: 1, Queued: 1}); err == nil {
							done(true)
						}
					}
					apptest.Pass(time.Second)
				}
				require.GreaterOrEqual(t, store.byClient.Load(), c.min)
				require.LessOrEqual(t, store.byClient.Load(), c.max)
			})
		})
	}
}

func TestExecutionTimeHasAHorizon(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10, func(c *Config) { c.MaxAhead = 24 * time.Hour })
		require.NoError(t, second(s.Submit(context.Background(), newRequest(deferred(24*time.Hour)))))
		var wrong *job.Error
		require.ErrorAs(t, second(s.Submit(context.Background(), newRequest(deferred(24*time.Hour+time.Second)))), &wrong)
		require.Equal(t, job.CodeValidationFailed, wrong.Code)
		require.Len(t, wrong.Violations, 1)
		require.Equal(t, "/execution_at", wrong.Violations[0].Pointer)
		require.Contains(t, wrong.Violations[0].Detail, "too far in the future")
	})
}
