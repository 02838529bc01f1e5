package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func always() bool { return true }

// testWindow is a few batches.
const testWindow = 4 * relayBatch

// relaying makes a relay whose queue knows the epoch.
func relaying(t *testing.T) (*worldMaint, *Relay) {
	w := newWorldMaint(t)
	return w, NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
}

// old is a job that has been waiting for a while.
func old(age time.Duration) func(*apptest.Row) {
	return func(r *apptest.Row) { r.RunAt, r.UpdatedAt = r.RunAt.Add(-age), r.UpdatedAt.Add(-age) }
}

func (w *worldMaint) round(r *Relay) {
	w.T.Helper()
	require.NoError(w.T, r.round(context.Background(), always))
}

// inQueue asserts that a job's current task waits in the queue.
func (w *worldMaint) inQueue(t job.Task) {
	w.T.Helper()
	r := w.Store.RowOf(t.JobID)
	require.Equal(w.T, "pending", w.Queue.State(apptest.TaskOf(&r)))
}

// pending counts the tasks that the queue has.
func (w *worldMaint) pending() int {
	w.T.Helper()
	depth, err := w.Queue.Depth(context.Background())
	require.NoError(w.T, err)
	return int(depth["pending"])
}

// backlog adds jobs that have been waiting for a minute and more, the oldest
// first.
func (w *worldMaint) backlog(n int) []job.Task {
	tasks := make([]job.Task, n)
	for i := range tasks {
		tasks[i] = w.Add(old(time.Minute + time.Duration(n-i)*time.Second))
	}
	return tasks
}

func TestRelayDispatchesWhatNobodyEnqueued(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add()
		apptest.Pass(time.Millisecond)
		w.round(r)
		require.Empty(t, w.Queue.offered, "whoever changed it is about to enqueue it")
		apptest.Pass(relayMinAge)
		w.round(r)
		w.inQueue(task)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Repaired.WithLabelValues("relay")))
		w.round(r)
		require.Equal(t, 1.0, w.Metric(w.Metrics.Repaired.WithLabelValues("relay")), "once")
	})
}

func TestRelayDoesNotPassWhatItCouldNotDispatch(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.Store.Hook("Waiting", apptest.Hook{After: func(context.Context) error { w.Queue.Err = apptest.ErrQueue; return nil }})
		require.ErrorIs(t, r.round(context.Background(), always), apptest.ErrQueue)
		require.Zero(t, r.watermark)

		w.Store.Hook("Waiting", apptest.Hook{})
		w.Queue.Err = nil
		w.round(r)
		w.inQueue(task)
	})
}

// The next leader starts over, and finds what is in the queue there.
func TestRelayStartsOverInAnotherProcess(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(3)
		w.round(r)
		w.round(NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger))
		for _, task := range tasks {
			w.inQueue(task)
			require.Zero(t, w.Store.RowOf(task.JobID).Dispatch, "the task was present: no new name")
		}
		require.Equal(t, 3.0, w.Metric(w.Metrics.Repaired.WithLabelValues("relay")))
	})
}

// What was in the queue before it was emptied says nothing about now.
func TestRelayDoesNotPassWhatALostQueueHad(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.Queue.onDispatch = func() {
			w.Queue.onDispatch = nil
			w.Queue.Flush()
			other := NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
			_, err := other.currentEpoch(context.Background()) // another leader notices first
			require.NoError(t, err)
		}
		w.round(r)
		require.Zero(t, w.pending())
		w.round(r)
		w.inQueue(task)
	})
}

func TestRelayRenamesUsedTasks(t *testing.T) {
	for _, state := range []string{"abandoned", "completed"} {
		t.Run(state, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				used, fresh := w.Add(old(time.Minute)), w.Add(old(time.Minute))
				w.Queue.set(used, state)
				w.round(r)
				require.Equal(t, 1, w.Store.RowOf(used.JobID).Dispatch)
				require.Zero(t, w.Store.RowOf(fresh.JobID).Dispatch)
				w.inQueue(used)
				w.inQueue(fresh)
			})
		})
	}
}

// Its worker is about to claim the job.
func TestRelayLeavesATakenTaskAlone(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		taken := w.Add(old(time.Minute))
		w.Queue.set(taken, "active")
		w.round(r)
		require.Zero(t, w.Store.RowOf(taken.JobID).Dispatch)
		require.Zero(t, w.pending())
	})
}

func TestProbeFindsWhatIsUsedTwice(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		next := task
		next.Dispatch++
		w.Queue.set(task, "completed")
		w.Queue.set(next, "completed")
		w.round(r)
		w.probe(r)
		w.inQueue(task)
	})
}

// However far ahead a job's time is, it has a task; those that come next are looked for each time.
func TestRelayGivesJobsOfTheFuture(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		far := w.AddDeferred(1000 * time.Hour)
		w.round(r)
		w.inQueue(far)
		offered := len(w.Queue.offered)
		w.round(r)
		w.round(r)
		require.Len(t, w.Queue.offered, offered, "it is not looked at again")
		farther := w.AddDeferred(1001 * time.Hour)
		w.round(r)
		w.inQueue(farther)
		require.Len(t, w.Queue.offered, offered+1)
	})
}

// The farthest gave way to nearer ones, or were taken out with the jobs: the walk goes on from where the queue's tasks end.
func TestRelayRefillsWhatGaveWay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		var tasks []job.Task
		for i := range 5 {
			tasks = append(tasks, w.AddDeferred(time.Hour+time.Duration(i)*time.Minute))
		}
		w.round(r)
		for _, task := range tasks[2:] {
			w.Queue.Remove(task)
		}
		w.round(r)
		for _, task := range tasks {
			w.inQueue(task)
		}
		w.Store.Change(tasks[4].JobID, func(r *apptest.Row) { r.State = job.Canceled })
		w.Queue.Remove(tasks[4])
		w.round(r)
		offered := len(w.Queue.offered)
		w.round(r)
		require.Len(t, w.Queue.offered, offered, "there is nothing more")
	})
}

func TestRelayFillsTheWindowOldestFirst(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		const n = testWindow + 3*relayBatch + 7
		tasks := w.backlog(n)
		for range 3 {
			w.round(r)
			require.Equal(t, tasks[:testWindow], w.Queue.offered, "the rest waits in storage alone")
		}
		done := 0
		for ; done+w.pending() < n; w.round(r) {
			for _, task := range tasks[done : done+700] {
				w.Store.Change(task.JobID, func(r *apptest.Row) { r.State = job.Assigned })
				w.Queue.Change(func() { delete(w.Queue.Tasks, apptest.TaskName(task)) })
			}
			done += 700
		}
		require.Equal(t, tasks, w.Queue.offered, "in order, each once")
		require.Equal(t, float64(n), w.Metric(w.Metrics.Repaired.WithLabelValues("relay")))
	})
}

// While the window is closed nobody but the relay enqueues, so nobody else is
// about to; as soon as others do, the young jobs are left to them.
func TestRelayTakesYoungJobsWhileItIsAlone(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		w.backlog(1)
		w.round(r)
		young := w.Add()
		w.round(r)
		w.inQueue(young)
		w.round(r)
		w.round(r)
		younger := w.Add()
		apptest.Pass(time.Millisecond)
		w.round(r)
		require.Empty(t, w.Queue.State(younger), "whoever added it is about to enqueue it")
		require.True(t, r.watermark.RunAt.Before(young.RunAt), "what is committed late may come before it")
		apptest.Pass(relayMinAge)
		w.round(r)
		w.inQueue(younger)
	})
}

func TestRelayGivesSoonDueJobsHalfOfTheWindow(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		const n = testWindow
		tasks := make([]job.Task, n)
		for i := range tasks {
			tasks[i] = w.AddDeferred(10*time.Second + time.Duration(i)*time.Millisecond)
		}
		for range 5 {
			w.round(r)
		}
		require.Equal(t, tasks[:n/2], w.Queue.offered)
		due := w.Add(old(time.Minute))
		w.round(r)
		w.inQueue(due)
		apptest.Pass(30 * time.Second)
		w.round(r)
		for _, task := range tasks {
			w.inQueue(task)
		}
	})
}

// Jobs whose time will come are looked at once; the probe finds those whose task is missing all the same, and each round those
// that come next.
func TestRelayLooksAheadOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		r := NewRelay(w.Store, w.Queue, 4*testWindow, w.Metrics, w.Logger)
		for i := range 2 * relayBatch {
			w.AddDeferred(30*time.Second + time.Duration(i)*time.Millisecond)
		}
		w.round(r)
		offered := len(w.Queue.offered)
		require.Equal(t, 2*relayBatch, offered)
		lost, behind := w.AddDeferred(20*time.Second), w.AddDeferred(30*time.Second+(relayBatch+10)*time.Millisecond)
		w.round(r)
		require.Len(t, w.Queue.offered, offered)
		w.probe(r)
		w.inQueue(lost)
		require.Empty(t, w.Queue.State(behind), "one batch at a time")
		w.probe(r)
		w.inQueue(behind)
		late := w.AddDeferred(10 * time.Second)
		apptest.Pass(6 * time.Second)
		w.round(r)
		w.inQueue(late)
	})
}

func TestRelayStopsWithLeadership(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		for range 5 * relayBatch {
			w.Add(old(time.Minute))
		}
		batches := 2
		require.NoError(t, r.round(context.Background(), func() bool { batches--; return batches >= 0 }))
		require.Len(t, w.Queue.offered, 2*relayBatch)
	})
}

func TestRelayDoesNotSpinOnLockedRows(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		for range 3 * relayBatch {
			w.Queue.set(w.Add(old(time.Minute), func(r *apptest.Row) { r.Locked = true }), "active")
		}
		last := w.Add(old(30 * time.Second))
		w.round(r)
		require.LessOrEqual(t, w.Store.Count("Waiting"), 6)
		w.inQueue(last)
	})
}

func TestEpochIsRaisedWhenTheQueueLosesItsTasks(t *testing.T) {
	for name, lose := range map[string]func(*fakeQueue){
		"flushed":     func(q *fakeQueue) { q.Flush() },
		"restarted":   func(q *fakeQueue) { q.Change(func() { clear(q.Tasks); q.RunID = "another" }) },
		"rolled back": func(q *fakeQueue) { q.Change(func() { clear(q.Tasks); q.Sentinel-- }) },
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				tasks := []job.Task{w.Add(old(time.Hour)), w.Add(old(time.Minute)), w.Add(old(time.Second))}
				running := w.Add(apptest.HeldByTheDead(job.Running))
				w.round(r)
				lose(w.Queue)
				w.round(r)
				for _, task := range tasks {
					w.inQueue(task)
				}
				require.Equal(t, job.Running, w.Store.RowOf(running.JobID).State)
				require.Equal(t, int64(2), w.Store.DispatchEpoch)
				require.Equal(t, int64(2), w.Queue.Sentinel)
				require.Equal(t, w.Queue.RunID, w.Store.RunID)
				for range 10 {
					w.round(r)
				}
				require.Equal(t, 1.0, w.Metric(w.Metrics.EpochsRaised), "once")
				if name == "restarted" {
					require.Empty(t, w.Log.Lines(t, map[string]any{"level": "WARN", "action": "dispatch"}), "a restart is nothing to worry about")
				}
			})
		})
	}
}

func TestEpochHealsAfterACrashBetweenItsTwoSteps(t *testing.T) {
	for name, crash := range map[string]func(*worldMaint){
		"sentinel not set": func(w *worldMaint) {
			failed := false
			w.Queue.onSetEpoch = func() error {
				if !failed {
					failed = true
					return apptest.ErrQueue
				}
				return nil
			}
		},
		"epoch not raised": func(w *worldMaint) {
			w.Store.Hook("RaiseEpoch", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		},
		"answer lost after raising": func(w *worldMaint) {
			w.Store.Hook("RaiseEpoch", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				task := w.Add(old(time.Hour))
				w.round(r)
				w.Queue.Flush()
				crash(w)
				require.Error(t, r.round(context.Background(), always))
				r = NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
				w.round(r)
				w.inQueue(task)
				require.Equal(t, w.Store.DispatchEpoch, w.Queue.Sentinel)
				raised := w.Store.DispatchEpoch
				w.round(r)
				require.Equal(t, raised, w.Store.DispatchEpoch)
			})
		})
	}
}

func TestTwoLeadersRaiseTheEpochAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, a := relaying(t)
		b := NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
		task := w.Add(old(time.Hour))
		w.Queue.Flush()
		w.Store.Hook("RaiseEpoch", apptest.Hook{Before: func(context.Context) error {
			w.Store.Hook("RaiseEpoch", apptest.Hook{})
			w.round(b) // the other one is quicker
			return nil
		}})
		w.round(a)
		for range 3 {
			w.round(a)
			w.round(b)
		}
		w.inQueue(task)
		require.Equal(t, w.Store.DispatchEpoch, w.Queue.Sentinel)
		require.Equal(t, int64(2), w.Store.DispatchEpoch)
	})
}

func TestAFlushInTheMiddleOfABacklogIsNoticedAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(4 * relayBatch)
		w.Queue.onDispatch = func() {
			w.Queue.onDispatch = nil
			w.Queue.Flush()
		}
		w.round(r)
		for _, task := range tasks {
			w.inQueue(task)
		}
	})
}

func TestNothingIsDispatchedWhileTheQueueIsAway(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.Queue.Err = apptest.ErrQueue
		require.ErrorIs(t, r.round(context.Background(), always), apptest.ErrQueue)
		require.Zero(t, r.watermark)
		require.Equal(t, int64(1), w.Store.DispatchEpoch, "silence is no sign of a loss")
		w.Queue.Err = nil
		w.round(r)
		w.inQueue(task)
	})
}

func (w *worldMaint) probe(r *Relay) {
	w.T.Helper()
	require.NoError(w.T, r.probe(context.Background(), nil))
}

func TestProbeDispatchesAnewWhatIsMissing(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(5)
		w.round(r)
		beyond := w.Add(old(5 * time.Second))
		missing, ended, abandoned, taken, present := tasks[0], tasks[1], tasks[2], tasks[3], tasks[4]
		w.Queue.Change(func() { delete(w.Queue.Tasks, apptest.TaskName(missing)) })
		w.Queue.set(ended, "completed")
		w.Queue.set(abandoned, "abandoned")
		w.Queue.set(taken, "active")
		w.probe(r)
		for _, task := range []job.Task{missing, ended, abandoned, present} {
			w.inQueue(task)
		}
		require.Equal(t, "active", w.Queue.State(taken))
		require.Empty(t, w.Queue.State(beyond), "the watermark has not come there")
		for task, dispatch := range map[job.Task]int{missing: 0, ended: 1, abandoned: 1, taken: 0, present: 0} {
			require.Equal(t, dispatch, w.Store.RowOf(task.JobID).Dispatch)
		}
		require.Equal(t, 3.0, w.Metric(w.Metrics.Repaired.WithLabelValues("probe")))
	})
}

func TestProbeGoesAround(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const batches = 2*probeBatches + 1
		r := NewRelay(w.Store, w.Queue, batches*relayBatch, w.Metrics, w.Logger)
		tasks := w.backlog(batches*relayBatch - 50)
		w.round(r)
		for range 2 { // one turn is three rounds
			w.Queue.Change(func() { clear(w.Queue.Tasks) })
			for range 3 {
				w.probe(r)
			}
			for _, task := range tasks {
				w.inQueue(task)
			}
		}
		w.Store.Mu.Lock()
		clear(w.Store.Rows)
		w.Store.Mu.Unlock()
		w.probe(r)
	})
}

func TestProbeReportsTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.round(r)
		w.Queue.set(task, "completed")
		w.Queue.Err = apptest.ErrQueue
		require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrQueue)
		w.Queue.Err = nil
		for _, operation := range []string{"Waiting", "Redispatch"} {
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
			require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrStorage, operation)
		}
		w.probe(r)
		w.inQueue(task)
	})
}

// Whoever dies between the two steps of giving a task a new name leaves a job
// without a task.
func TestProbeFindsWhatWasRenamedOnly(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.round(r)
		w.Queue.set(task, "completed")
		w.Store.Hook("Redispatch", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrStorage)
		w.probe(r)
		w.inQueue(task)
		require.Equal(t, 1, w.Store.RowOf(task.JobID).Dispatch)
	})
}

// A job that is put aside while its lost task is looked for gets no task: it would be one of a time that does not come.
func TestProbeLeavesWhatIsAside(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.Add(old(time.Minute))
		w.round(r)
		w.Queue.set(task, "completed")
		w.Store.Hook("Redispatch", apptest.Hook{Before: func(context.Context) error {
			w.Store.Change(task.JobID, func(row *apptest.Row) { row.RunAt = job.PausedUntil })
			return nil
		}})
		w.probe(r)
		require.Equal(t, 1, w.Store.RowOf(task.JobID).Dispatch)
		task.Dispatch = 1
		require.Empty(t, w.Queue.State(task))
	})
}
