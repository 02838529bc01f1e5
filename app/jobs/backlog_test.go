package jobs

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func newBacklog() (*Backlog, *testkit.Output) {
	log := &testkit.Output{}
	return NewBacklog(BacklogFloor, time.Now, prometheus.NewRegistry(), slog.New(slog.NewJSONHandler(log, nil))), log
}

func enter(a *Backlog, n int) (admitted int) {
	for range n {
		if a.Enter() == nil {
			admitted++
		}
	}
	return admitted
}

func leave(a *Backlog, n int) {
	for range n {
		a.Leave(true)
	}
}

func TestBacklogRefusesAboveLimit(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		a, log := newBacklog()
		for range 10_000 { // quick answers to invalid bodies do not raise the limit
			require.NoError(t, a.Enter())
			a.Leave(false)
		}
		require.Empty(t, log.Lines(t, nil))
		require.Equal(t, BacklogFloor, enter(a, BacklogFloor+1))
		var refusal *job.Error
		require.ErrorAs(t, a.Enter(), &refusal)
		require.Equal(t, job.CodeQueueFull, refusal.Code)
		require.Positive(t, refusal.RetryAfter)
		leave(a, 1)
		require.NoError(t, a.Enter(), "there is room again")
		waiting, limit := a.look()
		require.Equal(t, []int{BacklogFloor, BacklogFloor}, []int{waiting, limit})

		a, log = newBacklog()
		for range 3 { // consecutive bursts
			require.Equal(t, BacklogFloor, enter(a, BacklogFloor))
			leave(a, BacklogFloor)
		}
		require.Empty(t, log.Lines(t, nil))
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { leave(a, enter(a, 1000)) })
		}
		group.Wait()
		waiting, _ = a.look()
		require.Zero(t, waiting)
	})
}

type fastStore struct {
	admission *Backlog
	perTick   int
	waiting   []time.Time // start times
	longest   time.Duration
}

const serveTick = 5 * time.Millisecond

func (s *fastStore) serve(d time.Duration, offered int) (accepted, refused int) {
	for began := time.Now(); time.Since(began) < d; {
		for range offered {
			if s.admission.Enter() != nil {
				refused++
				continue
			}
			s.waiting = append(s.waiting, time.Now())
		}
		time.Sleep(serveTick)
		n := min(s.perTick, len(s.waiting))
		for _, since := range s.waiting[:n] {
			s.longest = max(s.longest, time.Since(since))
			s.admission.Leave(true)
		}
		s.waiting = s.waiting[n:]
		accepted += n
	}
	return accepted, refused
}

// Promise: patterns Queue Integration
func TestBacklogUnderOverload(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		a, _ := newBacklog()
		s := &fastStore{admission: a, perTick: 40} // stores 8,000 submissions a second
		_, refused := s.serve(2*time.Second, 39)
		require.Zero(t, refused, "no refusals below the capacity of storage")

		accepted, refused := s.serve(10*time.Second, 80)
		require.GreaterOrEqual(t, accepted, 79_000, "storage is kept busy")
		require.Greater(t, refused, 70_000)
		require.Less(t, s.longest, 2*backlogWait, "accepted submissions wait for a limited time")

		s.serve(backlogWait, 0)
		s.longest = 0
		_, refused = s.serve(2*time.Second, 39)
		require.Zero(t, refused, "no refusals after the load has fallen")
		require.Less(t, s.longest, 2*serveTick)
	})
}

func TestBacklogRemembersBestInterval(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		a, _ := newBacklog()
		s := &fastStore{admission: a, perTick: 80} // 16,000 a second
		s.serve(2*time.Second, 75)
		s.perTick = 10
		_, refused := s.serve(5*time.Second, 20) // 10,000 are waiting at the end
		require.Zero(t, refused)

		_, refused = s.serve((backlogMemory-3)*time.Second, 10)
		require.NotZero(t, refused, "the limit finally equals the capacity of storage")
	})
}
