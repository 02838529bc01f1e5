package maintenance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

// tasksOf is what a leader asks storage for again and again.
var tasksOf = []string{
	"QueueDue", "Waiting", "Orphans", "Clean", "ReclaimDeliveries", "DueDeliveries", "FailOrphans", "UnpublishedOutcomes",
}

// counts is how often each of them was asked.
func (w *worldMaint) counts() map[string]int {
	counts := map[string]int{}
	for _, task := range tasksOf {
		counts[task] = w.Store.Count(task)
	}
	return counts
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.otherLeads()
		m, _ := w.lead()
		apptest.Pass(time.Minute)
		require.False(t, m.Leading())
		for task, n := range w.counts() {
			require.Zero(t, n, task)
		}
		w.requireNoBacklog()
		require.Zero(t, w.Store.Count("Backlog"))
		require.Empty(t, w.History.written)
	})
}

func TestALeaderIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		first, stop := w.lead()
		require.True(t, first.Leading())
		require.Equal(t, 1.0, w.Metric(w.Metrics.Leading))
		stop()
		require.False(t, first.Leading())
		require.Zero(t, w.Metric(w.Metrics.Leading))
		second, stop := w.lead()
		require.True(t, second.Leading(), "at once")

		third, _ := w.lead()
		w.Store.Hook("Resign", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		began := time.Now()
		stop() // as who dies
		for !third.Leading() {
			apptest.Pass(100 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), leaderLease+leaderInterval)
	})
}

// A leader that cannot ask any more must stop before storage lets another one
// lead; a long round ends with the leadership.
func TestALeaderStopsByItsOwnClock(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"cannot ask": apptest.Fails(-1, apptest.ErrStorage), "gets no answer": apptest.Hangs,
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldMaint(t)
			w.Store.cleanings = 1 << 30
			w.Store.Hook("Clean", apptest.Hook{After: apptest.Slow(100 * time.Millisecond)})
			m, _ := w.lead()
			apptest.Pass(cleanerInterval + 10*time.Second)
			require.InDelta(t, 50, w.Store.Count("Clean"), 2, "the cleaner leaves storage as much time as it takes")
			w.Store.Hook("Lead", apptest.Hook{Before: before})
			var until time.Time
			w.Store.Update(func() { until = w.Store.leaderUntil })
			apptest.Pass(time.Until(until))
			require.False(t, m.Leading())
			counts := w.counts()
			apptest.Pass(time.Minute)
			require.Equal(t, counts, w.counts())
			require.Zero(t, w.Metric(w.Metrics.Leading))
			require.Equal(t, name == "cannot ask", w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("leader")) > 0)
			require.Len(t, w.Log.Lines(t, map[string]any{"msg": "leadership changed", "leading": false}), 1)
		})
	}
}

// A process that was paused while it asked finds an answer of long ago.
func TestALateAnswerMakesNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.Store.Hook("Lead", apptest.Hook{After: apptest.Slow(leaderLease + time.Second)})
		m, _ := w.lead()
		for range 50 {
			require.False(t, m.Leading())
			require.Zero(t, w.Metric(w.Metrics.Leading))
			apptest.Pass(300 * time.Millisecond)
		}
	})
}

func TestStoppingWhileStorageHangs(t *testing.T) {
	for _, operation := range append([]string{"Lead", "Resign"}, tasksOf...) {
		apptest.Run(t, operation, func(t *testing.T) {
			w := newWorldMaint(t)
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Hangs})
			_, stop := w.lead()
			apptest.Pass(cleanerInterval + time.Second)
			began := time.Now()
			stop()
			require.LessOrEqual(t, time.Since(began), leaderInterval)
		})
	}
}

func TestDeferredJobsAreQueuedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		task, missed := w.AddDeferred(10*time.Second), w.AddDeferred(-time.Hour)
		w.Store.Change(missed.JobID, func(r *apptest.Row) { r.Callback = "https://receiver.example" })
		w.lead()
		apptest.Pass(time.Second)
		require.Equal(t, job.Queued, w.Store.RowOf(missed.JobID).State, "a missed time is due at once")
		require.Equal(t, job.Created, w.Store.RowOf(task.JobID).State)
		apptest.Pass(9*time.Second + SchedulerInterval)
		require.Equal(t, job.Queued, w.Store.RowOf(task.JobID).State)
		require.Equal(t, []float64{2, 2}, []float64{w.Metric(w.Metrics.Repaired.WithLabelValues("scheduler")), w.Sum("jobs_queued_total")})
		require.InDelta(t, 3600, w.Sum("job_schedule_lateness_seconds"), 2*SchedulerInterval.Seconds())
		require.Equal(t, []job.ID{missed.JobID}, w.Queue.Delivered(), "it has a callback")
	})
}

func TestJobsOfDeadWorkersAreGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		for range rescuerBatch {
			w.Add(apptest.HeldByTheDead(job.Assigned))
			w.Add(apptest.HeldByTheDead(job.Running))
		}
		w.lead()
		apptest.Pass(RescuerInterval)
		require.Empty(t, w.Orphans(), "in one round, however many")
		for _, state := range []string{"ASSIGNED", "RUNNING"} {
			require.EqualValues(t, rescuerBatch, w.Metric(w.Metrics.LeasesExpired.WithLabelValues(state)))
		}
	})
}

func TestCleaningGoesOnWhileThereIsMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
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

// The process that ended the last job died before it completed the batch. A round looks at the open batches after those of the round
// before, and then from the beginning again.
func TestMaintenanceCompletesWhatNobodyDid(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		early, late, open := w.addBatch(job.Succeeded), w.addBatch(job.Succeeded), w.addBatch(job.Queued)
		m := w.maintenance()
		m.completeAfter = early.ID
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		round := func() error { return m.completeBatches(t.Context(), always) }
		require.ErrorIs(t, round(), apptest.ErrStorage)
		require.Equal(t, early.ID, m.completeAfter, "they are tried again")
		require.NoError(t, round())
		require.Equal(t, []bool{false, true}, []bool{early.Outcome != nil, late.Outcome != nil})
		for range batches.ChunkSize + 5 {
			w.addBatch(job.Succeeded)
		}
		w.lead()
		apptest.Pass(completerInterval)
		require.NotNil(t, early.Outcome)
		require.Nil(t, open.Outcome)
		require.EqualValues(t, 2+batches.ChunkSize+5, w.Metric(w.Metrics.Repaired.WithLabelValues("batch_completer")))
		require.EqualValues(t, 2+batches.ChunkSize+5, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues("COMPLETED")))
	})
}

// addBatch stores a batch of one job.
func (w *worldMaint) addBatch(state job.State) *job.Batch {
	b := &job.Batch{ID: app.NewID(), ClientID: apptest.ClientA, RequestID: "request-1", CreatedAt: time.Now()}
	w.Store.Update(func() { w.Store.Batches[b.ID] = b })
	w.Add(func(r *apptest.Row) { r.BatchID, r.State = b.ID, state })
	return b
}

// obstacle fails or hangs a vital task of one process, while it is set.
type obstacle struct {
	mu     sync.Mutex
	before func(context.Context) error
}

func (o *obstacle) set(before func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = before
}

func (o *obstacle) meet(ctx context.Context) error {
	o.mu.Lock()
	before := o.before
	o.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx)
}

func (o *obstacle) put(m *Maintenance, name string) {
	for _, t := range m.tasks {
		if run := t.run; t.name == name {
			t.run = func(ctx context.Context, leading func() bool) error {
				if err := o.meet(ctx); err != nil {
					return err
				}
				return run(ctx, leading)
			}
		}
	}
}

// obstructed runs a maintenance with an obstacle in the way of a task.
func (w *worldMaint) obstructed(o *obstacle, name string) *Maintenance {
	m := w.maintenance()
	o.put(m, name)
	w.Background(m.Run)
	return m
}

func TestALeaderThatCannotWorkIsReplaced(t *testing.T) {
	for _, name := range []string{"scheduler", "relay", "rescuer", "deliveries"} {
		for kind, before := range map[string]func(context.Context) error{"fails": apptest.Fails(-1, apptest.ErrStorage), "hangs": apptest.Hangs} {
			apptest.Run(t, name+" "+kind, func(t *testing.T) {
				w := newWorldMaint(t)
				o := &obstacle{}
				first := w.obstructed(o, name)
				second, _ := w.lead()
				apptest.Pass(10 * time.Second)
				require.True(t, first.Leading())
				o.set(before)
				apptest.Pass(blockedAfter - time.Second)
				require.True(t, first.Leading())
				apptest.Pass(4 * time.Second)
				require.False(t, first.Leading())
				require.True(t, second.Leading())
				require.Equal(t, 1.0, w.Sum("maintenance_blocked"))
				apptest.Pass(time.Minute)
				require.True(t, second.Leading())
			})
		}
	}
}

// Once the obstacle is gone, a process can lead again.
func TestAProcessFindsOutThatItCanLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		o := &obstacle{before: apptest.Fails(-1, apptest.ErrStorage)}
		first := w.obstructed(o, "relay")
		second, stop := w.lead()
		apptest.Pass(blockedAfter + 3*time.Second)
		require.True(t, second.Leading())
		o.set(nil)
		apptest.Pass(2 * time.Second)
		require.Zero(t, w.Sum("maintenance_blocked"))
		require.True(t, second.Leading(), "it asks nobody to step back")
		stop()
		apptest.Pass(2 * time.Second)
		require.True(t, first.Leading())
	})
}

// Where nobody can do all of it, one does what it can, without a pause.
func TestSomebodyLeadsThoughAllAreBlocked(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		o := &obstacle{}
		all := []*Maintenance{w.obstructed(o, "relay"), w.obstructed(o, "relay"), w.obstructed(o, "relay")}
		apptest.Pass(time.Second)
		o.set(apptest.Fails(-1, apptest.ErrStorage))
		for range 300 {
			apptest.Pass(100 * time.Millisecond)
			leading := 0
			for _, m := range all {
				if m.Leading() {
					leading++
				}
			}
			require.Positive(t, leading)
		}
		changes := len(w.Log.Lines(t, map[string]any{"msg": "leadership changed"}))
		apptest.Pass(time.Minute)
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "leadership changed"}), changes, "it does not go round and round")
	})
}

// A round that takes long is not one that hangs.
func TestALongRoundIsNoObstacle(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		m := w.maintenance()
		for _, task := range m.tasks {
			if task.name == "scheduler" {
				task.run = func(_ context.Context, leading func() bool) error {
					for range 100 {
						leading()
						time.Sleep(time.Second)
					}
					return nil
				}
			}
		}
		w.Background(m.Run)
		second, _ := w.lead()
		apptest.Pass(time.Minute)
		require.True(t, m.Leading())
		require.False(t, second.Leading())
	})
}
