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

// tasksOf is what a leader asks storage for again and again.
var tasksOf = []string{
	"QueueDue", "Waiting", "Orphans", "Clean", "ReclaimDeliveries", "DueClients", "WaitingDeliveries", "FailOrphans", "UnpublishedOutcomes",
}

func TestOneOfManyLeads(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		leaders := make([]*Maintenance, 5)
		for i := range leaders {
			leaders[i], _ = w.lead()
		}
		for range 100 {
			apptest.Pass(700 * time.Millisecond)
			leading := 0
			for _, m := range leaders {
				if m.Leading() {
					leading++
				}
			}
			require.Equal(t, 1, leading)
		}
		for _, task := range tasksOf {
			require.NotZero(t, w.Store.Count(task), task)
		}
	})
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.Leader, w.Store.LeaderUntil = app.NewID(), time.Now().Add(time.Hour)
		m, _ := w.lead()
		apptest.Pass(time.Minute)
		require.False(t, m.Leading())
		for _, task := range tasksOf {
			require.Zero(t, w.Store.Count(task), task)
		}
		require.Zero(t, w.Metric(w.Metrics.Leading))
	})
}

func TestALeaderResigns(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		first, stop := w.lead()
		require.True(t, first.Leading())
		require.Equal(t, 1.0, w.Metric(w.Metrics.Leading))
		stop()
		require.False(t, first.Leading())
		require.Zero(t, w.Metric(w.Metrics.Leading))
		second, _ := w.lead()
		require.True(t, second.Leading(), "at once")
	})
}

func TestADeadLeaderIsReplacedWithinSeconds(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		_, stop := w.lead()
		second, _ := w.lead()
		w.Store.Hook("Resign", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		began := time.Now()
		stop()
		for !second.Leading() {
			apptest.Pass(100 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), leaderLease+leaderInterval)
	})
}

// A leader that cannot ask any more must stop before storage lets another one
// lead.
func TestALeaderStopsByItsOwnClock(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"cannot ask":     apptest.Fails(-1, apptest.ErrStorage),
		"gets no answer": apptest.Hangs,
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				m, _ := w.lead()
				asked := time.Now()
				apptest.Pass(leaderInterval / 2)
				w.Store.Hook("Lead", apptest.Hook{Before: before})
				apptest.Pass(time.Until(asked.Add(leaderLease)))
				require.False(t, m.Leading())
				counts := map[string]int{}
				for _, task := range tasksOf {
					counts[task] = w.Store.Count(task)
				}
				apptest.Pass(time.Minute)
				for _, task := range tasksOf {
					require.Equal(t, counts[task], w.Store.Count(task), task)
				}
			})
		})
	}
}

func TestLostLeadershipShows(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.lead()
		w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		apptest.Pass(2 * leaderLease)
		require.Zero(t, w.Metric(w.Metrics.Leading))
		require.NotZero(t, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("leader")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "leadership changed", "leading": false}), 1)
	})
}

// A process that was paused while it asked finds an answer of long ago.
func TestALateAnswerMakesNoLeader(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.Hook("Lead", apptest.Hook{After: func(context.Context) error { time.Sleep(leaderLease + time.Second); return nil }})
		m, _ := w.lead()
		for range 50 {
			require.False(t, m.Leading())
			require.Zero(t, w.Metric(w.Metrics.Leading))
			apptest.Pass(300 * time.Millisecond)
		}
	})
}

func TestStoppingWhileStorageHangs(t *testing.T) {
	for _, operation := range append([]string{"Lead", "Resign", "Epoch"}, tasksOf...) {
		t.Run(operation, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				w.Store.Hook(operation, apptest.Hook{Before: apptest.Hangs})
				_, stop := w.lead()
				apptest.Pass(cleanerInterval + time.Second)
				began := time.Now()
				stop()
				require.LessOrEqual(t, time.Since(began), leaderInterval)
			})
		})
	}
}

func TestDeferredJobsAreQueuedInTime(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		tasks := make([]job.Task, 2*schedulerBatch+10)
		for i := range tasks {
			tasks[i] = w.AddDeferred(10 * time.Second)
		}
		missed := w.AddDeferred(-time.Hour)
		w.lead()
		apptest.Pass(time.Second)
		require.Equal(t, job.Queued, w.Store.RowOf(missed.JobID).State, "a missed time is due at once")
		require.Equal(t, job.Created, w.Store.RowOf(tasks[0].JobID).State)
		apptest.Pass(9*time.Second + SchedulerInterval)
		for _, task := range tasks {
			require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State)
		}
		require.Equal(t, float64(len(tasks)+1), w.Metric(w.Metrics.Repaired.WithLabelValues("scheduler")))
	})
}

func TestJobsOfDeadWorkersAreGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range rescuerBatch {
			w.Add(apptest.HeldByTheDead(job.Assigned))
			w.Add(apptest.HeldByTheDead(job.Running))
		}
		w.lead()
		apptest.Pass(RescuerInterval)
		require.Empty(t, w.Orphans(), "in one round, however many")
	})
}

func TestRescueDoesNotSpinOnTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 2 * rescuerBatch {
			w.Add(apptest.HeldByTheDead(job.Assigned))
		}
		w.Store.Hook("Release", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		w.lead()
		apptest.Pass(10*RescuerInterval + time.Millisecond)
		require.Equal(t, 10, w.Store.Count("Orphans"))
		require.Equal(t, 10.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("rescuer")))
		require.NotEmpty(t, w.Log.Lines(t, map[string]any{"msg": "maintenance failed", "task": "rescuer"}))
	})
}

func TestCleaningGoesOnWhileThereIsMore(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.cleanings = 7
		w.lead()
		apptest.Pass(cleanerInterval + time.Millisecond)
		require.Equal(t, 8, w.Store.Count("Clean"))
		w.Store.Hook("Clean", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		apptest.Pass(2 * cleanerInterval)
		require.Equal(t, 10, w.Store.Count("Clean"))
		require.Equal(t, 1.0, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("cleaner")))
	})
}

func TestLongRoundsEndWithLeadership(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.Store.cleanings = 1 << 30
		w.Store.Hook("Clean", apptest.Hook{After: func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }})
		w.lead()
		apptest.Pass(cleanerInterval)
		w.Store.Hook("Lead", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		apptest.Pass(2 * leaderLease)
		cleanings := w.Store.Count("Clean")
		require.Greater(t, cleanings, 10)
		apptest.Pass(time.Minute)
		require.Equal(t, cleanings, w.Store.Count("Clean"))
	})
}

func TestTwoLeadersForAMomentAreHarmless(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 300 {
			w.Add(apptest.HeldByTheDead(job.Assigned))
			w.Add(apptest.HeldByTheDead(job.Running, func(r *apptest.Row) { r.AutoRetry = true }))
			w.AddDeferred(3 * time.Second)
		}
		a, _ := w.lead()
		b, _ := w.lead()
		for range 100 {
			for _, m := range []*Maintenance{a, b} { // storage would never say so
				m.setLeading(true, time.Now())
			}
			apptest.Pass(100 * time.Millisecond)
		}
		require.Equal(t, 300.0, w.Metric(w.Metrics.Repaired.WithLabelValues("scheduler")))
		require.Equal(t, 300.0, w.Metric(w.Metrics.Repaired.WithLabelValues("rescuer_requeued")))
		require.Equal(t, 300.0, w.Sum("jobs_failed_total"))
		w.Store.Mu.Lock()
		defer w.Store.Mu.Unlock()
		for _, r := range w.Store.Rows {
			require.Equal(t, "pending", w.Queue.State(apptest.TaskOf(r)))
		}
	})
}
