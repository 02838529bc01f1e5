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

// relays runs a test of such a relay.
func relays(t *testing.T, f func(t *testing.T, w *worldMaint, r *Relay)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) {
		w, r := relaying(t)
		f(t, w, r)
	})
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
func (w *worldMaint) inQueue(tasks ...job.Task) {
	w.T.Helper()
	for _, t := range tasks {
		r := w.Store.RowOf(t.JobID)
		require.Equal(w.T, "pending", w.Queue.state(apptest.TaskOf(&r)))
	}
}

func (w *worldMaint) probe(r *Relay) {
	w.T.Helper()
	require.NoError(w.T, r.probe(context.Background(), nil))
}

// repaired is how many jobs the relay, or its probe, dispatched.
func (w *worldMaint) repaired(by string) float64 {
	return w.Metric(w.Metrics.Repaired.WithLabelValues(by))
}

// pending counts the tasks that the queue has.
func (w *worldMaint) pending() int {
	w.T.Helper()
	depth := apptest.Must(w.Queue.Depth(context.Background()))(w.T)
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

// While the window is closed nobody but the relay enqueues, so nobody else is
// about to; as soon as others do, the young jobs are left to them.
func TestRelayTakesYoungJobsWhileItIsAlone(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
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
		require.Empty(t, w.Queue.state(younger), "whoever added it is about to enqueue it")
		require.True(t, r.watermark.RunAt.Before(young.RunAt), "what is committed late may come before it")
		apptest.Pass(relayMinAge)
		w.round(r)
		w.inQueue(younger)
	})
}

func TestRelayGivesSoonDueJobsHalfOfTheWindow(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
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
		w.inQueue(tasks...)
	})
}

// Jobs whose time will come are looked at once; the probe finds those whose task is missing all the same, and each round those
// that come next.
func TestRelayLooksAheadOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		r := NewRelay(w.Store, w.Queue, 4*testWindow, w.Metrics, w.Logger)
		for i := range 2 * relayBatch {
			w.AddDeferred(30*time.Second + time.Duration(i)*time.Millisecond)
		}
		w.round(r)
		offered := len(w.Queue.offered)
		require.Equal(t, 2*relayBatch, offered)
		lost, later := w.AddDeferred(20*time.Second), w.AddDeferred(30*time.Second+(relayBatch+10)*time.Millisecond)
		w.round(r)
		require.Len(t, w.Queue.offered, offered)
		w.probe(r)
		w.inQueue(lost)
		require.Empty(t, w.Queue.state(later), "one batch at a time")
		w.probe(r)
		w.inQueue(later)
		late := w.AddDeferred(10 * time.Second)
		apptest.Pass(6 * time.Second)
		w.round(r)
		w.inQueue(late)
	})
}

func TestEpochIsRaisedWhenTheQueueLosesItsTasks(t *testing.T) {
	for name, lose := range map[string]func(*fakeQueue){
		"flushed":     func(q *fakeQueue) { q.flush() },
		"restarted":   func(q *fakeQueue) { q.Change(func() { clear(q.tasks); q.runID = "another" }) },
		"rolled back": func(q *fakeQueue) { q.Change(func() { clear(q.tasks); q.sentinel-- }) },
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w, r := relaying(t)
			tasks := []job.Task{w.Add(old(time.Hour)), w.Add(old(time.Minute)), w.Add(old(time.Second))}
			running := w.Add(apptest.HeldByTheDead(job.Running))
			w.round(r)
			lose(w.Queue)
			w.round(r)
			w.inQueue(tasks...)
			require.Equal(t, job.Running, w.Store.RowOf(running.JobID).State)
			require.Equal(t, int64(2), w.Store.epoch)
			require.Equal(t, int64(2), w.Queue.sentinel)
			require.Equal(t, w.Queue.runID, w.Store.runID)
			for range 10 {
				w.round(r)
			}
			require.Equal(t, 1.0, w.Metric(w.Metrics.EpochsRaised), "once")
			if name == "restarted" {
				require.Empty(t, w.Log.Lines(t, map[string]any{"level": "WARN", "action": "dispatch"}), "a restart is nothing to worry about")
			}
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
		apptest.Run(t, name, func(t *testing.T) {
			w, r := relaying(t)
			task := w.Add(old(time.Hour))
			w.round(r)
			w.Queue.flush()
			crash(w)
			require.Error(t, r.round(context.Background(), always))
			r = NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger)
			w.round(r)
			w.inQueue(task)
			require.Equal(t, w.Store.epoch, w.Queue.sentinel)
			raised := w.Store.epoch
			w.round(r)
			require.Equal(t, raised, w.Store.epoch)
		})
	}
}
