package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
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
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
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

func TestOthersWriteNoHistory(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour)
		w.lead()
		apptest.Pass(time.Minute)
		require.Empty(t, w.History.written)
	})
}

// Storage that is slow is asked for one bucket in a round, and nothing else waits for it.
func TestASlowHistoryEndsItsRound(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
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

// Who has lost the lead writes no more than what it is at.
func TestTheHistoryEndsWithTheLead(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.Hook("WriteHistory", apptest.Hook{Before: func(ctx context.Context) error {
			app.Sleep(ctx, leaderLease)
			return ctx.Err()
		}})
		w.lead()
		apptest.Pass(historyInterval)
		w.Store.Update(func() { w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour) })
		apptest.Pass(time.Minute)
		require.LessOrEqual(t, w.Store.Count("WriteHistory"), 2)
		require.Zero(t, w.Store.Count("RollUpHistory"))
	})
}
