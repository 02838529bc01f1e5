package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestRelayDispatchesWhatNobodyEnqueued(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		task := w.Add()
		apptest.Pass(time.Millisecond)
		w.round(r)
		require.Empty(t, w.Queue.offered, "whoever changed it is about to enqueue it")
		apptest.Pass(relayMinAge)
		w.round(r)
		w.inQueue(task)
		require.Equal(t, 1.0, w.repaired("relay"))
		w.round(r)
		require.Equal(t, 1.0, w.repaired("relay"), "once")
		w.round(NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)) // the next leader starts over, and finds what is in the queue
		w.inQueue(task)
		require.Equal(t, 1.0, w.repaired("relay"))
		require.Zero(t, w.Store.RowOf(task.JobID).Dispatch, "the task was present: no new name")
	})
}

// It does not pass what it could not dispatch; and silence is no sign of a loss.
func TestRelayWhileTheQueueIsAway(t *testing.T) {
	for name, away := range map[string]func(*worldMaint){
		"from the beginning": func(w *worldMaint) { w.Queue.Err = apptest.ErrQueue },
		"from the look at storage on": func(w *worldMaint) {
			w.Store.Hook("Waiting", apptest.Hook{After: func(context.Context) error { w.Queue.Err = apptest.ErrQueue; return nil }})
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w, r := relaying(t)
			task := w.Add(old(time.Minute))
			away(w)
			require.ErrorIs(t, r.round(context.Background(), always), apptest.ErrQueue)
			require.Zero(t, r.watermark)
			require.Equal(t, int64(1), w.Store.epoch)
			w.Store.Hook("Waiting", apptest.Hook{})
			w.Queue.Err = nil
			w.round(r)
			w.inQueue(task)
		})
	}
}

// What was in the queue before it was emptied says nothing about now, whoever notices first.
func TestAFlushInTheMiddleOfARound(t *testing.T) {
	for name, then := range map[string]func(*worldMaint){
		"noticed at once": func(*worldMaint) {},
		"noticed by another leader first": func(w *worldMaint) {
			_, err := NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger).currentEpoch(context.Background())
			require.NoError(w.T, err)
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w, r := relaying(t)
			tasks := w.backlog(2 * relayBatch)
			w.Queue.onDispatch = func() {
				w.Queue.onDispatch = nil
				w.Queue.flush()
				then(w)
			}
			w.round(r)
			if name != "noticed at once" {
				w.round(r)
			}
			w.inQueue(tasks...)
		})
	}
}

// A task that was used has a new name; that of a worker that is about to claim the job is left alone.
func TestRelayRenamesUsedTasks(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		tasks := w.backlog(5)
		abandoned, completed, twice, fresh, taken := tasks[0], tasks[1], tasks[2], tasks[3], tasks[4]
		w.Queue.set(abandoned, "abandoned")
		w.Queue.set(completed, "completed")
		w.Queue.set(twice, "completed")
		next := twice
		next.Dispatch++
		w.Queue.set(next, "completed")
		w.Queue.set(taken, "active")
		w.round(r)
		w.inQueue(abandoned, completed, fresh)
		w.probe(r)
		w.inQueue(twice)
		require.Equal(t, "active", w.Queue.state(taken))
		for task, dispatch := range map[job.Task]int{abandoned: 1, completed: 1, twice: 2, fresh: 0, taken: 0} {
			require.Equal(t, dispatch, w.Store.RowOf(task.JobID).Dispatch)
		}
	})
}

// However far ahead a job's time is, it has a task. The farthest gave way to nearer ones, or were taken out with the jobs: the walk
// goes on from where the queue's tasks end.
func TestRelayGivesJobsOfTheFuture(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		var tasks []job.Task
		for i := range 5 {
			tasks = append(tasks, w.AddDeferred(1000*time.Hour+time.Duration(i)*time.Minute))
		}
		w.round(r)
		w.inQueue(tasks...)
		quiet := func() {
			t.Helper()
			offered := len(w.Queue.offered)
			w.round(r)
			w.round(r)
			require.Len(t, w.Queue.offered, offered, "they are not looked at again")
		}
		quiet()
		farther := w.AddDeferred(1001 * time.Hour)
		w.round(r)
		w.inQueue(farther)
		for _, task := range append(tasks[2:], farther) {
			w.Queue.forget(task)
		}
		w.round(r)
		w.inQueue(append(tasks, farther)...)
		w.Store.Change(farther.JobID, func(r *apptest.Row) { r.State = job.Canceled })
		w.Queue.forget(farther)
		w.round(r)
		quiet()
	})
}

func TestRelayFillsTheWindowOldestFirst(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		const n = testWindow + relayBatch + 7
		tasks := w.backlog(n)
		for range 3 {
			w.round(r)
			require.Equal(t, tasks[:testWindow], w.Queue.offered, "the rest waits in storage alone")
		}
		done := 0
		for ; done+w.pending() < n; w.round(r) {
			for _, task := range tasks[done : done+700] {
				w.Store.Change(task.JobID, func(r *apptest.Row) { r.State = job.Assigned })
				w.Queue.forget(task)
			}
			done += 700
		}
		require.Equal(t, tasks, w.Queue.offered, "in order, each once")
		require.Equal(t, float64(n), w.repaired("relay"))
	})
}

// A round ends with the leadership, and does not spin on what others have locked.
func TestRelayRoundsEnd(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		for range 3 * relayBatch {
			w.Queue.set(w.Add(old(time.Minute), func(r *apptest.Row) { r.Locked = true }), "active")
		}
		batches := 2
		require.NoError(t, r.round(context.Background(), func() bool { batches--; return batches >= 0 }))
		require.Len(t, w.Queue.offered, 2*relayBatch)
		last, looks := w.Add(old(30*time.Second)), w.Store.Count("Waiting")
		w.round(r)
		require.LessOrEqual(t, w.Store.Count("Waiting")-looks, 6)
		w.inQueue(last)
	})
}

func TestProbeDispatchesAnewWhatIsMissing(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		tasks := w.backlog(6)
		w.round(r)
		beyond := w.Add(old(5 * time.Second))
		missing, ended, abandoned, taken, present, aside := tasks[0], tasks[1], tasks[2], tasks[3], tasks[4], tasks[5]
		w.Queue.forget(missing)
		w.Queue.set(ended, "completed")
		w.Queue.set(abandoned, "abandoned")
		w.Queue.set(taken, "active")
		w.Queue.set(aside, "completed")
		w.Store.Hook("Redispatch", apptest.Hook{Before: func(context.Context) error { // while its lost task is looked for
			w.Store.Change(aside.JobID, func(row *apptest.Row) { row.RunAt = job.PausedUntil })
			return nil
		}})
		w.probe(r)
		w.inQueue(missing, ended, abandoned, present)
		require.Equal(t, "active", w.Queue.state(taken))
		require.Empty(t, w.Queue.state(beyond), "the watermark has not come there")
		aside.Dispatch = 1
		require.Empty(t, w.Queue.state(aside), "it would be one of a time that does not come")
		for task, dispatch := range map[job.Task]int{missing: 0, ended: 1, abandoned: 1, taken: 0, present: 0, aside: 1} {
			require.Equal(t, dispatch, w.Store.RowOf(task.JobID).Dispatch)
		}
		require.Equal(t, 3.0, w.repaired("probe"))
	})
}

func TestProbeGoesAround(t *testing.T) {
	bubble(t, func(_ *testing.T, w *worldMaint) {
		const batches = probeBatch/relayBatch + 1
		r := NewRelay(w.Store, w.Queue, batches*relayBatch, w.Metrics, w.Logger)
		tasks := w.backlog(batches*relayBatch - 50)
		w.round(r)
		for range 2 { // one turn is two rounds
			w.Queue.Change(func() { clear(w.Queue.tasks) })
			w.probe(r)
			w.probe(r)
			w.inQueue(tasks...)
		}
		w.Store.Update(func() { clear(w.Store.Rows) })
		w.probe(r)
	})
}

// Whoever dies between the two steps of giving a task a new name leaves a job without a task; the next probe finds it.
func TestProbeThroughTrouble(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		task := w.Add(old(time.Minute))
		w.round(r)
		w.Queue.set(task, "completed")
		w.Queue.Err = apptest.ErrQueue
		require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrQueue)
		w.Queue.Err = nil
		for _, h := range []apptest.Hook{{Before: apptest.Fails(1, apptest.ErrStorage)}, {After: apptest.Fails(1, apptest.ErrStorage)}} {
			w.Store.Hook("Redispatch", h)
			require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrStorage)
		}
		w.Store.Hook("Waiting", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, r.probe(context.Background(), nil), apptest.ErrStorage)
		w.probe(r)
		w.inQueue(task)
		require.Equal(t, 1, w.Store.RowOf(task.JobID).Dispatch)
	})
}
