package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeHistory has how often each bucket was written. Guarded by the store.
type fakeHistory struct {
	store   *apptest.Store
	written map[time.Time]int
	rolled  int // buckets that were there when minutes were made of them last
}

const (
	historyBack = 15 * time.Minute
	bucket      = 10 * time.Second
)

func (h *fakeHistory) MissingHistory(ctx context.Context) ([]time.Time, error) {
	return apptest.Call(ctx, h.store, "MissingHistory", func() (missing []time.Time, err error) {
		latest := time.Now().Truncate(bucket)
		for at := latest.Add(-bucket); !at.Before(latest.Add(-historyBack)); at = at.Add(-bucket) {
			if h.written[at] == 0 || at.After(latest.Add(-4*bucket)) {
				missing = append(missing, at)
			}
		}
		return missing, nil
	})
}

func (h *fakeHistory) WriteHistory(ctx context.Context, at time.Time) error {
	return apptest.Do(ctx, h.store, "WriteHistory", func() error { h.written[at]++; return nil })
}

func (h *fakeHistory) RollUpHistory(ctx context.Context) error {
	return apptest.Do(ctx, h.store, "RollUpHistory", func() error { h.rolled = len(h.written); return nil })
}

// gaps gives how many buckets are not there, of the last so many.
func (w *worldMaint) gaps(last int) (gaps int) {
	w.Store.Update(func() {
		latest := time.Now().Truncate(bucket)
		for i := range last {
			if w.History.written[latest.Add(-time.Duration(i+1)*bucket)] == 0 {
				gaps++
			}
		}
	})
	return gaps
}

func TestTheLeaderWritesTheHistory(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		_, stop := w.lead()
		apptest.Pass(historyInterval)
		require.Zero(t, w.gaps(90), "what was before is written, as far as a quarter of an hour")
		apptest.Pass(10 * time.Minute)
		require.Zero(t, w.gaps(150))
		require.Equal(t, 1, w.History.written[time.Now().Truncate(bucket).Add(-bucket)])
		require.Equal(t, 3, w.History.written[time.Now().Truncate(bucket).Add(-4*bucket)], "and again, for what was committed late")
		require.Equal(t, len(w.History.written), w.History.rolled)

		stop()
		apptest.Pass(5 * time.Minute)
		require.Equal(t, 30, w.gaps(30), "nobody leads")
		w.lead()
		apptest.Pass(historyInterval)
		require.Zero(t, w.gaps(90), "who leads next fills the gap")
	})
}

// Storage that is slow is asked for one bucket in a round, and nothing else waits for it.
func TestASlowHistoryEndsItsRound(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.Store.Hook("WriteHistory", apptest.Hook{Before: func(ctx context.Context) error {
			app.Sleep(ctx, 2*time.Second)
			return apptest.ErrStorage
		}})
		_, stop := w.lead()
		apptest.Pass(time.Minute)
		require.Equal(t, w.Store.Count("RollUpHistory"), w.Store.Count("WriteHistory"), "one a round")
		require.Equal(t, 5, w.Store.Count("RollUpHistory"))
		require.Equal(t, 5.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("history")))
		require.Equal(t, 1.0, w.Sum("maintenance_leader"), "it goes on leading")
		require.Greater(t, w.Store.Count("QueueDue"), 250, "and does what else there is to do")
		stop()
	})
}

func TestStepsOfAClockAreNoticed(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var w stepWatch
	look := func(at, way time.Duration, ahead time.Duration) time.Duration {
		return w.observe(start.Add(at+way/2+ahead), at, at+way).Round(time.Second)
	}
	require.Zero(t, look(0, 100*time.Millisecond, 0), "the first look")
	require.Zero(t, look(time.Second, 100*time.Millisecond, 100*time.Millisecond), "slewed")
	require.Equal(t, time.Hour, look(2*time.Second, 100*time.Millisecond, time.Hour))
	require.Zero(t, look(3*time.Second, 2*time.Second, 2*time.Hour), "an answer that was on its way for too long says nothing")
	require.Zero(t, look(6*time.Second, time.Millisecond, time.Hour))
	require.Equal(t, -time.Hour, look(7*time.Second, time.Millisecond, 0))
	require.Zero(t, look(24*time.Hour, time.Millisecond, 0))
}

// fakeClock is Postgres' clock, with what is stranded. Guarded by the store.
type fakeClock struct {
	store            *apptest.Store
	ahead            time.Duration
	jobs, deliveries int
	looks            int
}

func (c *fakeClock) ReadClock(ctx context.Context) (time.Time, error) {
	return apptest.Call(ctx, c.store, "ReadClock", func() (time.Time, error) { return time.Now().Add(c.ahead), nil })
}

func (c *fakeClock) MoveStrandedJobs(ctx context.Context, after job.QueueCursor, _ int) (moved int, next job.QueueCursor, err error) {
	err = apptest.Do(ctx, c.store, "MoveStrandedJobs", func() error {
		c.looks++
		moved = min(1, c.jobs)
		c.jobs -= moved
		if c.jobs > 0 {
			next.RunAt = after.RunAt.Add(time.Second)
		}
		return nil
	})
	return moved, next, err
}

func (c *fakeClock) MoveStrandedDeliveries(ctx context.Context, _ job.EndpointKey, _, limit int) (
	moved int, next job.EndpointKey, err error,
) {
	err = apptest.Do(ctx, c.store, "MoveStrandedDeliveries", func() error {
		moved = min(limit, c.deliveries)
		c.deliveries -= moved
		return nil
	})
	return moved, next, err
}

func (c *fakeClock) EndStrandedLeases(context.Context) error { return nil }

// look gives how much is stranded, and how often jobs were looked for.
func (c *fakeClock) look() (left, looks int) {
	c.store.Update(func() { left, looks = c.jobs+c.deliveries, c.looks })
	return left, looks
}

func TestWhatAStepOfTheClockLeftIsLookedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		clock := w.Clock
		clock.jobs, clock.deliveries = 3, strandedBatch+5
		w.lead()
		apptest.Pass(2 * clockInterval)
		left, _ := clock.look()
		require.Zero(t, left, "who begins to lead looks")
		require.Equal(t, 3.0, w.Metric(w.Metrics.Repaired.WithLabelValues(app.RepairStranded)))
		require.EqualValues(t, strandedBatch+5, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues(app.RepairStranded)))
		apptest.Pass(2 * strandedTime)
		_, looks := clock.look()
		apptest.Pass(10 * strandedTime)
		_, again := clock.look()
		require.Equal(t, looks, again, "nothing is looked for as long as no clock is set")

		w.Store.Update(func() { clock.ahead = time.Hour })
		apptest.Pass(15 * time.Second)
		_, again = clock.look()
		require.Equal(t, looks, again, "a clock that is set forward strands nothing yet")
		w.Store.Update(func() { clock.ahead, clock.jobs = 0, 2 })
		apptest.Pass(2 * clockInterval)
		left, _ = clock.look()
		require.Zero(t, left)
		require.Equal(t, 2.0, w.Metric(w.Metrics.ClockSteps.WithLabelValues(app.PostgresClock)))
		require.Zero(t, w.Metric(w.Metrics.ClockSteps.WithLabelValues(app.ProcessClock)))
	})
}
