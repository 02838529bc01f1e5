package app

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Whoever is due at the same second is queued by several statements at once, and
// none of them waits for the log.
func TestManyDueJobsAreQueuedInLanesAndToldOfAfterwards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const due = (2*schedulerLanes + 1) * schedulerBatch
		for range due {
			w.addDeferred(2 * time.Second)
		}
		var calls, now, most, early atomic.Int64
		w.store.hook("QueueDue", hook{before: func(context.Context) error {
			if calls.Add(1) <= 2*schedulerLanes+1 {
				w.queue.mu.Lock()
				early.Add(int64(len(w.queue.heard)))
				w.queue.mu.Unlock()
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			return nil
		}})
		w.lead()
		pass(2*time.Second + schedulerInterval + 450*time.Millisecond) // one statement, then two rounds of the lanes, then none are left
		require.EqualValues(t, schedulerLanes, most.Load())
		require.Zero(t, early.Load(), "told of while some wait")
		require.Len(t, w.queue.heard, due)
		require.Equal(t, float64(due), w.metric(w.metrics.repaired.WithLabelValues("scheduler")))
	})
}

// What one lane has queued is told of, although another one failed.
func TestWhatWasQueuedIsToldOfDespiteAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const due = 3 * schedulerBatch
		for range due {
			w.addDeferred(-time.Hour)
		}
		var calls atomic.Int64
		w.store.hook("QueueDue", hook{before: func(context.Context) error {
			if calls.Add(1) == 2 {
				return errStorage
			}
			return nil
		}})
		w.lead()
		pass(schedulerInterval)
		require.Equal(t, 1.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("scheduler")))
		queued := 0
		for _, r := range w.store.jobs {
			if r.State == job.Queued {
				queued++
			}
		}
		require.Positive(t, queued)
		require.Len(t, w.queue.heard, queued)
	})
}

// The cleaner leaves storage as much time as it takes.
func TestTheCleanerRestsBetweenItsBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.cleanings = 1 << 30
		w.store.hook("Clean", hook{after: func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }})
		w.lead()
		pass(cleanerInterval + 10*time.Second)
		require.InDelta(t, 50, w.store.count("Clean"), 2)
	})
}
