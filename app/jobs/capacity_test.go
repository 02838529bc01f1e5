package jobs

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func (w *world) flood(s *Service, n int) (accepted, refused int64) {
	var yes, no atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			switch _, err := s.Submit(w.T.Context(), newRequest()); {
			case err == nil:
				yes.Add(1)
			case job.CodeOf(err) == job.CodeQueueFull:
				no.Add(1)
			}
		})
	}
	all.Wait()
	return yes.Load(), no.Load()
}

// Promise: contract 17
func TestLimitsAreExactWithinAProcess(t *testing.T) {
	w := newWorld(t)
	const limit = 25
	w.limit(w.Service, oneClient(limit, limit))
	accepted, refused := w.flood(w.Service, 200)
	require.Equal(t, []int64{limit, 200 - limit}, []int64{accepted, refused})
	for range 3 {
		require.NoError(t, w.Admission.Capacity.Renew(t.Context()))
		w.flood(w.Service, 50)
		require.Equal(t, limit, w.active())
	}
	canceled, _, err := w.CancelClient(t.Context(), apptest.ClientA)
	require.NoError(t, err)
	require.Equal(t, limit, canceled)
	testkit.Eventually(t, "jobs that have ended give room", func() bool {
		w.flood(w.Service, 50)
		return w.active() == limit
	})
}

func TestLimitsHoldWhileStorageCounts(t *testing.T) {
	w := newWorld(t)
	c := w.Admission.Capacity
	submitted := 0
	submit := func() {
		for range 2 {
			if second(w.Submit(t.Context(), newRequest())) == nil {
				submitted++
			}
		}
		require.LessOrEqual(t, w.active(), 10)
	}
	for range 3 {
		began := c.clock()
		before, _ := c.beginCount(began)
		submit()
		counted := apptest.Must(w.store.Load(t.Context(), 1000))(t)
		submit()
		known := apptest.Must(c.endCount(began, before, counted, nil, nil))(t)
		submit()
		require.NoError(t, c.request(t.Context(), known))
		submit()
	}
	testkit.Eventually(t, "all room is used", func() bool { submit(); return w.active() == 10 })
	require.Equal(t, 10, submitted)
}

// Promise: contract 17
func TestTwoProcessesNeverExceedTheLimit(t *testing.T) {
	w := newWorld(t)
	const limit = 30
	services := []*Service{w.service(limit), w.service(limit)}
	unknown := &job.Error{Code: job.CodeStorageUnavailable}
	for round := range 20 {
		var all sync.WaitGroup
		for _, s := range services {
			all.Go(func() {
				for range 3 {
					_, _ = s.Submit(t.Context(), newRequest())
					_, _, _ = s.SubmitBatch(t.Context(), newBatchRequest(newRequests(2)...))
				}
				// A job is stored, but the response is lost.
				j, _, _ := s.define(newRequest(), time.Now(), nil)
				jobs := []job.Job{j}
				if room, err := s.admit(t.Context(), j.ClientID, jobs); err == nil {
					_, _ = s.Store.InsertJob(t.Context(), job.Submission{Job: jobs[0]})
					room.end(t.Context(), false, unknown)
				}
				// A renewal is stored, but the response is lost.
				c := s.Admission.Capacity
				c.renewing.Lock()
				ask := c.ask()
				ask.Process, ask.Limit, ask.Expiry = c.process, c.limit, leaseExpiry
				_, err := s.Store.RenewLease(t.Context(), ask)
				c.renewing.Unlock()
				require.True(t, err == nil || job.CodeOf(err) == job.CodeStorageUnavailable)
			})
		}
		all.Wait()
		require.LessOrEqual(t, w.active(), limit)
		if round%5 == 0 {
			require.NoError(t, second(services[0].Store.CancelAll(t.Context(), apptest.ClientA,
				apptest.Must(w.store.UnfinishedJobs(t.Context(), apptest.ClientA, 10))(t))))
		}
	}
	testkit.Eventually(t, "no room is lost", func() bool {
		for _, s := range services {
			w.flood(s, 3)
		}
		require.LessOrEqual(t, w.active(), limit)
		return w.active() == limit
	})
}

type simulation struct {
	*Capacity
	now           time.Time
	load          job.Load
	has           int
	took          time.Duration
	all, byClient int64
}

func (s *simulation) renew() {
	began := s.now
	var counted *job.Counted
	if before, due := s.beginCount(began); due {
		s.all++
		s.now = s.now.Add(s.took)
		var byClient map[job.ID]job.Load
		if s.shares.mayMatter(s.load) {
			s.byClient++
			s.now = s.now.Add(s.took)
			byClient = map[job.ID]job.Load{apptest.ClientA: {Active: s.has, Queued: s.has}}
		}
		counted, _ = s.endCount(began, before, job.Counted{Jobs: s.load}, byClient, nil)
	}
	ask := s.ask()
	ask.Counted = counted
	s.answered(ask, s.now, job.Headroom{Granted: ask.Want.Max(ask.Keep).Min(s.limit.Plus(s.load, -1)), Processes: 1}, nil)
}

func (s *simulation) submit(t *testing.T) {
	for {
		room, err := s.take(clientLoad{apptest.ClientA, oneQueued})
		if room != nil {
			room.end(t.Context(), true, nil)
		}
		if room != nil || err != nil {
			return
		}
		s.renew()
	}
}

func TestCountsOfManyJobsAreRareUnlessRoomIsShort(t *testing.T) {
	t.Parallel()
	const million, tenth, twentieth = 1_000_000, 100 * time.Millisecond, 50 * time.Millisecond
	load := func(active, queued int) job.Load { return job.Load{Active: active, Queued: queued} }
	share := shared(10*million, million/4)
	for name, c := range map[string]struct {
		load     job.Load
		has      int
		limits   Limits
		took     time.Duration
		accepted int // submissions per second; each case takes 100 seconds
		min, max int64
	}{
		"many jobs, many submissions":      {load(million, million), 0, oneClient(10*million, 10*million), tenth, 5000, 9, 11},
		"many jobs, fast counts":           {load(million, million), 0, oneClient(10*million, 10*million), 30 * time.Millisecond, 0, 25, 34},
		"near the limit":                   {load(million, million), 0, oneClient(million+1000, 10*million), tenth, 600, 85, 101},
		"near the limit, no submissions":   {load(million, million), 0, oneClient(million+1000, 10*million), tenth, 0, 9, 11},
		"scheduled jobs, some submissions": {load(million, 10), 0, oneClient(10*million, 10*million), tenth, 500, 9, 11},
		"at the limit of queued jobs":      {load(million, 10*million), 0, oneClient(20*million, 10*million), tenth, 1, 85, 101},

		"less than half a share":                {load(120_000, 120_000), 120_000, share, twentieth, 10, 0, 0},
		"far from the end of a share":           {load(800_000, 800_000), 130_000, share, twentieth, 10, 9, 11},
		"at the end of a share":                 {load(800_000, 800_000), 250_000, share, twentieth, 1, 60, 91},
		"at the end of a share, no submissions": {load(800_000, 800_000), 250_000, share, twentieth, 0, 9, 11},
	} {
		s := &simulation{Capacity: NewCapacity(c.limits, nil, nil), now: time.Unix(1, 0), load: c.load, has: c.has, took: c.took}
		s.clock = func() time.Time { return s.now }
		for end := s.now.Add(100 * time.Second); s.now.Before(end); s.now = s.now.Add(capacityInterval) {
			s.renew()
			for range c.accepted {
				s.submit(t)
			}
		}
		counts := s.all
		if c.limits == share {
			counts = s.byClient
		}
		require.GreaterOrEqual(t, counts, c.min, name)
		require.LessOrEqual(t, counts, c.max, name)
	}
}
