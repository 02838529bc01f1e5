package delivery

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

const testTimeout = 10 * time.Second

var (
	endpointA = job.ID{0xe, 0xa}
	endpointB = job.ID{0xe, 0xb}

	testDeliveryPolicy = job.DeliveryPolicy{MaxRetries: 8, Backoff: job.Backoff{Base: 5 * time.Second, Max: time.Minute}}
)

// sendingWorld is a worker with its surroundings.
type sendingWorld struct {
	*worldDelivery
	sender *fakeSender

	mu     sync.Mutex
	worker *Worker
}

func newSendingWorld(t *testing.T, send func(context.Context, job.ClaimedDelivery) job.Sent) *sendingWorld {
	c := &sendingWorld{worldDelivery: newWorldDelivery(t), sender: newFakeSender(send)}
	c.worker = c.newSender()
	return c
}

// sending runs a test with a worker whose sends end as send says.
func sending(t *testing.T, send func(context.Context, job.ClaimedDelivery) job.Sent, f func(t *testing.T, w *sendingWorld)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newSendingWorld(t, send)) })
}

func (w *sendingWorld) newSender() *Worker {
	c := NewWorker(WorkerConfig{Concurrency: 10, Timeout: testTimeout, Policy: testDeliveryPolicy, Tracer: w.Tracer()},
		w.Store, w.sender, w.Queue, w.Queue, w.Metrics, w.Logger)
	w.T.Cleanup(func() { w.stop(c, time.Minute) })
	return c
}

func (w *sendingWorld) stop(c *Worker, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	c.Stop(ctx)
}

// wake gives clients to the worker, as the queue would.
func (w *sendingWorld) wake(clients ...job.ID) {
	w.T.Helper()
	for _, client := range clients {
		require.NoError(w.T, w.current().Handle(context.Background(), client))
	}
}

// attempted stores a delivery, wakes the worker for it, and lets so much time pass.
func (w *sendingWorld) attempted(wait time.Duration, change ...func(*deliveryRow)) job.ID {
	w.T.Helper()
	id := w.Store.deliver(apptest.ClientA, endpointA, change...)
	w.wake(apptest.ClientA)
	apptest.Pass(wait)
	return id
}

func (w *sendingWorld) current() *Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worker
}

// hinting passes on calls of the queue, and leads the maintenance.
func (w *sendingWorld) hinting() {
	w.lead()
	w.Background(func(ctx context.Context) {
		var handling sync.WaitGroup
		defer handling.Wait()
		for {
			select {
			case <-w.Queue.Wakes:
			case <-ctx.Done():
				return
			}
			for _, client := range w.Queue.Woken() {
				handling.Go(func() { _ = w.current().Handle(ctx, client) })
			}
		}
	})
}

func (w *sendingWorld) running() int {
	w.worker.mu.Lock()
	defer w.worker.mu.Unlock()
	return len(w.worker.dispatchers)
}

func TestDelivering(t *testing.T) {
	sending(t, answers(200, 30*time.Millisecond), func(t *testing.T, w *sendingWorld) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		apptest.Pass(20 * time.Millisecond)
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryDelivered, d.State)
		require.Len(t, d.Results, 1)
		require.Equal(t, []any{endpointA, 1, 200}, []any{d.Results[0].Endpoint, d.Results[0].Fence, d.Results[0].Sent.Attempt.Status})
		require.Zero(t, w.running(), "nothing is due")

		lines := w.Log.Lines(t, map[string]any{"action": "deliver"})
		require.Len(t, lines, 1)
		for name, want := range map[string]any{
			"level": "INFO", "delivery_id": id.String(), "webhook_id": endpointA.String(), "client_id": apptest.ClientA.String(),
			"job_id":     d.JobID.String(),
			"event_name": "job.succeeded", "attempt": 1.0, "status": 200.0, "duration_ms": 30.0, "next_state": "DELIVERED",
		} {
			require.Equal(t, want, lines[0][name], name)
		}
		require.NotContains(t, w.Log.String(), "secret")
		require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "delivered")))
		require.InDelta(t, 0.03, w.Sum("webhook_send_seconds"), 1e-6)
		require.InDelta(t, 0.05, w.Sum("webhook_latency_seconds"), 1e-6)
		require.Zero(t, w.Metric(w.Metrics.Sends)+w.Metric(w.Metrics.Dispatchers))

		w.sender.send = answers(410, 0)
		id = w.Store.deliver(apptest.ClientA, endpointB, toCallback)
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		lines = w.Log.Lines(t, map[string]any{"action": "deliver", "error_code": "GONE"})
		require.Len(t, lines, 1)
		require.Equal(t, "receiver.example:8443", lines[0]["callback_host"], "of a callback only the host is logged")
		require.NotContains(t, lines[0], "webhook_id")
		require.NotContains(t, w.Log.String(), "secret")
		require.Equal(t, job.DeliveryFailed, w.Store.delivery(id).State)
		require.Empty(t, w.Store.delivery(id).Results[0].Disable, "there is nothing to disable")
	})
}

func TestFailuresAreRetriedUntilTheLimit(t *testing.T) {
	sending(t, answers(500, 0), func(t *testing.T, w *sendingWorld) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.hinting()
		apptest.Pass(10 * time.Minute)
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryFailed, d.State)
		require.Len(t, d.Results, 1+testDeliveryPolicy.MaxRetries)
		for i, r := range d.Results[:testDeliveryPolicy.MaxRetries] {
			require.Equal(t, job.DeliveryPending, r.State)
			ceiling := testDeliveryPolicy.Backoff.Ceiling(i + 1)
			require.GreaterOrEqual(t, r.Wait, ceiling/2, "%d", i)
			require.LessOrEqual(t, r.Wait, ceiling, "%d", i)
		}
		require.Equal(t, 8.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "retried")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "failed")))
		require.Equal(t, 9.0, w.Metric(w.Metrics.DeliveryFailures.WithLabelValues("HTTP_5XX", "5xx")))
		require.Zero(t, w.Sum("webhook_latency_seconds"))
	})
}

func TestDeliveriesOfAJobAreSentInOrder(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		sending, latest := map[job.ID]bool{}, map[job.ID]int{}
		w := newSendingWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			mu.Lock()
			if sending[p.JobID] || latest[p.JobID] != p.Seq-1 {
				t.Errorf("event %d of a job after %d, at the same time: %v", p.Seq, latest[p.JobID], sending[p.JobID])
			}
			sending[p.JobID], latest[p.JobID] = true, p.Seq
			took := time.Duration(random.IntN(10)+50*(p.Seq%2)) * time.Millisecond
			mu.Unlock()
			sent := answers(200, took)(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			sending[p.JobID] = false
			return sent
		})
		jobs := []job.ID{app.NewID(), app.NewID(), app.NewID(), app.NewID(), app.NewID()}
		for seq := 1; seq <= 20; seq++ {
			for _, id := range jobs {
				w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { r.JobID, r.Seq = id, seq })
			}
			if seq%2 == 0 { // the pairs are due at the same time
				w.wake(apptest.ClientA)
				apptest.Pass(time.Millisecond)
			}
		}
		apptest.Pass(time.Minute)
		n, _ := w.Store.inState(job.DeliveryDelivered)
		require.Equal(t, 100, n)
		require.Equal(t, 2, w.sender.atOnce(endpointA), "jobs among each other in parallel")
	})
}

func TestDeliveriesOfNoJobAreIndependent(t *testing.T) {
	sending(t, answers(200, time.Second), func(t *testing.T, w *sendingWorld) {
		for range 10 {
			w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { r.JobID = job.ID{} })
		}
		w.wake(apptest.ClientA)
		apptest.Pass(500 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA), "before it is known to answer")
		apptest.Pass(time.Second)
		require.Equal(t, 2, w.sender.atOnce(endpointA))
	})
}

// The worker is woken once for each delivery, right after it was written, and nobody repairs:
// a wake-up that is lost between a dispatcher's last look and its end shows as a delivery
// that stays.
func TestNoWakeUpIsLost(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		random := &sharedRand{r: rand.New(rand.NewPCG(3, 4))}
		pause := func(context.Context) error {
			if n := random.n(4); n > 0 {
				time.Sleep(time.Duration(n) * time.Millisecond)
			}
			return nil
		}
		w := newSendingWorld(t, answers(200, time.Millisecond))
		w.Store.Hook("ClaimDeliveries", apptest.Hook{Before: pause, After: pause})
		w.Store.Hook("DueEndpoints", apptest.Hook{After: pause})
		w.Store.short = func(n int) int { return random.n(n + 1) }
		endpoints := []job.ID{endpointA, endpointB}
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 200 {
					w.Store.deliver(apptest.ClientA, endpoints[random.n(2)])
					if err := w.worker.Handle(context.Background(), apptest.ClientA); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(random.n(12)) * time.Millisecond)
				}
			})
		}
		writers.Wait()
		apptest.Pass(time.Minute)
		n, _ := w.Store.inState(job.DeliveryDelivered)
		require.Equal(t, 800, n)
		require.Zero(t, w.running())
	})
}

func TestAWakeUpThatFailsIsOfferedAgain(t *testing.T) {
	sending(t, answers(200, 0), func(t *testing.T, w *sendingWorld) {
		w.Store.Hook("DueEndpoints", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.ErrorIs(t, w.worker.Handle(context.Background(), apptest.ClientA), apptest.ErrStorage)
		w.wake(apptest.ClientA)
	})
}

func TestTheServerSaysWhyItDisabledAWebhook(t *testing.T) {
	sending(t, answers(410, 0), func(t *testing.T, w *sendingWorld) {
		at := time.Now().Add(time.Hour)
		w.Queue.Attempted(job.Delivery{ID: job.ID{3}, Endpoint: endpointA, State: job.DeliveryPending, NextAttemptAt: &at})
		id := w.attempted(time.Second)
		require.Equal(t, job.DisabledGone, w.Store.delivery(id).Results[0].Disable)
		require.Equal(t, 1.0, w.Metric(w.Metrics.WebhooksDisabled.WithLabelValues("GONE")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "webhook disabled", "reason": "GONE", "webhook_id": endpointA.String()}), 1)
		require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.Queue.Notifications(), "the event of it")
		require.Empty(t, w.Queue.waitingNow(), "what waits for it is dropped")
	})
}

func TestSendingThatPanicsIsAFailedAttempt(t *testing.T) {
	sending(t, func(context.Context, job.ClaimedDelivery) job.Sent { panic("boom") }, func(t *testing.T, w *sendingWorld) {
		id := w.attempted(time.Second)
		d := w.Store.delivery(id)
		require.Equal(t, job.SendInternal, d.Results[0].Sent.Attempt.Error)
		require.Equal(t, job.DeliveryPending, d.State)
		require.Zero(t, w.Metric(w.Metrics.Sends))
		lines := w.Log.Lines(t, map[string]any{"level": "ERROR"})
		require.Len(t, lines, 1)
		require.True(t, strings.HasPrefix(lines[0]["error_message"].(string), "panic: boom"))
	})
}

// A sender that does not keep its own time limit is cut off.
func TestNoSendOutlastsItsClaim(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
			began := time.Now()
			<-ctx.Done()
			return failedWith(began, job.SendTimeout, 0)
		})
		id := w.attempted(testTimeout + 2*time.Second)
		require.Equal(t, testTimeout+sendGrace, w.Store.delivery(id).Results[0].Sent.Attempt.Duration)
	})
}

func TestAStoppedWorkerTakesNoWakeUps(t *testing.T) {
	sending(t, answers(200, 0), func(t *testing.T, w *sendingWorld) {
		w.stop(w.worker, time.Minute)
		w.stop(w.worker, time.Minute)
		w.Store.deliver(apptest.ClientA, endpointA)
		require.ErrorIs(t, w.worker.Handle(context.Background(), apptest.ClientA), errStopping)
		synctest.Wait()
		require.Empty(t, w.sender.begun())
	})
}
