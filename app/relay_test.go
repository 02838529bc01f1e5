package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func always() bool { return true }

// testWindow is a few batches.
const testWindow = 4 * relayBatch

// relaying makes a relay whose queue knows the epoch.
func relaying(t *testing.T) (*worldMaint, *Relay) {
	w := newWorldMaint(t)
	return w, NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger)
}

// old is a job that has been waiting for a while.
func old(age time.Duration) func(*row) {
	return func(r *row) { r.RunAt, r.UpdatedAt = r.RunAt.Add(-age), r.UpdatedAt.Add(-age) }
}

func (w *worldMaint) round(r *Relay) {
	w.t.Helper()
	require.NoError(w.t, r.round(context.Background(), always))
}

// inQueue asserts that a job's current task waits in the queue.
func (w *worldMaint) inQueue(t job.Task) {
	w.t.Helper()
	r := w.store.job(t.JobID)
	require.Equal(w.t, "pending", w.queue.state(taskOf(&r)))
}

// pending counts the tasks that the queue has.
func (w *worldMaint) pending() int {
	w.t.Helper()
	depth, err := w.queue.Depth(context.Background())
	require.NoError(w.t, err)
	return int(depth["pending"])
}

// backlog adds jobs that have been waiting for a minute and more, the oldest
// first.
func (w *worldMaint) backlog(n int) []job.Task {
	tasks := make([]job.Task, n)
	for i := range tasks {
		tasks[i] = w.add(old(time.Minute + time.Duration(n-i)*time.Second))
	}
	return tasks
}

func TestRelayDispatchesWhatNobodyEnqueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add()
		pass(time.Millisecond)
		w.round(r)
		require.Empty(t, w.queue.offered, "whoever changed it is about to enqueue it")
		pass(relayMinAge)
		w.round(r)
		w.inQueue(task)
		require.Equal(t, 1.0, w.metric(w.metrics.repaired.WithLabelValues("relay")))
		w.round(r)
		require.Equal(t, 1.0, w.metric(w.metrics.repaired.WithLabelValues("relay")), "once")
	})
}

func TestRelayDoesNotPassWhatItCouldNotDispatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.store.hook("Waiting", hook{after: func(context.Context) error { w.queue.err = errQueue; return nil }})
		require.ErrorIs(t, r.round(context.Background(), always), errQueue)
		require.Zero(t, r.front)

		w.store.hook("Waiting", hook{})
		w.queue.err = nil
		w.round(r)
		w.inQueue(task)
	})
}

// The next leader starts over, and finds what is in the queue there.
func TestRelayStartsOverInAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(3)
		w.round(r)
		w.round(NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger))
		for _, task := range tasks {
			w.inQueue(task)
			require.Zero(t, w.store.job(task.JobID).dispatch, "the task was present: no new name")
		}
		require.Equal(t, 3.0, w.metric(w.metrics.repaired.WithLabelValues("relay")))
	})
}

// What was in the queue before it was emptied says nothing about now.
func TestRelayDoesNotPassWhatALostQueueHad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.queue.onDispatch = func() {
			w.queue.onDispatch = nil
			w.queue.flush()
			other := NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger)
			_, err := other.currentEpoch(context.Background()) // another leader notices first
			require.NoError(t, err)
		}
		w.round(r)
		require.Zero(t, w.pending())
		w.round(r)
		w.inQueue(task)
	})
}

func TestRelayRenamesSpentTasks(t *testing.T) {
	for _, state := range []string{"active", "completed"} {
		t.Run(state, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				spent, fresh := w.add(old(time.Minute)), w.add(old(time.Minute))
				w.queue.set(spent, state)
				w.round(r)
				require.Equal(t, 1, w.store.job(spent.JobID).dispatch)
				require.Zero(t, w.store.job(fresh.JobID).dispatch)
				w.inQueue(spent)
				w.inQueue(fresh)
			})
		})
	}
}

func TestProbeFindsWhatIsSpentTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		next := task
		next.Dispatch++
		w.queue.set(task, "completed")
		w.queue.set(next, "completed")
		w.round(r)
		w.probe(r)
		w.inQueue(task)
	})
}

func TestRelayKeepsToTheHorizon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.addDeferred(dispatchHorizon + 10*time.Second)
		pass(9 * time.Second)
		w.round(r)
		require.Empty(t, w.queue.offered)
		pass(time.Second)
		w.round(r)
		w.inQueue(task)
	})
}

func TestRelayFillsTheWindowOldestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		const n = testWindow + 3*relayBatch + 7
		tasks := w.backlog(n)
		for range 3 {
			w.round(r)
			require.Equal(t, tasks[:testWindow], w.queue.offered, "the rest waits in storage alone")
		}
		done := 0
		for ; done+w.pending() < n; w.round(r) {
			for _, task := range tasks[done : done+700] {
				w.store.change(task.JobID, func(r *row) { r.State = job.Assigned })
				w.queue.done(task, nil)
			}
			done += 700
		}
		require.Equal(t, tasks, w.queue.offered, "in order, each once")
		require.Equal(t, float64(n), w.metric(w.metrics.repaired.WithLabelValues("relay")))
	})
}

// While the window is closed nobody but the relay enqueues, so nobody else is
// about to; as soon as others do, the young jobs are left to them.
func TestRelayTakesYoungJobsWhileItIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		w.backlog(1)
		w.round(r)
		young := w.add()
		w.round(r)
		w.inQueue(young)
		w.round(r)
		w.round(r)
		younger := w.add()
		pass(time.Millisecond)
		w.round(r)
		require.Empty(t, w.queue.state(younger), "whoever added it is about to enqueue it")
		require.True(t, r.front.RunAt.Before(young.RunAt), "what is committed late may come before it")
		pass(relayMinAge)
		w.round(r)
		w.inQueue(younger)
	})
}

func TestRelayGivesSoonDueJobsHalfOfTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		const n = testWindow
		tasks := make([]job.Task, n)
		for i := range tasks {
			tasks[i] = w.addDeferred(10*time.Second + time.Duration(i)*time.Millisecond)
		}
		for range 5 {
			w.round(r)
		}
		require.Equal(t, tasks[:n/2], w.queue.offered)
		due := w.add(old(time.Minute))
		w.round(r)
		w.inQueue(due)
		pass(30 * time.Second)
		w.round(r)
		for _, task := range tasks {
			w.inQueue(task)
		}
	})
}

// Far more jobs are about to become due than one look takes in: those that were
// looked at are not looked at again, but for the next ones.
func TestRelayLooksAheadOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		r := NewRelay(w.store, w.queue, 2*testWindow, w.metrics, w.logger)
		for i := range 2 * relayBatch {
			w.addDeferred(30*time.Second + time.Duration(i)*time.Millisecond)
		}
		w.round(r)
		w.round(r)
		lost, behind := w.addDeferred(20*time.Second), w.addDeferred(30*time.Second+(relayBatch+10)*time.Millisecond)
		offered := len(w.queue.offered)
		w.round(r)
		require.Len(t, w.queue.offered, offered+relayBatch)
		w.inQueue(lost)
		require.Empty(t, w.queue.state(behind))
		pass(32 * time.Second)
		w.round(r)
		w.inQueue(behind)
	})
}

func TestRelayStopsWithLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		for range 5 * relayBatch {
			w.add(old(time.Minute))
		}
		batches := 2
		require.NoError(t, r.round(context.Background(), func() bool { batches--; return batches >= 0 }))
		require.Len(t, w.queue.offered, 2*relayBatch)
	})
}

func TestRelayDoesNotSpinOnLockedRows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		for range 3 * relayBatch {
			w.queue.set(w.add(old(time.Minute), func(r *row) { r.locked = true }), "active")
		}
		last := w.add(old(30 * time.Second))
		w.round(r)
		require.LessOrEqual(t, w.store.count("Waiting"), 5)
		w.inQueue(last)
	})
}

func TestEpochIsRaisedWhenTheQueueLosesItsTasks(t *testing.T) {
	for name, lose := range map[string]func(*fakeQueue){
		"flushed":     (*fakeQueue).flush,
		"restarted":   func(q *fakeQueue) { q.change(func() { clear(q.tasks); q.runID = "another" }) },
		"rolled back": func(q *fakeQueue) { q.change(func() { clear(q.tasks); q.sentinel-- }) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				tasks := []job.Task{w.add(old(time.Hour)), w.add(old(time.Minute)), w.add(old(time.Second))}
				running := w.add(heldByTheDead(job.Running))
				w.round(r)
				lose(w.queue)
				w.round(r)
				for _, task := range tasks {
					w.inQueue(task)
				}
				require.Equal(t, job.Running, w.store.job(running.JobID).State)
				require.Equal(t, int64(2), w.store.epoch)
				require.Equal(t, int64(2), w.queue.sentinel)
				require.Equal(t, w.queue.runID, w.store.runID)
				for range 10 {
					w.round(r)
				}
				require.Equal(t, 1.0, w.metric(w.metrics.epochsRaised), "once")
			})
		})
	}
}

func TestEpochHealsAfterACrashBetweenItsTwoSteps(t *testing.T) {
	for name, crash := range map[string]func(*worldMaint){
		"sentinel not set": func(w *worldMaint) {
			failed := false
			w.queue.onSetEpoch = func() error {
				if !failed {
					failed = true
					return errQueue
				}
				return nil
			}
		},
		"epoch not raised":          func(w *worldMaint) { w.store.hook("RaiseEpoch", hook{before: fails(1, errStorage)}) },
		"answer lost after raising": func(w *worldMaint) { w.store.hook("RaiseEpoch", hook{after: fails(1, errStorage)}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				task := w.add(old(time.Hour))
				w.round(r)
				w.queue.flush()
				crash(w)
				require.Error(t, r.round(context.Background(), always))
				r = NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger)
				w.round(r)
				w.inQueue(task)
				require.Equal(t, w.store.epoch, w.queue.sentinel)
				raised := w.store.epoch
				w.round(r)
				require.Equal(t, raised, w.store.epoch)
			})
		})
	}
}

func TestTwoLeadersRaiseTheEpochAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a := relaying(t)
		b := NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger)
		task := w.add(old(time.Hour))
		w.queue.flush()
		w.store.hook("RaiseEpoch", hook{before: func(context.Context) error {
			w.store.hook("RaiseEpoch", hook{})
			w.round(b) // the other one is quicker
			return nil
		}})
		w.round(a)
		for range 3 {
			w.round(a)
			w.round(b)
		}
		w.inQueue(task)
		require.Equal(t, w.store.epoch, w.queue.sentinel)
		require.Equal(t, int64(2), w.store.epoch)
	})
}

func TestAFlushInTheMiddleOfABacklogIsNoticedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(4 * relayBatch)
		w.queue.onDispatch = func() {
			w.queue.onDispatch = nil
			w.queue.flush()
		}
		w.round(r)
		for _, task := range tasks {
			w.inQueue(task)
		}
	})
}

func TestNothingIsDispatchedWhileTheQueueIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.queue.err = errQueue
		require.ErrorIs(t, r.round(context.Background(), always), errQueue)
		require.Zero(t, r.front)
		require.Equal(t, int64(1), w.store.epoch, "silence is no sign of a loss")
		w.queue.err = nil
		w.round(r)
		w.inQueue(task)
	})
}

func (w *worldMaint) probe(r *Relay) {
	w.t.Helper()
	require.NoError(w.t, r.probe(context.Background()))
}

func TestProbeDispatchesAnewWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := w.backlog(5)
		w.round(r)
		beyond := w.add(old(5 * time.Second))
		missing, ended, abandoned, taken, present := tasks[0], tasks[1], tasks[2], tasks[3], tasks[4]
		w.queue.change(func() { delete(w.queue.tasks, taskName(missing)) })
		w.queue.set(ended, "completed")
		w.queue.set(abandoned, "abandoned")
		w.queue.set(taken, "active")
		w.probe(r)
		for _, task := range []job.Task{missing, ended, abandoned, present} {
			w.inQueue(task)
		}
		require.Equal(t, "active", w.queue.state(taken))
		require.Empty(t, w.queue.state(beyond), "the front has not come there")
		for task, dispatch := range map[job.Task]int{missing: 0, ended: 1, abandoned: 1, taken: 0, present: 0} {
			require.Equal(t, dispatch, w.store.job(task.JobID).dispatch)
		}
		require.Equal(t, 3.0, w.metric(w.metrics.repaired.WithLabelValues("probe")))
	})
}

func TestProbeGoesAround(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		const batches = 2*probeBatches + 1
		r := NewRelay(w.store, w.queue, batches*relayBatch, w.metrics, w.logger)
		tasks := w.backlog(batches*relayBatch - 50)
		w.round(r)
		for range 2 { // one turn is three rounds
			w.queue.change(func() { clear(w.queue.tasks) })
			for range 3 {
				w.probe(r)
			}
			for _, task := range tasks {
				w.inQueue(task)
			}
		}
		w.store.mu.Lock()
		clear(w.store.jobs)
		w.store.mu.Unlock()
		w.probe(r)
	})
}

func TestProbeReportsTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.round(r)
		w.queue.set(task, "completed")
		w.queue.err = errQueue
		require.ErrorIs(t, r.probe(context.Background()), errQueue)
		w.queue.err = nil
		for _, operation := range []string{"Waiting", "Redispatch"} {
			w.store.hook(operation, hook{before: fails(1, errStorage)})
			require.ErrorIs(t, r.probe(context.Background()), errStorage, operation)
		}
		w.probe(r)
		w.inQueue(task)
	})
}

// Whoever dies between the two steps of giving a task a new name leaves a job
// without a task.
func TestProbeFindsWhatWasRenamedOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.round(r)
		w.queue.set(task, "completed")
		w.store.hook("Redispatch", hook{after: fails(1, errStorage)})
		require.ErrorIs(t, r.probe(context.Background()), errStorage)
		w.probe(r)
		w.inQueue(task)
		require.Equal(t, 1, w.store.job(task.JobID).dispatch)
	})
}
