package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func (w *world) draining(grace time.Duration) (drained func()) {
	var running sync.WaitGroup
	running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		w.worker.Drain(ctx)
	})
	synctest.Wait()
	return running.Wait
}

func hooked(operation string, h hook) map[string]hook { return map[string]hook{operation: h} }

func TestDrain(t *testing.T) {
	away, lost := hook{before: fails(-1, errStorage)}, hook{after: fails(-1, errStorage)}
	late := hook{after: slow(4 * time.Second)}
	justInTime := func(ctx context.Context, d job.Definition, _ int) (*job.Result, error) {
		<-ctx.Done()
		return goodResult(d), nil
	}
	for name, c := range map[string]struct {
		runner runnerFunc
		hooks  map[string]hook
		grace  time.Duration
		took   time.Duration
		want   job.State
		err    error
		reason job.Reason
	}{
		"job ends in time":    {takes(20 * time.Second), nil, 30 * time.Second, 20 * time.Second, job.Succeeded, nil, ""},
		"job runs too long":   {takes(time.Hour), nil, 30 * time.Second, 30 * time.Second, job.Failed, nil, job.WorkerShutdown},
		"job ends on stop":    {justInTime, nil, time.Second, time.Second, job.Succeeded, nil, ""},
		"claim is pending":    {takes(5 * time.Second), hooked("Claim", late), time.Minute, 9 * time.Second, job.Succeeded, nil, ""},
		"late claim":          {takes(time.Hour), hooked("Claim", late), time.Second, 4 * time.Second, job.Queued, nil, ""},
		"claim fails":         {takes(time.Hour), hooked("Claim", away), 10 * time.Second, 0, job.Queued, errBusy, ""},
		"start fails":         {takes(time.Hour), hooked("Start", away), time.Second, time.Second, job.Queued, nil, ""},
		"start response lost": {takes(time.Hour), hooked("Start", lost), time.Second, time.Second, job.Failed, nil, job.WorkerLost},
		"outcome not stored": {takes(time.Hour), hooked("Finish", away), time.Second, time.Second + leaseTime, job.Running,
			nil, ""},
		"storage down": {takes(time.Hour), map[string]hook{"Finish": away, "Renew": away, "Register": away, "Retire": away},
			time.Second, leaseTime * 9 / 10, job.Running, nil, ""},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.runner = c.runner
			w.start()
			task := w.store.add()
			for operation, h := range c.hooks {
				w.store.hook(operation, h)
			}
			handled := w.handling(task)
			began := time.Now()
			drained := w.draining(c.grace)
			require.False(t, w.alive())
			require.ErrorIs(t, w.handle(w.store.add()), errBusy)
			drained()
			require.ErrorIs(t, <-handled, c.err)
			require.Equal(t, c.took, time.Since(began))
			r := w.store.row(task.JobID)
			require.Equal(t, []any{c.want, 1}, []any{r.State, r.Attempt}, "attempt is unchanged")
			require.Empty(t, w.worker.holding)
			if c.reason != "" {
				failure := r.ends[0].Failure
				require.Equal(t, []any{c.reason, true}, []any{failure.Reason, failure.Retryable})
			}
		})
	}
}

func TestDrainSurvivesALostLease(t *testing.T) {
	working(t, takes(time.Hour), func(t *testing.T, w *world) {
		handled := w.handling(w.store.add())
		w.store.expire()
		began := time.Now()
		first, second := w.draining(time.Minute), w.draining(time.Minute)
		first()
		second()
		require.LessOrEqual(t, time.Since(began), heartbeat)
		require.NoError(t, <-handled)
		require.False(t, w.alive())
	})
}

func TestDrainRefusesWaitingTasks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		leaseless := w.handling(w.store.add())
		w.worker.Drain(context.Background()) // before Run
		require.ErrorIs(t, <-leaseless, errBusy)
		stop := w.start()
		require.ErrorIs(t, w.handle(w.store.add()), errBusy, "draining is permanent")
		stop()
		w.worker.Drain(context.Background()) // after Run

		w = newWorld(t, func(c *Config) { c.Concurrency = 1 })
		w.runner = takes(10 * time.Second)
		w.start()
		first, slotless := w.handling(w.store.add()), w.handling(w.store.add())
		w.draining(time.Minute)()
		require.NoError(t, <-first)
		require.ErrorIs(t, <-slotless, errBusy)
		require.Equal(t, 1, w.store.count("Claim"))
		require.NotZero(t, w.store.count("Renew"), "heartbeats continued")
	})
}
