package maintenance

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// Whoever is due at the same second is queued by several statements at once, and none of them waits for the log.
func TestManyDueJobsAreQueuedInLanesAndPublishedAfterwards(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		const due = (schedulerLanes + 1) * schedulerBatch
		for range due {
			w.AddDeferred(-time.Hour)
		}
		m := w.maintenance()
		var now, most atomic.Int64
		w.Store.Hook("QueueDue", apptest.Hook{Before: func(context.Context) error {
			require.Empty(t, w.Queue.Notifications(), "told of while some wait")
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			return nil
		}})
		require.NoError(t, m.schedule(t.Context(), always))
		require.EqualValues(t, schedulerLanes, most.Load())
		require.Equal(t, due, len(w.Queue.Notifications()))
		require.Equal(t, float64(due), w.repaired("scheduler"))
	})
}

// What one lane has queued is told of, although another one failed.
func TestNotificationsOfQueuedJobsDespiteAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		for range 2*schedulerBatch + 1 {
			w.AddDeferred(-time.Hour)
		}
		m := w.maintenance()
		var calls atomic.Int64
		w.Store.Hook("QueueDue", apptest.Hook{Before: func(context.Context) error {
			if calls.Add(1) == 2 {
				return apptest.ErrStorage
			}
			return nil
		}})
		require.ErrorIs(t, m.schedule(t.Context(), always), apptest.ErrStorage)
		require.Equal(t, w.repaired("scheduler"), float64(len(w.Queue.Notifications())))
		require.Positive(t, w.repaired("scheduler"))
	})
}

// someBacklog has a value of its own for each gauge.
func someBacklog() job.Backlog {
	return job.Backlog{
		Jobs:      map[job.State]int{job.Created: 1, job.Queued: 2, job.Assigned: 3, job.Running: 4},
		OldestDue: 5 * time.Second, Workers: 7, Slots: 8,
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
		"job_queue_depth", "job_oldest_due_seconds", "workers_alive", "workers_slots",
		"webhook_deliveries_pending", "webhook_oldest_pending_seconds", "webhooks_disabled_current",
	} {
		shown[name] = w.Sum(name)
	}
	return shown
}

var counted = map[string]float64{
	"CREATED": 1, "QUEUED": 2, "ASSIGNED": 3, "RUNNING": 4, "job_queue_depth": 2, "job_oldest_due_seconds": 5,
	"workers_alive": 7, "workers_slots": 8, "webhook_deliveries_pending": 9, "webhook_oldest_pending_seconds": 10,
	"webhooks_disabled_current": 11,
}

func (w *worldMaint) requireNoBacklog() {
	w.T.Helper()
	for name, value := range w.shown() {
		require.Zero(w.T, value, name)
	}
	require.Zero(w.T, w.Sum("backlog_timestamp_seconds"))
	require.Zero(w.T, w.Sum("maintenance_leader"))
}

func TestTheLeaderTakesTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.Store.backlog = someBacklog()
		w.lead()
		require.Equal(t, 1.0, w.Sum("maintenance_leader"))
		require.Equal(t, counted, w.shown(), "at once")
		apptest.Pass(backlogInterval)
		taken := w.Sum("backlog_timestamp_seconds")
		require.Equal(t, float64(time.Now().Unix()), taken)

		w.Store.Hook("Backlog", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		apptest.Pass(2 * backlogInterval)
		require.Equal(t, counted, w.shown(), "a failed one keeps the last one")
		require.Equal(t, taken, w.Sum("backlog_timestamp_seconds"))
		require.Equal(t, 2.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("backlog")))

		w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(10, apptest.ErrStorage)})
		apptest.Pass(leaderLease)
		require.Zero(t, w.Sum("maintenance_leader"))
		require.Equal(t, counted, w.shown(), "while nobody can lead, what was counted last is shown")
		apptest.Pass(leaderLease + leaderInterval)
		require.Equal(t, 1.0, w.Sum("maintenance_leader"))

		w.Store.Update(func() { w.Store.backlog = job.Backlog{Jobs: map[job.State]int{job.Running: 1}} })
		apptest.Pass(2 * backlogMemory)
		require.InDelta(t, float64(time.Now().Unix()), w.Sum("backlog_timestamp_seconds"), backlogInterval.Seconds())
		require.Equal(t, 1.0, w.Sum("jobs_current"), "a state without jobs is 0 again")
	})
}

func TestTheBacklogEndsWithTheLeadership(t *testing.T) {
	for name, end := range map[string]func(w *worldMaint, stop func()){
		"resigned": func(_ *worldMaint, stop func()) { stop() },
		"lost to another process": func(w *worldMaint, _ func()) {
			w.otherLeads()
			apptest.Pass(2 * leaderInterval)
		},
		"storage is away for long": func(w *worldMaint, _ func()) {
			w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
			apptest.Pass(leaderLease + backlogMemory)
		},
		"the answer comes after somebody else has begun to lead": func(w *worldMaint, _ func()) {
			w.Store.Hook("Backlog", apptest.Hook{After: func(ctx context.Context) error {
				app.Sleep(ctx, 2*leaderLease)
				return ctx.Err()
			}})
			apptest.Pass(backlogInterval)
			w.otherLeads()
			apptest.Pass(3 * leaderLease)
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
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
	}
}

func TestRoundsOfMaintenanceAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.Store.Hook("Clean", apptest.Hook{After: apptest.Slow(3 * time.Second)})
		w.Add(apptest.HeldByTheDead(job.Assigned))
		w.Store.Hook("Release", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
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
		require.Equal(t, 34, w.Store.Count("Orphans"), "a round that fails does not spin")
		require.NotEmpty(t, w.Log.Lines(t, map[string]any{"msg": "maintenance failed", "task": "rescuer"}))
	})
}

// asideStore is storage with jobs that were put aside, and may go on.
type asideStore struct {
	pauses job.Pauses
	tasks  []job.Task
	looks  int
	after  []job.ID
}

func (s *asideStore) Pauses(context.Context) (job.Pauses, error) { return s.pauses, nil }

func (s *asideStore) ResumePaused(_ context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error) {
	s.looks++
	s.after = append(s.after, after)
	n := min(limit, len(s.tasks))
	tasks, s.tasks = s.tasks[:n], s.tasks[n:]
	if n == limit {
		last = tasks[n-1].JobID
	}
	return tasks, last, nil
}

func (s *asideStore) add(n int) {
	for range n {
		s.tasks = append(s.tasks, job.Task{JobID: app.NewID(), Attempt: 1, Dispatch: 1})
	}
}

// What was put aside is looked at after a change of the pauses, for as long as a claim may have seen what was before, and now and
// then; not all the time.
func TestPausedJobsAreLookedAtAfterAChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		store := &asideStore{}
		sweep := &pauseSweep{store: store, relay: NewRelay(w.Store, w.Queue, w.Metrics)}
		looks := func() int {
			before := store.looks
			require.NoError(t, sweep.round(t.Context(), always))
			return store.looks - before
		}
		require.Equal(t, 1, looks(), "a leader that begins")
		require.Zero(t, looks())
		store.pauses = job.Pauses{{ID: app.NewID()}}
		require.Equal(t, 1, looks())
		require.Equal(t, 1, looks(), "a claim may put one aside still")
		time.Sleep(pauseSettles + 1)
		require.Zero(t, looks())
		store.pauses = nil
		require.Equal(t, 1, looks())
		time.Sleep(pauseSweepEvery)
		require.Equal(t, 1, looks())
		require.Zero(t, looks())
	})
}

// However many they are, in one round.
func TestResumedJobsAreEnqueued(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		store := &asideStore{}
		sweep := &pauseSweep{store: store, relay: NewRelay(w.Store, w.Queue, w.Metrics)}
		store.add(2*pauseBatch + 1)
		require.NoError(t, sweep.round(t.Context(), always))
		require.Empty(t, store.tasks)
		require.Len(t, w.Queue.tasks, 2*pauseBatch+1)
		require.EqualValues(t, 2*pauseBatch+1, w.repaired(app.Resumed))
	})
}

// throttled is storage with so many jobs that may be resumed.
type throttled struct {
	tasks []job.Task
	calls int
	most  int
}

func (s *throttled) ResumeThrottled(_ context.Context, most, limit int) ([]job.Task, error) {
	s.most, s.calls = most, s.calls+1
	n := min(limit, len(s.tasks))
	resumed := s.tasks[:n]
	s.tasks = s.tasks[n:]
	return resumed, nil
}

// In one round, however many they are; without a limit those of a limit that there was before.
func TestThrottledJobsAreDispatched(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		store, relay := &throttled{}, NewRelay(w.Store, w.Queue, w.Metrics)
		for range throttleBatch + 1 {
			store.tasks = append(store.tasks, job.Task{JobID: app.NewID(), Attempt: 1, Dispatch: 1})
		}
		round := Throttle{Store: store, Most: 7}.task(relay)
		require.Equal(t, throttleInterval, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, []int{7, 2}, []int{store.most, store.calls})
		require.EqualValues(t, throttleBatch+1, w.repaired(app.Resumed))

		round = Throttle{Store: store}.task(relay)
		require.Equal(t, throttleIntervalIdle, round.interval)
		require.NoError(t, round.run(t.Context(), always))
		require.Equal(t, math.MaxInt32, store.most)
	})
}
