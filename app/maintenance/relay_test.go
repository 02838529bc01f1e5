package maintenance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
)

func always() bool { return true }

// relays runs a test of a relay.
func relays(t *testing.T, f func(t *testing.T, w *worldMaint, r *Relay)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *worldMaint) { f(t, w, NewRelay(w.Store, w.Queue, w.Metrics)) })
}

// old is a job that has been waiting for a while.
func old(age time.Duration) func(*apptest.Row) {
	return func(r *apptest.Row) {
		r.RunAt, r.CreatedAt, r.UpdatedAt = r.RunAt.Add(-age), r.CreatedAt.Add(-age), r.UpdatedAt.Add(-age)
	}
}

// backlog adds jobs that have been waiting for a minute and more, the oldest first.
func (w *worldMaint) backlog(n int) []job.Task {
	tasks := make([]job.Task, n)
	for i := range tasks {
		tasks[i] = w.Add(old(time.Minute + time.Duration(n-i)*time.Second))
	}
	return tasks
}

// round returns the batches that one round of the relay looked at.
func (w *worldMaint) round(r *Relay) [][]job.Task {
	w.T.Helper()
	w.Queue.ensured = nil
	require.NoError(w.T, r.round(context.Background(), always))
	return w.Queue.ensured
}

func (w *worldMaint) repaired(by string) float64 {
	return w.Metric(w.Metrics.Repaired.WithLabelValues(by))
}

func TestRelayEnqueuesTheOldestFirst(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		const n = 2*relayBatch + 7
		tasks := w.backlog(n)
		require.Equal(t, [][]job.Task{tasks[:relayBatch], tasks[relayBatch : 2*relayBatch], tasks[2*relayBatch:]}, w.round(r),
			"a batch that lacked tasks is followed at once by the next")
		require.EqualValues(t, n, w.repaired("relay"))

		require.Equal(t, [][]job.Task{tasks[:relayBatch]}, w.round(r), "the oldest have their tasks: the round ends")
		delete(w.Queue.tasks, tasks[n-1].JobID)
		delete(w.Queue.tasks, tasks[1].JobID)
		require.Equal(t, [][]job.Task{tasks[:relayBatch], tasks[relayBatch : 2*relayBatch]}, w.round(r))
		for _, task := range tasks[:2*relayBatch] {
			w.Store.Change(task.JobID, func(r *apptest.Row) { r.State = job.Assigned })
		}
		require.Equal(t, [][]job.Task{tasks[2*relayBatch:]}, w.round(r), "a lost task further back, now among the oldest")
		require.EqualValues(t, n+2, w.repaired("relay"))
	})
}

// The oldest jobs may wait for long although they have tasks. What is lost behind them is found all the same.
func TestRelayLooksBehindTheOldest(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		tasks := w.backlog(3*relayBatch + 1)
		w.round(r)
		for _, lost := range []job.Task{tasks[relayBatch+1], tasks[3*relayBatch], tasks[2*relayBatch]} {
			delete(w.Queue.tasks, lost.JobID)
			for range 4 * furtherEvery { // once around
				w.round(r)
			}
			require.True(t, w.Queue.tasks[lost.JobID])
		}
	})
}

// The process that stored a young job is about to enqueue it. Where the clock was moved, jobs may not age.
func TestRelayLeavesYoungJobs(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		task := w.Add()
		require.Empty(t, w.round(r))
		apptest.Pass(relayMinAge)
		require.Equal(t, [][]job.Task{{task}}, w.round(r))

		r.Clock = clock.New()
		r.Clock.Set(clock.Setting{Number: 1, Real: time.Now(), Time: time.Now(), Rate: 1}, 0)
		young := w.Add()
		require.Equal(t, [][]job.Task{{task, young}}, w.round(r))
	})
}

// No process is about to enqueue a deferred job: it was stored long ago.
func TestRelayEnqueuesDeferredJobsInTime(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		task := w.AddDeferred(10 * time.Second)
		apptest.Pass(10*time.Second - time.Millisecond)
		require.Empty(t, w.round(r))
		apptest.Pass(time.Millisecond)
		require.Equal(t, [][]job.Task{{task}}, w.round(r))
	})
}

// A round ends with the leadership, and with the first error.
func TestRelayStops(t *testing.T) {
	relays(t, func(t *testing.T, w *worldMaint, r *Relay) {
		w.backlog(3 * relayBatch)
		batches := 2
		require.NoError(t, r.round(context.Background(), func() bool { batches--; return batches >= 0 }))
		require.Len(t, w.Queue.ensured, 2)
		w.Store.Hook("Waiting", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, r.round(context.Background(), always), apptest.ErrStorage)
		w.Queue.Err = apptest.ErrQueue
		require.ErrorIs(t, r.round(context.Background(), always), apptest.ErrQueue)
	})
}

// A job that became due because the clock was moved gets its task at once.
func TestAMoveOfTheClockStartsARound(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		m := w.maintenance()
		for _, task := range m.tasks {
			if task.name == "relay" {
				task.interval = time.Hour
			}
		}
		w.Background(m.Run)
		apptest.Pass(time.Second)
		require.Zero(t, w.Store.Count("Waiting"))
		m.deps.Relay.Clock.Set(clock.Setting{Number: 1, Real: time.Now(), Time: time.Now(), Rate: 1}, 0)
		apptest.Pass(time.Millisecond)
		require.NotZero(t, w.Store.Count("Waiting"))
	})
}
