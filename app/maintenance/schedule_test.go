package maintenance

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// Whoever is due at the same second is queued by several statements at once, and
// none of them waits for the log.
func TestManyDueJobsAreQueuedInLanesAndToldOfAfterwards(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const due = (2*schedulerLanes + 1) * schedulerBatch
		for range due {
			w.AddDeferred(2 * time.Second)
		}
		var calls, now, most, early atomic.Int64
		w.Store.Hook("QueueDue", apptest.Hook{Before: func(context.Context) error {
			if calls.Add(1) <= 2*schedulerLanes+1 {
				w.Queue.Mu.Lock()
				early.Add(int64(len(w.Queue.Published)))
				w.Queue.Mu.Unlock()
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			return nil
		}})
		w.lead()
		apptest.Pass(2*time.Second + SchedulerInterval + 450*time.Millisecond) // one statement, then two rounds of the lanes, then none are left
		require.EqualValues(t, schedulerLanes, most.Load())
		require.Zero(t, early.Load(), "told of while some wait")
		require.Len(t, w.Queue.Published, due)
		require.Equal(t, float64(due), w.Metric(w.Metrics.Repaired.WithLabelValues("scheduler")))
	})
}

// The relay gives way to the lanes for as long as they are at work, also when one of them fails.
func TestRelayGivesWayToTheLanesOnly(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 3 * schedulerBatch {
			w.AddDeferred(-time.Hour)
		}
		m := w.maintenance()
		var calls, gaveWay atomic.Int64
		w.Store.Hook("QueueDue", apptest.Hook{Before: func(context.Context) error {
			n := calls.Add(1)
			require.Equal(t, n > 1, m.relay.givesWay.Load(), "call %d", n)
			if n > 1 {
				gaveWay.Add(1)
				return apptest.ErrStorage
			}
			return nil
		}})
		require.ErrorIs(t, m.schedule(t.Context(), always), apptest.ErrStorage)
		require.EqualValues(t, schedulerLanes, gaveWay.Load())
		require.False(t, m.relay.givesWay.Load())
	})
}

// What one lane has queued is told of, although another one failed.
func TestWhatWasQueuedIsToldOfDespiteAFailure(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const due = 3 * schedulerBatch
		for range due {
			w.AddDeferred(-time.Hour)
		}
		var calls atomic.Int64
		w.Store.Hook("QueueDue", apptest.Hook{Before: func(context.Context) error {
			if calls.Add(1) == 2 {
				return apptest.ErrStorage
			}
			return nil
		}})
		w.lead()
		apptest.Pass(SchedulerInterval)
		require.Equal(t, 1.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("scheduler")))
		queued := 0
		for _, r := range w.Store.Rows {
			if r.State == job.Queued {
				queued++
			}
		}
		require.Positive(t, queued)
		require.Len(t, w.Queue.Published, queued)
	})
}

// The cleaner leaves storage as much time as it takes.
func TestTheCleanerRestsBetweenItsBatches(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.cleanings = 1 << 30
		w.Store.Hook("Clean", apptest.Hook{After: func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }})
		w.lead()
		apptest.Pass(cleanerInterval + 10*time.Second)
		require.InDelta(t, 50, w.Store.Count("Clean"), 2)
	})
}

// While many jobs are being queued the relay rests after each batch, but only when the queue has enough for the workers.
func TestRelayGivesWayOnceTheQueueHasEnough(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		const batches = relayEnough/relayBatch + 2
		var took [2]time.Duration
		for i, givesWay := range []bool{false, true} {
			w := newWorldMaint(t)
			require.NoError(t, w.Queue.SetEpoch(t.Context(), 1))
			r := NewRelay(w.Store, w.Queue, batches*relayBatch, w.Metrics, w.Logger)
			w.backlog(batches * relayBatch)
			w.Store.Hook("Waiting", apptest.Hook{After: func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil }})
			r.givesWay.Store(givesWay)
			began := time.Now()
			w.round(r)
			took[i] = time.Since(began)
			require.Equal(t, batches*relayBatch, w.pending())
		}
		require.Equal(t, 3*relayRest*10*time.Millisecond, took[1]-took[0], "after the batch that made it enough, and two more")
	})
}
