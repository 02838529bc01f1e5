package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func always() bool { return true }

// relaying makes a relay whose queue knows the epoch.
func relaying(t *testing.T) (*world, *Relay) {
	w := newWorld(t)
	return w, NewRelay(w.store, w.queue, w.metrics, w.logger)
}

// old is a job that has been waiting for a while.
func old(age time.Duration) func(*row) {
	return func(r *row) { r.RunAt, r.UpdatedAt = r.RunAt.Add(-age), r.UpdatedAt.Add(-age) }
}

func (w *world) round(r *Relay) {
	w.t.Helper()
	require.NoError(w.t, r.round(context.Background(), always))
}

// inQueue asserts that a job's current task waits in the queue, stamped with
// the current epoch.
func (w *world) inQueue(t job.Task) {
	w.t.Helper()
	r := w.store.job(t.JobID)
	require.Equal(w.t, "pending", w.queue.state(taskOf(&r)))
	require.Equal(w.t, w.store.epoch, r.stamp)
}

func TestRelayDispatchesWhatNobodyEnqueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add()
		w.round(r)
		require.Empty(t, w.queue.offered, "whoever changed it is about to enqueue it")
		pass(relayMinAge)
		w.round(r)
		w.inQueue(task)
		require.Equal(t, 1.0, w.metric(w.metrics.repaired.WithLabelValues("relay")))
		w.round(r)
		require.Len(t, w.queue.offered, 1, "once")
	})
}

func TestRelayStampsAfterTheDispatchOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.queue.onDispatch = func() { require.Zero(t, w.store.job(task.JobID).stamp) }
		w.round(r)
		w.inQueue(task)
	})
}

func TestRelayDoesNotStampWhatItCouldNotDispatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.store.hook("Undispatched", hook{after: func(context.Context) error { w.queue.err = errQueue; return nil }})
		require.ErrorIs(t, r.round(context.Background(), always), errQueue)
		require.Zero(t, w.store.job(task.JobID).stamp)

		w.store.hook("Undispatched", hook{})
		w.queue.err = nil
		w.round(r)
		w.inQueue(task)
	})
}

func TestRelayFindsAgainWhatItDiedBeforeStamping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.store.hook("Stamp", hook{before: fails(1, errStorage)})
		require.ErrorIs(t, r.round(context.Background(), always), errStorage)
		w.round(NewRelay(w.store, w.queue, w.metrics, w.logger)) // the next leader's
		w.inQueue(task)
		require.Zero(t, w.store.job(task.JobID).dispatch, "the task was present: no new name")
	})
}

// The stamp says what was known before the dispatch: if the queue is emptied
// between the two, the job must be dispatched once more.
func TestRelayStampsWithTheEpochReadBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		w.queue.onDispatch = func() {
			w.queue.onDispatch = nil
			w.queue.flush()
			other := NewRelay(w.store, w.queue, w.metrics, w.logger)
			_, err := other.currentEpoch(context.Background()) // another leader notices first
			require.NoError(t, err)
		}
		w.round(r)
		require.NotEqual(t, w.store.epoch, w.store.job(task.JobID).stamp)
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

func TestRelayDoesNotStampWhatIsSpentTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(old(time.Minute))
		next := task
		next.Dispatch++
		w.queue.set(task, "completed")
		w.queue.set(next, "completed")
		w.round(r)
		require.Zero(t, w.store.job(task.JobID).stamp)
		w.round(NewRelay(w.store, w.queue, w.metrics, w.logger))
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

func TestRelayWorksOffABacklogOldestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		const n = 3*relayBatch + 7
		for i := range n {
			w.add(old(time.Duration(i+1) * time.Minute))
		}
		w.round(r)
		require.Len(t, w.queue.offered, n)
		for i := range n - 1 {
			require.False(t, w.queue.offered[i].RunAt.After(w.queue.offered[i+1].RunAt))
		}
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
		require.LessOrEqual(t, w.store.count("Undispatched"), 4)
		w.inQueue(last)
	})
}

func TestRelayCursor(t *testing.T) {
	t.Run("old jobs that were stamped are not looked at again, until the rescan", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w, r := relaying(t)
			task := w.add(old(time.Hour))
			w.round(r)
			require.Equal(t, task.JobID, r.place.JobID)
			w.store.change(task.JobID, func(r *row) { r.stamp, r.dispatch = 0, 1 })
			pass(relayRescan)
			w.round(r)
			require.Len(t, w.queue.offered, 1)
			pass(time.Second)
			w.round(r)
			w.inQueue(task)
		})
	})
	t.Run("jobs that appear late are found at once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w, r := relaying(t)
			w.add(old(time.Hour))
			w.add(old(2 * time.Second))
			w.round(r)
			late := w.add(old(5 * time.Second)) // committed after a slow statement
			w.round(r)
			w.inQueue(late)
		})
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
	for name, crash := range map[string]func(*world){
		"sentinel not set": func(w *world) {
			failed := false
			w.queue.onSetEpoch = func() error {
				if !failed {
					failed = true
					return errQueue
				}
				return nil
			}
		},
		"epoch not raised":          func(w *world) { w.store.hook("RaiseEpoch", hook{before: fails(1, errStorage)}) },
		"answer lost after raising": func(w *world) { w.store.hook("RaiseEpoch", hook{after: fails(1, errStorage)}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, r := relaying(t)
				task := w.add(old(time.Hour))
				w.round(r)
				w.queue.flush()
				crash(w)
				require.Error(t, r.round(context.Background(), always))
				r = NewRelay(w.store, w.queue, w.metrics, w.logger)
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
		b := NewRelay(w.store, w.queue, w.metrics, w.logger)
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
		tasks := make([]job.Task, 4*relayBatch)
		for i := range tasks {
			tasks[i] = w.add(old(time.Duration(i+1) * time.Minute))
		}
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
		require.Zero(t, w.store.count("Stamp"))
		require.Equal(t, int64(1), w.store.epoch, "silence is no sign of a loss")
		w.queue.err = nil
		w.round(r)
		w.inQueue(task)
	})
}

func stamped(epoch int64, age time.Duration) func(*row) {
	return func(r *row) {
		old(age)(r)
		r.stamp = epoch
	}
}

func TestProbeDispatchesAnewWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		missing := w.add(stamped(1, time.Minute))
		ended := w.add(stamped(1, time.Minute))
		present := w.add(stamped(1, time.Minute))
		young := w.add(stamped(1, probeAge-time.Second))
		w.queue.set(ended, "completed")
		w.queue.set(present, "pending")
		require.NoError(t, r.probe(context.Background()))
		for _, task := range []job.Task{missing, ended} {
			require.Equal(t, 1, w.store.job(task.JobID).dispatch)
			w.inQueue(task)
		}
		require.Zero(t, w.store.job(present.JobID).dispatch)
		require.Zero(t, w.store.job(young.JobID).dispatch)
		require.Equal(t, 2.0, w.metric(w.metrics.repaired.WithLabelValues("probe")))
	})
}

func TestProbeGoesAround(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		tasks := make([]job.Task, 2*probeBatch+50)
		for i := range tasks {
			tasks[i] = w.add(stamped(1, time.Minute))
			w.queue.set(tasks[i], "pending")
		}
		for range 2 { // one turn is three samples
			w.queue.flush()
			for range 3 {
				require.NoError(t, r.probe(context.Background()))
			}
			for _, task := range tasks {
				w.inQueue(task)
			}
		}
	})
}

func TestProbeReportsTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		task := w.add(stamped(1, time.Minute))
		w.queue.err = errQueue
		require.ErrorIs(t, r.probe(context.Background()), errQueue)
		w.queue.err = nil
		for _, operation := range []string{"Epoch", "Overdue", "Redispatch", "Stamp"} {
			w.store.hook(operation, hook{before: fails(1, errStorage)})
			require.ErrorIs(t, r.probe(context.Background()), errStorage, operation)
		}
		w.round(r)
		w.inQueue(task)
	})
}
