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

// someBacklog has a value of its own for each gauge.
func someBacklog() job.Backlog {
	return job.Backlog{
		Jobs:      map[job.State]int{job.Created: 1, job.Queued: 2, job.Assigned: 3, job.Running: 4},
		OldestDue: 5 * time.Second, Epoch: 6, Workers: 7, Slots: 8,
		Deliveries: 9, OldestDelivery: 10 * time.Second, DisabledWebhooks: 11,
	}
}

// shown gives the gauges of the backlog.
func (w *worldMaint) shown() map[string]float64 {
	shown := map[string]float64{}
	for _, s := range app.OpenStates {
		shown[string(s)] = w.Metric(w.Metrics.Backlog.Jobs.WithLabelValues(string(s)))
	}
	for _, name := range []string{
		"job_queue_depth", "job_oldest_due_seconds", "dispatch_epoch", "workers_alive", "workers_slots",
		"webhook_deliveries_pending", "webhook_oldest_pending_seconds", "webhooks_disabled_current",
	} {
		shown[name] = w.Sum(name)
	}
	return shown
}

var (
	counted = map[string]float64{
		"CREATED": 1, "QUEUED": 2, "ASSIGNED": 3, "RUNNING": 4, "job_queue_depth": 2, "job_oldest_due_seconds": 5, "dispatch_epoch": 6,
		"workers_alive": 7, "workers_slots": 8, "webhook_deliveries_pending": 9, "webhook_oldest_pending_seconds": 10,
		"webhooks_disabled_current": 11,
	}
	uncounted = map[string]float64{
		"CREATED": 0, "QUEUED": 0, "ASSIGNED": 0, "RUNNING": 0, "job_queue_depth": 0, "job_oldest_due_seconds": 0, "dispatch_epoch": 0,
		"workers_alive": 0, "workers_slots": 0, "webhook_deliveries_pending": 0, "webhook_oldest_pending_seconds": 0,
		"webhooks_disabled_current": 0,
	}
)

func (w *worldMaint) requireNoBacklog() {
	w.T.Helper()
	require.Equal(w.T, uncounted, w.shown())
	require.Zero(w.T, w.Sum("backlog_timestamp_seconds"))
	require.Zero(w.T, w.Sum("maintenance_leader"))
}

func TestTheLeaderTakesTheBacklog(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.backlog = someBacklog()
		w.lead()
		require.Equal(t, 1.0, w.Sum("maintenance_leader"))
		require.Equal(t, counted, w.shown(), "at once")
		apptest.Pass(backlogInterval)
		require.Equal(t, counted, w.shown())
		require.Equal(t, float64(time.Now().Unix()), w.Sum("backlog_timestamp_seconds"))

		w.Store.Update(func() { w.Store.backlog = job.Backlog{Jobs: map[job.State]int{job.Running: 1}} })
		apptest.Pass(backlogInterval)
		require.Equal(t, 1.0, w.Sum("jobs_current"), "a state without jobs is 0 again")
		require.Zero(t, w.Sum("dispatch_epoch"))
		require.Equal(t, 3, w.Store.Count("Backlog"))
	})
}

func TestAFailedBacklogKeepsTheLastOne(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.backlog = someBacklog()
		w.lead()
		apptest.Pass(backlogInterval)
		taken := w.Sum("backlog_timestamp_seconds")
		w.Store.Hook("Backlog", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		apptest.Pass(2 * backlogInterval)
		require.Equal(t, counted, w.shown())
		require.Equal(t, taken, w.Sum("backlog_timestamp_seconds"))
		require.Equal(t, 2.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("backlog")))
		apptest.Pass(backlogInterval)
		require.Equal(t, taken+15, w.Sum("backlog_timestamp_seconds"))
	})
}

func TestTheBacklogEndsWithTheLeadership(t *testing.T) {
	ends := map[string]func(w *worldMaint, stop func()){
		"resigned": func(_ *worldMaint, stop func()) { stop() },
		"lost to another process": func(w *worldMaint, _ func()) {
			w.Store.Update(func() { w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour) })
			apptest.Pass(2 * leaderInterval)
		},
		"storage is away for long": func(w *worldMaint, _ func()) {
			w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
			apptest.Pass(leaderLease + backlogMemory)
		},
		"storage does not answer for long": func(w *worldMaint, _ func()) {
			w.Store.Hook("Lead", apptest.Hook{Before: apptest.Hangs})
			apptest.Pass(leaderLease + backlogMemory)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				w.Store.backlog = someBacklog()
				_, stop := w.lead()
				apptest.Pass(backlogInterval)
				require.Equal(t, counted, w.shown())
				end(w, stop)
				w.requireNoBacklog()
				apptest.Pass(time.Minute)
				w.requireNoBacklog()
			})
		})
	}
}

// While nobody can lead, what was counted last is still shown.
func TestTheBacklogOutlastsALapse(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.backlog = someBacklog()
		w.lead()
		w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(10, apptest.ErrStorage)})
		apptest.Pass(leaderLease)
		require.Zero(t, w.Sum("maintenance_leader"))
		require.Equal(t, counted, w.shown())
		apptest.Pass(leaderLease + leaderInterval)
		require.Equal(t, 1.0, w.Sum("maintenance_leader"))
		apptest.Pass(2 * backlogMemory)
		require.Equal(t, counted, w.shown())
		require.InDelta(t, float64(time.Now().Unix()), w.Sum("backlog_timestamp_seconds"), backlogInterval.Seconds())
	})
}

// The answer to a count of the backlog comes after somebody else has begun to lead.
func TestALateBacklogIsNotShown(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.backlog = someBacklog()
		w.lead()
		w.Store.Hook("Backlog", apptest.Hook{After: func(ctx context.Context) error {
			app.Sleep(ctx, 2*leaderLease)
			return ctx.Err()
		}})
		apptest.Pass(backlogInterval)
		w.Store.Update(func() { w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour) })
		apptest.Pass(3 * leaderLease)
		require.Equal(t, 2, w.Store.Count("Backlog"))
		w.requireNoBacklog()
	})
}

func TestOtherProcessesKnowNoBacklog(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.backlog = someBacklog()
		w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour)
		w.lead()
		apptest.Pass(time.Minute)
		w.requireNoBacklog()
		require.Zero(t, w.Store.Count("Backlog"))
	})
}

func TestRoundsOfMaintenanceAreMeasured(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.Hook("Clean", apptest.Hook{After: func(context.Context) error { time.Sleep(3 * time.Second); return nil }})
		w.Store.Hook("Orphans", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		_, stop := w.lead()
		apptest.Pass(cleanerInterval + 4*time.Second)
		stop()
		for _, task := range app.MaintenanceTasks {
			at := w.Metric(w.Metrics.SucceededAt.WithLabelValues(task))
			if task == "rescuer" {
				require.Zero(t, at, task)
				continue
			}
			require.InDelta(t, float64(time.Now().Unix()), at, 6, task)
		}
		require.Equal(t, 3.0, w.Sum("maintenance_round_seconds"))
		require.Equal(t, 34.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("rescuer")))
	})
}
