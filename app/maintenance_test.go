package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// tasksOf is what a leader asks storage for again and again.
var tasksOf = []string{
	"QueueDue", "Waiting", "Orphans", "Clean", "ReclaimDeliveries", "DueClients", "FailOrphans", "UnpublishedOutcomes",
}

func TestOneOfManyLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		leaders := make([]*Maintenance, 5)
		for i := range leaders {
			leaders[i], _ = w.lead()
		}
		for range 100 {
			pass(700 * time.Millisecond)
			leading := 0
			for _, m := range leaders {
				if m.Leading() {
					leading++
				}
			}
			require.Equal(t, 1, leading)
		}
		for _, task := range tasksOf {
			require.NotZero(t, w.store.count(task), task)
		}
	})
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.leader, w.store.leaderUntil = newID(), time.Now().Add(time.Hour)
		m, _ := w.lead()
		pass(time.Minute)
		require.False(t, m.Leading())
		for _, task := range tasksOf {
			require.Zero(t, w.store.count(task), task)
		}
		require.Zero(t, w.metric(w.metrics.leading))
	})
}

func TestALeaderResigns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		first, stop := w.lead()
		require.True(t, first.Leading())
		require.Equal(t, 1.0, w.metric(w.metrics.leading))
		stop()
		require.False(t, first.Leading())
		require.Zero(t, w.metric(w.metrics.leading))
		second, _ := w.lead()
		require.True(t, second.Leading(), "at once")
	})
}

func TestADeadLeaderIsReplacedWithinSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		_, stop := w.lead()
		second, _ := w.lead()
		w.store.hook("Resign", hook{before: fails(-1, errStorage)})
		began := time.Now()
		stop()
		for !second.Leading() {
			pass(100 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), leaderLease+leaderInterval)
	})
}

// A leader that cannot ask any more must stop before storage lets another one
// lead.
func TestALeaderStopsByItsOwnClock(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"cannot ask":     fails(-1, errStorage),
		"gets no answer": hangs,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				m, _ := w.lead()
				asked := time.Now()
				pass(leaderInterval / 2)
				w.store.hook("Lead", hook{before: before})
				pass(time.Until(asked.Add(leaderLease)))
				require.False(t, m.Leading())
				counts := map[string]int{}
				for _, task := range tasksOf {
					counts[task] = w.store.count(task)
				}
				pass(time.Minute)
				for _, task := range tasksOf {
					require.Equal(t, counts[task], w.store.count(task), task)
				}
			})
		})
	}
}

func TestLostLeadershipShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.lead()
		w.store.hook("Lead", hook{before: fails(-1, errStorage)})
		pass(2 * leaderLease)
		require.Zero(t, w.metric(w.metrics.leading))
		require.NotZero(t, w.metric(w.metrics.maintenanceErrors.WithLabelValues("leader")))
		require.Len(t, w.log.lines(t, map[string]any{"msg": "leadership changed", "leading": false}), 1)
	})
}

// A process that was paused while it asked finds an answer of long ago.
func TestALateAnswerMakesNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.hook("Lead", hook{after: func(context.Context) error { time.Sleep(leaderLease + time.Second); return nil }})
		m, _ := w.lead()
		for range 50 {
			require.False(t, m.Leading())
			require.Zero(t, w.metric(w.metrics.leading))
			pass(300 * time.Millisecond)
		}
	})
}

func TestStoppingWhileStorageHangs(t *testing.T) {
	for _, operation := range append([]string{"Lead", "Resign", "Epoch"}, tasksOf...) {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				w.store.hook(operation, hook{before: hangs})
				_, stop := w.lead()
				pass(cleanerInterval + time.Second)
				began := time.Now()
				stop()
				require.LessOrEqual(t, time.Since(began), leaderInterval)
			})
		})
	}
}

func TestDeferredJobsAreQueuedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		tasks := make([]job.Task, 2*schedulerBatch+10)
		for i := range tasks {
			tasks[i] = w.addDeferred(10 * time.Second)
		}
		missed := w.addDeferred(-time.Hour)
		w.lead()
		pass(time.Second)
		require.Equal(t, job.Queued, w.store.job(missed.JobID).State, "a missed time is due at once")
		require.Equal(t, job.Created, w.store.job(tasks[0].JobID).State)
		pass(9*time.Second + schedulerInterval)
		for _, task := range tasks {
			require.Equal(t, job.Queued, w.store.job(task.JobID).State)
		}
		require.Equal(t, float64(len(tasks)+1), w.metric(w.metrics.repaired.WithLabelValues("scheduler")))
	})
}

func TestJobsOfDeadWorkersAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range rescuerBatch {
			w.add(heldByTheDead(job.Assigned))
			w.add(heldByTheDead(job.Running))
		}
		w.lead()
		pass(rescuerInterval)
		require.Empty(t, w.orphans(), "in one round, however many")
	})
}

func TestRescueDoesNotSpinOnTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 2 * rescuerBatch {
			w.add(heldByTheDead(job.Assigned))
		}
		w.store.hook("Release", hook{before: fails(-1, errStorage)})
		w.lead()
		pass(10*rescuerInterval + time.Millisecond)
		require.Equal(t, 10, w.store.count("Orphans"))
		require.Equal(t, 10.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("rescuer")))
		require.NotEmpty(t, w.log.lines(t, map[string]any{"msg": "maintenance failed", "task": "rescuer"}))
	})
}

func TestCleaningGoesOnWhileThereIsMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.cleanings = 7
		w.lead()
		pass(cleanerInterval + time.Millisecond)
		require.Equal(t, 8, w.store.count("Clean"))
		w.store.hook("Clean", hook{before: fails(1, errStorage)})
		pass(2 * cleanerInterval)
		require.Equal(t, 10, w.store.count("Clean"))
		require.Equal(t, 1.0, w.metric(w.metrics.maintenanceErrors.WithLabelValues("cleaner")))
	})
}

func TestLongRoundsEndWithLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.store.cleanings = 1 << 30
		w.store.hook("Clean", hook{after: func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }})
		w.lead()
		pass(cleanerInterval)
		w.store.hook("Lead", hook{before: fails(-1, errStorage)})
		pass(2 * leaderLease)
		cleanings := w.store.count("Clean")
		require.Greater(t, cleanings, 10)
		pass(time.Minute)
		require.Equal(t, cleanings, w.store.count("Clean"))
	})
}

func TestTwoLeadersForAMomentAreHarmless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 300 {
			w.add(heldByTheDead(job.Assigned))
			w.add(heldByTheDead(job.Running, func(r *row) { r.AutoRetry = true }))
			w.addDeferred(3 * time.Second)
		}
		a, _ := w.lead()
		b, _ := w.lead()
		for range 100 {
			for _, m := range []*Maintenance{a, b} { // storage would never say so
				m.setLeading(true, time.Now())
			}
			pass(100 * time.Millisecond)
		}
		require.Equal(t, 300.0, w.metric(w.metrics.repaired.WithLabelValues("scheduler")))
		require.Equal(t, 300.0, w.metric(w.metrics.repaired.WithLabelValues("rescuer_requeued")))
		require.Equal(t, 300.0, w.sum("jobs_failed_total"))
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		for _, r := range w.store.jobs {
			require.Equal(t, "pending", w.queue.state(taskOf(r)))
		}
	})
}
