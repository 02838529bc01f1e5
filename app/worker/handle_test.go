package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestHandleOnDeadWorkerGetsNewLeaseImmediately(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		first := w.worker.id
		w.store.expire()
		began := time.Now()
		task := w.store.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Zero(t, time.Since(began), "without waiting for the next heartbeat")
		require.NotEqual(t, first, w.worker.id)
		require.Equal(t, 1.0, w.Metric(w.Metrics.LeasesLost))

		claims := w.store.count("Claim")
		w.refusing(job.NotClaimed{StillWaiting: true, WorkerDead: true}) // from now on, every claim reports that the lease has ended
		require.ErrorIs(t, w.handle(w.store.add()), errBusy, "tries are limited")
		require.Equal(t, claims+claimTries, w.store.count("Claim"))
	})
}

func TestHandleSlowsDownWhileStorageFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.store.hook("Register", hook{before: fails(3, errStorage)})
		w.store.hook("Claim", hook{before: fails(2*claimTries, errStorage)})
		w.start()
		began := time.Now()
		task := w.store.add()
		require.NoError(t, w.handle(task))
		w.ended(task, job.Succeeded)
		require.Equal(t, (3+2*claimTries)*w.worker.pause(), time.Since(began), "each failure holds the slot for a moment")
		require.Equal(t, 2*claimTries+1, w.store.count("Claim"))
	})
}

func TestHandleStopsWaitingWithTheQueue(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 1 })
		w.runner = takes(time.Minute)
		impatient := func(task job.Task) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return w.worker.Handle(ctx, task)
		}
		require.ErrorIs(t, impatient(w.store.add()), context.DeadlineExceeded, "waiting for a lease")
		w.start()
		running := w.handling(w.store.add())
		require.ErrorIs(t, impatient(w.store.add()), context.DeadlineExceeded, "waiting for a slot")
		require.NoError(t, <-running)

		task := w.store.add()
		w.store.hook("Claim", hook{after: func(ctx context.Context) error {
			app.Sleep(ctx, 2*time.Second)
			return ctx.Err()
		}})
		require.NoError(t, impatient(task), "a started claim and its job are completed")
		w.ended(task, job.Succeeded)
	})
}

func TestHandleRunsOneJobPerSlot(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Concurrency = 2 })
		w.runner = takes(10 * time.Second)
		w.start()
		answers := make([]<-chan error, 6)
		began := time.Now()
		for i := range answers {
			answers[i] = w.handling(w.store.add())
		}
		require.Equal(t, 2.0, w.Metric(w.Metrics.SlotsUsed))
		for _, answer := range answers {
			require.NoError(t, <-answer)
		}
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Zero(t, w.Metric(w.Metrics.SlotsUsed))
		synctest.Wait()
		require.Empty(t, w.worker.holding)
		require.Empty(t, w.worker.busy)
	})
}

func TestDrainedWorkerStaysDrained(t *testing.T) {
	working(t, nil, func(t *testing.T, w *world) {
		before := w.identityNow()
		drained := job.Pauses{{Scope: job.PauseWorker, Target: before.String(), Mode: job.ModeDrain}}
		require.True(t, w.worker.Stopped(drained))
		require.True(t, w.worker.Stopped(job.Pauses{{Scope: job.PauseAll, Mode: job.ModePause}}))
		require.False(t, w.worker.Stopped(job.Pauses{
			{Scope: job.PauseAll, Mode: job.ModeDrain}, {Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModePause},
			{Scope: job.PauseWorker, Target: app.NewID().String(), Mode: job.ModeDrain},
		}))
		w.worker.lose(before, errLapsed)
		require.True(t, w.worker.Stopped(drained), "also without a lease")
		for range maxIdentities - 1 {
			_, err := w.worker.register(t.Context())
			require.NoError(t, err)
		}
		require.NotEqual(t, before, w.identityNow())
		require.True(t, w.worker.Stopped(drained))
		require.Len(t, w.worker.ids, maxIdentities)
	})
}
