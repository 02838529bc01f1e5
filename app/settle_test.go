package app

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// outcome gives how a batch ended, nil while it has not.
func (w *world) outcome(b *job.Batch) *job.BatchOutcome {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.store.batches[b.ID].Outcome
}

// hasBeenTold asserts that the end of a batch was told, once.
func (w *world) hasBeenTold(b *job.Batch, status job.Status) {
	w.t.Helper()
	lines := w.log.lines(w.t, map[string]any{
		"action": "batch_completed", "request_id": "request-1", "client_id": clientA.String(), "batch_id": b.ID.String(), "status": string(status),
	})
	require.Len(w.t, lines, 1)
	require.Equal(w.t, 1.0, w.metric(w.metrics.batchesCompleted.WithLabelValues(string(status))))
	told := 0
	for _, n := range w.queue.news() {
		if n == (job.Notification{ClientID: clientA}) {
			told++
		}
	}
	require.Equal(w.t, 1, told)
}

// A batch is settled whoever ends its last job.
func TestBatchesAreSettled(t *testing.T) {
	ends := map[string]struct {
		end  func(*world, *Service, job.Task)
		want job.Status
	}{
		"worker": {func(w *world, _ *Service, t job.Task) { _ = w.handle(t) }, job.StatusCompleted},
		"cancel": {func(_ *world, s *Service, t job.Task) {
			_, _ = s.Cancel(context.Background(), clientA, t.JobID)
		}, job.StatusCancelled},
		"rescuer": {func(w *world, _ *Service, t job.Task) {
			w.store.change(t.JobID, heldByTheDead(job.Running))
			_ = w.worker.rescuer.giveBack(context.Background(), w.orphans())
		}, job.StatusFailed},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				s := w.service(10)
				w.start()
				w.background(w.settler.Run)
				b := w.submitBatch(s, batchRequest(requests(2)...))
				w.queue.news()
				for i, item := range b.Items {
					require.Nil(t, w.outcome(b))
					test.end(w, s, job.Task{JobID: item.JobID, Attempt: 1})
					pass(settleRest)
					require.Equal(t, i+1, w.store.count("CompleteBatches"))
				}
				require.Equal(t, test.want, w.outcome(b).Status)
				w.hasBeenTold(b, test.want)
			})
		})
	}
}

func TestAnAutomaticRetryEndsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.background(w.settler.Run)
		w.start()
		w.runner = func(context.Context, job.Definition, int) (*job.Result, error) {
			return nil, failure{job.DependencyFailed}
		}
		b := w.submitBatch(w.service(10), batchRequest(request(func(r *job.Request) { r.AutoRetry = true })))
		require.NoError(t, w.handle(job.Task{JobID: b.Items[0].JobID, Attempt: 1}))
		w.store.change(b.Items[0].JobID, heldByTheDead(job.Running))
		require.NoError(t, w.worker.rescuer.giveBack(context.Background(), w.orphans()))
		synctest.Wait()
		require.Zero(t, w.store.count("CompleteBatches"))
	})
}

func TestSettlingIsRepeatedThroughTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		stop := w.background(w.settler.Run)
		b := w.submitBatch(s, batchRequest(request()))
		w.queue.news()
		w.store.hook("CompleteBatches", hook{before: fails(3, errStorage)})
		_, err := s.Cancel(context.Background(), clientA, b.Items[0].JobID)
		require.NoError(t, err, "nobody waits for it")
		pass(2*settlePause + 2*settleRest)
		require.Nil(t, w.outcome(b))
		pass(settlePause + settleRest)
		require.NotNil(t, w.outcome(b))
		w.hasBeenTold(b, job.StatusCancelled)
		require.Len(t, w.log.lines(t, map[string]any{"level": "WARN", "msg": "cannot settle batches"}), 3)
		asked := w.store.count("CompleteBatches")
		pass(time.Minute)
		require.Equal(t, asked, w.store.count("CompleteBatches"), "nothing is left to complete")

		w.store.hook("CompleteBatches", hook{before: hangs})
		w.settler.Touch(b.ID)
		pass(settleRest)
		w.settler.Touch(newID()) // does not wait
		stop()                   // at once, although storage hangs
	})
}

func TestTouchesShareStatements(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.hook("CompleteBatches", hook{before: func(context.Context) error { time.Sleep(time.Second); return nil }})
		w.background(w.settler.Run)
		w.settler.Touch(newID())
		synctest.Wait()
		var all sync.WaitGroup
		for range settlerBatch + 1 {
			all.Go(func() {
				id := newID()
				w.settler.Touch(id)
				w.settler.Touch(id)
				w.settler.Touch(job.ID{})
			})
		}
		all.Wait()
		pass(time.Minute)
		require.Equal(t, 3, w.store.count("CompleteBatches"))
	})
}

// A large batch whose jobs end one after the other is looked at now and then.
func TestTouchesOfABusyBatchAreFew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.background(w.settler.Run)
		id := newID()
		w.settler.Touch(id)
		synctest.Wait()
		require.Equal(t, 1, w.store.count("CompleteBatches"), "the first at once")
		for range 1000 {
			w.settler.Touch(id)
			pass(time.Millisecond)
		}
		pass(settleRest)
		require.InDelta(t, int(time.Second/settleRest)+1, w.store.count("CompleteBatches"), 1)
	})
}

func TestABatchIsSettledOnceHoweverManyTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		w.background(w.settler.Run)
		w.lead()
		b := w.submitBatch(s, batchRequest(requests(5)...))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if answer, err := s.CancelBatch(context.Background(), clientA, b.ID); err != nil || answer.Counts[job.Canceled] != 5 {
					t.Errorf("got %+v, %v", answer, err)
				}
			})
		}
		all.Wait()
		pass(time.Minute)
		require.Equal(t, 1.0, w.metric(w.metrics.batchesCompleted.WithLabelValues("CANCELLED")))
		require.Equal(t, 5.0, w.metric(w.metrics.canceled.WithLabelValues("SUCCESS_FAST")))
	})
}
