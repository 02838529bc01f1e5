package maintenance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

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

// fakeClock is Postgres' clock, with what is stranded.
type fakeClock struct {
	mu               sync.Mutex
	ahead            time.Duration
	jobs, deliveries int
	looks, leases    int
}

func (c *fakeClock) ReadClock(context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead), nil
}

func (c *fakeClock) MoveStrandedJobs(_ context.Context, after job.QueueCursor, _ int) (int, job.QueueCursor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	moved := min(1, c.jobs)
	c.jobs -= moved
	if c.jobs > 0 {
		return moved, job.QueueCursor{RunAt: after.RunAt.Add(time.Second)}, nil
	}
	return moved, job.QueueCursor{}, nil
}

func (c *fakeClock) MoveStrandedDeliveries(_ context.Context, _ job.EndpointKey, _, limit int) (int, job.EndpointKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := min(limit, c.deliveries)
	c.deliveries -= moved
	return moved, job.EndpointKey{}, nil
}

func (c *fakeClock) EndStrandedLeases(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases++
	return nil
}

func (c *fakeClock) looked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// left is how much is stranded.
func (c *fakeClock) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs + c.deliveries
}

func TestWhatAStepOfTheClockLeftIsLookedFor(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		clock := w.Clock
		clock.jobs, clock.deliveries = 3, strandedBatch+5
		w.lead()
		apptest.Pass(2 * clockInterval)
		require.Zero(t, clock.left(), "who begins to lead looks")
		require.Equal(t, 3.0, w.Metric(w.Metrics.Repaired.WithLabelValues(app.RepairStranded)))
		require.EqualValues(t, strandedBatch+5, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues(app.RepairStranded)))
		apptest.Pass(2 * strandedTime)
		looks := clock.looked()
		apptest.Pass(10 * strandedTime)
		require.Equal(t, looks, clock.looked(), "nothing is looked for as long as no clock is set")

		set := func(ahead time.Duration) {
			clock.mu.Lock()
			defer clock.mu.Unlock()
			clock.ahead = ahead
		}
		set(time.Hour)
		apptest.Pass(15 * time.Second)
		require.Equal(t, looks, clock.looked(), "a clock that is set forward strands nothing yet")
		set(0)
		clock.mu.Lock()
		clock.jobs = 2
		clock.mu.Unlock()
		apptest.Pass(2 * clockInterval)
		require.Zero(t, clock.left())
		require.Equal(t, 2.0, w.Metric(w.Metrics.ClockSteps.WithLabelValues(app.PostgresClock)))
		require.Zero(t, w.Metric(w.Metrics.ClockSteps.WithLabelValues(app.ProcessClock)))
	})
}
