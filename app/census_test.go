package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (s *fakeStore) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return call(ctx, s, "Census", func() (job.Backlog, error) {
		if limit != censusLimit {
			return job.Backlog{}, errors.New("another limit")
		}
		return s.census, nil
	})
}

// someCensus has a value of its own for each gauge.
func someCensus() job.Backlog {
	return job.Backlog{
		Jobs:      map[job.State]int{job.Created: 1, job.Queued: 2, job.Assigned: 3, job.Running: 4},
		OldestDue: 5 * time.Second, Epoch: 6, Workers: 7, Slots: 8,
		Deliveries: 9, OldestDelivery: 10 * time.Second, DisabledWebhooks: 11,
	}
}

// shown gives the gauges of the census.
func (w *worldMaint) shown() map[string]float64 {
	shown := map[string]float64{}
	for _, s := range openStates {
		shown[string(s)] = w.metric(w.metrics.census.jobs.WithLabelValues(string(s)))
	}
	for _, name := range []string{
		"job_queue_depth", "job_oldest_due_seconds", "dispatch_epoch", "workers_alive", "workers_slots",
		"webhook_deliveries_pending", "webhook_oldest_pending_seconds", "webhooks_disabled_current",
	} {
		shown[name] = w.sum(name)
	}
	return shown
}

var (
	counted = map[string]float64{
		"CREATED": 1, "QUEUED": 2, "ASSIGNED": 3, "RUNNING": 4, "job_queue_depth": 2, "job_oldest_due_seconds": 5, "dispatch_epoch": 6,
		"workers_alive": 7, "workers_slots": 8, "webhook_deliveries_pending": 9, "webhook_oldest_pending_seconds": 10, "webhooks_disabled_current": 11,
	}
	uncounted = map[string]float64{
		"CREATED": 0, "QUEUED": 0, "ASSIGNED": 0, "RUNNING": 0, "job_queue_depth": 0, "job_oldest_due_seconds": 0, "dispatch_epoch": 0,
		"workers_alive": 0, "workers_slots": 0, "webhook_deliveries_pending": 0, "webhook_oldest_pending_seconds": 0, "webhooks_disabled_current": 0,
	}
)

func (w *worldMaint) requireNoCensus() {
	w.t.Helper()
	require.Equal(w.t, uncounted, w.shown())
	require.Zero(w.t, w.sum("census_timestamp_seconds"))
	require.Zero(w.t, w.sum("maintenance_leader"))
}

func TestTheLeaderTakesTheCensus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.census = someCensus()
		w.lead()
		require.Equal(t, 1.0, w.sum("maintenance_leader"))
		require.Equal(t, counted, w.shown(), "at once")
		pass(censusInterval)
		require.Equal(t, counted, w.shown())
		require.Equal(t, float64(time.Now().Unix()), w.sum("census_timestamp_seconds"))

		w.store.meddle(func() { w.store.census = job.Backlog{Jobs: map[job.State]int{job.Running: 1}} })
		pass(censusInterval)
		require.Equal(t, 1.0, w.sum("jobs_current"), "a state without jobs is 0 again")
		require.Zero(t, w.sum("dispatch_epoch"))
		require.Equal(t, 3, w.store.count("Census"))
	})
}

func TestAFailedCensusKeepsTheLastOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.census = someCensus()
		w.lead()
		pass(censusInterval)
		taken := w.sum("census_timestamp_seconds")
		w.store.hook("Census", hook{before: fails(2, errStorage)})
		pass(2 * censusInterval)
		require.Equal(t, counted, w.shown())
		require.Equal(t, taken, w.sum("census_timestamp_seconds"))
		require.Equal(t, 2.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("census")))
		pass(censusInterval)
		require.Equal(t, taken+15, w.sum("census_timestamp_seconds"))
	})
}

func TestTheCensusEndsWithTheLeadership(t *testing.T) {
	ends := map[string]func(w *worldMaint, stop func()){
		"resigned": func(_ *worldMaint, stop func()) { stop() },
		"lost to another process": func(w *worldMaint, _ func()) {
			w.store.meddle(func() { w.store.leader, w.store.leaderUntil = newID(), time.Now().Add(time.Hour) })
			pass(2 * leaderInterval)
		},
		"storage is away for long": func(w *worldMaint, _ func()) {
			w.store.hook("Lead", hook{before: fails(-1, errStorage)})
			pass(leaderLease + censusMemory)
		},
		"storage does not answer for long": func(w *worldMaint, _ func()) {
			w.store.hook("Lead", hook{before: hangs})
			pass(leaderLease + censusMemory)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				w.store.census = someCensus()
				_, stop := w.lead()
				pass(censusInterval)
				require.Equal(t, counted, w.shown())
				end(w, stop)
				w.requireNoCensus()
				pass(time.Minute)
				w.requireNoCensus()
			})
		})
	}
}

// While nobody can lead, what was counted last is still shown.
func TestTheCensusOutlastsALapse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.census = someCensus()
		w.lead()
		w.store.hook("Lead", hook{before: fails(10, errStorage)})
		pass(leaderLease)
		require.Zero(t, w.sum("maintenance_leader"))
		require.Equal(t, counted, w.shown())
		pass(leaderLease + leaderInterval)
		require.Equal(t, 1.0, w.sum("maintenance_leader"))
		pass(2 * censusMemory)
		require.Equal(t, counted, w.shown())
		require.InDelta(t, float64(time.Now().Unix()), w.sum("census_timestamp_seconds"), censusInterval.Seconds())
	})
}

// The answer to a census comes after somebody else has begun to lead.
func TestALateCensusIsNotShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.census = someCensus()
		w.lead()
		w.store.hook("Census", hook{after: func(ctx context.Context) error {
			sleep(ctx, 2*leaderLease)
			return ctx.Err()
		}})
		pass(censusInterval)
		w.store.meddle(func() { w.store.leader, w.store.leaderUntil = newID(), time.Now().Add(time.Hour) })
		pass(3 * leaderLease)
		require.Equal(t, 2, w.store.count("Census"))
		w.requireNoCensus()
	})
}

func TestOtherProcessesKnowNoCensus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.census = someCensus()
		w.store.leader, w.store.leaderUntil = newID(), time.Now().Add(time.Hour)
		w.lead()
		pass(time.Minute)
		w.requireNoCensus()
		require.Zero(t, w.store.count("Census"))
	})
}

func TestRoundsOfMaintenanceAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.hook("Clean", hook{after: func(context.Context) error { time.Sleep(3 * time.Second); return nil }})
		w.store.hook("Orphans", hook{before: fails(-1, errStorage)})
		_, stop := w.lead()
		pass(cleanerInterval + 4*time.Second)
		stop()
		for _, task := range maintenanceTasks {
			at := w.metric(w.metrics.succeededAt.WithLabelValues(task))
			if task == "rescuer" {
				require.Zero(t, at, task)
				continue
			}
			require.InDelta(t, float64(time.Now().Unix()), at, 6, task)
		}
		require.Equal(t, 3.0, w.sum("maintenance_round_seconds"))
		require.Equal(t, 34.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("rescuer")))
	})
}
