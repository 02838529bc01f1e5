package jobs

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgerun/forgerun/repo/pg"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func testOrder() *order {
	return newOrder(prometheus.NewCounter(prometheus.CounterOpts{Name: "late"}))
}

type handed struct {
	mu      sync.Mutex
	numbers []int64
}

func (h *handed) run(p place) func() {
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.numbers = append(h.numbers, p.number)
	}
}

func (h *handed) all() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.numbers)
}

// A flush with a slow commit delays other flushes by at most a second. When the commit ends, the jobs of the slow flush are handed over
// late.
func TestFlushWaitsASecondForAnEarlierOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOrder()
		var h handed
		first, second, third := o.take(1), o.take(2), o.take(3)
		o.end(second, 2, h.run(second))
		time.Sleep(maxHandOverWait / 2)
		o.end(third, 3, h.run(third))
		time.Sleep(maxHandOverWait/2 - time.Millisecond)
		require.Empty(t, h.all())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int64{2, 3}, h.all())
		o.end(first, 4, h.run(first))
		require.Equal(t, []int64{2, 3, 1}, h.all())
		require.Equal(t, 4., testutil.ToFloat64(o.late))
	})
}

// Assigned times are never ahead of Postgres' clock, and increase from one flush to the next. The transmission times do not matter, and the
// clock may be unknown at first.
func TestFlushTimesIncrease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOrder()
		require.True(t, o.take(3).at(2).IsZero(), "Postgres assigns the times")
		skew := -17 * time.Second
		server := func() time.Time { return time.Now().Add(skew) }
		o.stored(time.Time{}, server(), server())
		last := server()
		for range 2000 {
			time.Sleep(rand.N(20 * time.Millisecond))
			n := 1 + rand.IntN(128)
			p := o.take(n)
			require.True(t, p.at(0).After(last), "%v is not after %v", p.at(0), last)
			last = p.at(n - 1)
			require.False(t, last.After(server().Add(128*time.Microsecond)), "%v is ahead of %v", last, server())
			time.Sleep(rand.N(3 * time.Millisecond))
			answered := server()
			time.Sleep(rand.N(30 * time.Millisecond)) // the commit and the transmission of the answer
			o.stored(last, last, answered)
		}
		require.WithinDuration(t, server(), last, 100*time.Millisecond)
	})
}

func TestFlushTimesFollowClockSteps(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := testOrder()
				o.stored(time.Time{}, time.Now(), time.Now())
				p := o.take(1)
				now := time.Now().Add(step)
				o.stored(p.at(0), now, now)
				require.WithinDuration(t, now, o.take(1).at(0), time.Millisecond)
			})
		})
	}
}

func TestNowIsPostgresTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{db: &pg.DB{}, order: testOrder()}
		require.True(t, s.Now().Equal(time.Now()), "Postgres' time is unknown")
		s.order.clock.observe(time.Now().Add(-time.Hour), time.Now(), false)
		time.Sleep(10 * time.Minute) // without an answer from Postgres
		require.True(t, s.Now().Equal(time.Now().Add(-time.Hour)))
	})
}
