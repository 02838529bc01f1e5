package app

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const testTimeout = 10 * time.Second

var (
	endpointA = job.ID{0xe, 0xa}
	endpointB = job.ID{0xe, 0xb}

	testDeliveryPolicy = job.DeliveryPolicy{MaxRetries: 8, Backoff: job.Backoff{Base: 5 * time.Second, Max: time.Minute}}
)

// courierWorld is a courier with its surroundings.
type courierWorld struct {
	*worldDelivery
	sender *fakeSender

	mu      sync.Mutex
	courier *DeliveryWorker
}

func newCourierWorld(t *testing.T, send func(context.Context, job.ClaimedDelivery) job.Sent) *courierWorld {
	c := &courierWorld{worldDelivery: newWorldDelivery(t), sender: newFakeSender(send)}
	c.courier = c.newCourier()
	return c
}

func (w *courierWorld) newCourier() *DeliveryWorker {
	c := NewDeliveryWorker(CourierConfig{Concurrency: 10, Timeout: testTimeout, Policy: testDeliveryPolicy, Tracer: w.tracer()},
		w.store, w.sender, w.queue, w.metrics, w.logger)
	w.t.Cleanup(func() { w.stop(c, time.Minute) })
	return c
}

func (w *courierWorld) stop(c *DeliveryWorker, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	c.Stop(ctx)
}

// hint tells the courier of clients, as the queue would.
func (w *courierWorld) hint(clients ...job.ID) {
	w.t.Helper()
	for _, client := range clients {
		require.NoError(w.t, w.current().Handle(context.Background(), client))
	}
}

func (w *courierWorld) current() *DeliveryWorker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.courier
}

// replace puts another process in the place of the courier, which is cut off.
func (w *courierWorld) replace() {
	w.stop(w.courier, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.courier = w.newCourier()
}

// hinting passes on what the queue is told, and leads the maintenance.
func (w *courierWorld) hinting() {
	w.lead()
	w.background(func(ctx context.Context) {
		var handling sync.WaitGroup
		defer handling.Wait()
		for {
			select {
			case <-w.queue.hinted:
			case <-ctx.Done():
				return
			}
			for _, client := range w.queue.hints() {
				handling.Go(func() { _ = w.current().Handle(ctx, client) })
			}
		}
	})
}

func (w *courierWorld) running() int {
	w.courier.mu.Lock()
	defer w.courier.mu.Unlock()
	return len(w.courier.pumps)
}

func TestDelivering(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, 30*time.Millisecond))
		id := w.store.deliver(clientA, endpointA)
		pass(20 * time.Millisecond)
		w.hint(clientA)
		pass(time.Second)
		d := w.store.delivery(id)
		require.Equal(t, job.DeliveryDelivered, d.State)
		require.Len(t, d.results, 1)
		require.Equal(t, []any{endpointA, 1, 200}, []any{d.results[0].Endpoint, d.results[0].Fence, d.results[0].Sent.Attempt.Status})
		require.Zero(t, w.running(), "nothing is due")

		lines := w.log.lines(t, map[string]any{"action": "deliver"})
		require.Len(t, lines, 1)
		for name, want := range map[string]any{
			"level": "INFO", "delivery_id": id.String(), "webhook_id": endpointA.String(), "client_id": clientA.String(), "job_id": d.JobID.String(),
			"event_name": "job.succeeded", "attempt": 1.0, "status": 200.0, "duration_ms": 30.0, "next_state": "DELIVERED",
		} {
			require.Equal(t, want, lines[0][name], name)
		}
		require.NotContains(t, w.log.buf.String(), "secret")
		require.Equal(t, 1.0, w.metric(w.metrics.deliveries.WithLabelValues("job.succeeded", "delivered")))
		require.InDelta(t, 0.03, w.sum("webhook_send_seconds"), 1e-6)
		require.InDelta(t, 0.05, w.sum("webhook_latency_seconds"), 1e-6)
		require.Zero(t, w.metric(w.metrics.sends)+w.metric(w.metrics.pumps))
	})
}

func TestOfACallbackOnlyTheHostIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(410, 0))
		id := w.store.deliver(clientA, endpointA, func(r *parcelRow) {
			r.WebhookID, r.URL = job.ID{}, "https://receiver.example:8443/secret?token=secret"
		})
		w.hint(clientA)
		pass(time.Second)
		lines := w.log.lines(t, map[string]any{"action": "deliver", "error_code": "GONE"})
		require.Len(t, lines, 1)
		require.Equal(t, "receiver.example:8443", lines[0]["callback_host"])
		require.NotContains(t, lines[0], "webhook_id")
		require.NotContains(t, w.log.buf.String(), "secret")
		require.Equal(t, job.DeliveryFailed, w.store.delivery(id).State)
		require.Empty(t, w.store.delivery(id).results[0].Disable, "there is nothing to disable")
	})
}

func TestFailuresAreRetriedUntilTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(500, 0))
		id := w.store.deliver(clientA, endpointA)
		w.hinting()
		pass(10 * time.Minute)
		d := w.store.delivery(id)
		require.Equal(t, job.DeliveryFailed, d.State)
		require.Len(t, d.results, 1+testDeliveryPolicy.MaxRetries)
		for i, r := range d.results[:testDeliveryPolicy.MaxRetries] {
			require.Equal(t, job.DeliveryPending, r.State)
			ceiling := testDeliveryPolicy.Backoff.Ceiling(i + 1)
			require.GreaterOrEqual(t, r.Wait, ceiling/2, "%d", i)
			require.LessOrEqual(t, r.Wait, ceiling, "%d", i)
		}
		require.Equal(t, 8.0, w.metric(w.metrics.deliveries.WithLabelValues("job.succeeded", "retried")))
		require.Equal(t, 1.0, w.metric(w.metrics.deliveries.WithLabelValues("job.succeeded", "failed")))
		require.Equal(t, 9.0, w.metric(w.metrics.deliveryFailures.WithLabelValues("HTTP_5XX", "5xx")))
		require.Zero(t, w.sum("webhook_latency_seconds"))
	})
}

// The limit counts from the last redelivery.
func TestTriesCountFromTheLastRedelivery(t *testing.T) {
	for name, c := range map[string]struct {
		attempts, tries int
		want            job.DeliveryState
	}{
		"redelivered":   {attempts: 9, tries: 0, want: job.DeliveryPending},
		"one is left":   {attempts: 16, tries: 7, want: job.DeliveryPending},
		"none is left":  {attempts: 8, tries: 8, want: job.DeliveryFailed},
		"the first one": {want: job.DeliveryPending},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newCourierWorld(t, answers(500, 0))
				id := w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.Attempts, r.Tries = c.attempts, c.tries })
				w.hint(clientA)
				pass(time.Second)
				require.Equal(t, c.want, w.store.delivery(id).State)
			})
		})
	}
}

func TestDeliveriesOfAJobAreSentInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		sending, latest := map[job.ID]bool{}, map[job.ID]int{}
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
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
		jobs := []job.ID{newID(), newID(), newID(), newID(), newID()}
		for seq := 1; seq <= 20; seq++ {
			for _, id := range jobs {
				w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.JobID, r.Seq = id, seq })
			}
			if seq%2 == 0 { // the pairs are due at the same time
				w.hint(clientA)
				pass(time.Millisecond)
			}
		}
		pass(time.Minute)
		n, _ := w.store.inState(job.DeliveryDelivered)
		require.Equal(t, 100, n)
		require.Equal(t, 2, w.sender.atOnce(endpointA), "jobs among each other in parallel")
	})
}

func TestDeliveriesOfNoJobAreIndependent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, time.Second))
		for range 10 {
			w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.JobID = job.ID{} })
		}
		w.hint(clientA)
		pass(500 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA), "before it is known to answer")
		pass(time.Second)
		require.Equal(t, 2, w.sender.atOnce(endpointA))
	})
}

// Each delivery is hinted once, right after it was written, and nobody repairs:
// a hint that is lost between a pump's last look and its end shows as a delivery
// that stays.
func TestNoWakeUpIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		random := &sharedRand{r: rand.New(rand.NewPCG(3, 4))}
		pause := func(context.Context) error {
			if n := random.n(4); n > 0 {
				time.Sleep(time.Duration(n) * time.Millisecond)
			}
			return nil
		}
		w := newCourierWorld(t, answers(200, time.Millisecond))
		w.store.hook("ClaimDeliveries", hook{before: pause, after: pause})
		w.store.hook("DueEndpoints", hook{after: pause})
		w.store.short = func(n int) int { return random.n(n + 1) }
		endpoints := []job.ID{endpointA, endpointB}
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 200 {
					w.store.deliver(clientA, endpoints[random.n(2)])
					if err := w.courier.Handle(context.Background(), clientA); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(random.n(12)) * time.Millisecond)
				}
			})
		}
		writers.Wait()
		pass(time.Minute)
		n, _ := w.store.inState(job.DeliveryDelivered)
		require.Equal(t, 800, n)
		require.Zero(t, w.running())
	})
}

func TestAHintThatCannotBeLookedIntoIsOfferedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, 0))
		w.store.hook("DueEndpoints", hook{before: fails(1, errStorage)})
		require.ErrorIs(t, w.courier.Handle(context.Background(), clientA), errStorage)
		w.hint(clientA)
	})
}

func TestTheServerSaysWhyItDisabledAWebhook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(410, 0))
		id := w.store.deliver(clientA, endpointA)
		w.hint(clientA)
		pass(time.Second)
		require.Equal(t, job.DisabledGone, w.store.delivery(id).results[0].Disable)
		require.Equal(t, 1.0, w.metric(w.metrics.webhooksDisabled.WithLabelValues("GONE")))
		require.Len(t, w.log.lines(t, map[string]any{"msg": "webhook disabled", "reason": "GONE", "webhook_id": endpointA.String()}), 1)
		require.Equal(t, []job.Notification{{ClientID: clientA}}, w.queue.news(), "the event of it")
	})
}

func TestSendingThatPanicsIsAFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, func(context.Context, job.ClaimedDelivery) job.Sent { panic("boom") })
		id := w.store.deliver(clientA, endpointA)
		w.hint(clientA)
		pass(time.Second)
		d := w.store.delivery(id)
		require.Equal(t, job.SendInternal, d.results[0].Sent.Attempt.Error)
		require.Equal(t, job.DeliveryPending, d.State)
		require.Zero(t, w.metric(w.metrics.sends))
		lines := w.log.lines(t, map[string]any{"level": "ERROR"})
		require.Len(t, lines, 1)
		require.True(t, strings.HasPrefix(lines[0]["error_message"].(string), "panic: boom"))
	})
}

// A sender that does not keep its own time limit is cut off.
func TestNoSendOutlastsItsClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
			began := time.Now()
			<-ctx.Done()
			return failedWith(began, job.SendTimeout, 0)
		})
		id := w.store.deliver(clientA, endpointA)
		w.hint(clientA)
		pass(testTimeout + 2*time.Second)
		require.Equal(t, testTimeout+sendGrace, w.store.delivery(id).results[0].Sent.Attempt.Duration)
	})
}

func TestAStoppedCourierTakesNoHints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, 0))
		w.stop(w.courier, time.Minute)
		w.stop(w.courier, time.Minute)
		w.store.deliver(clientA, endpointA)
		require.ErrorIs(t, w.courier.Handle(context.Background(), clientA), errStopping)
		synctest.Wait()
		require.Empty(t, w.sender.begun())
	})
}
