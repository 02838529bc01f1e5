package app

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// An endpoint that hangs has its share at most, one at a time once that is
// known, and the others go on as if it were not there.
func TestAHangingEndpointDelaysNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var slowest time.Duration
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.Endpoint == endpointA {
				return hanging(ctx, p)
			}
			mu.Lock()
			slowest = max(slowest, time.Since(p.CreatedAt))
			mu.Unlock()
			return answers(200, 5*time.Millisecond)(ctx, p)
		})
		for range 300 {
			w.store.deliver(clientA, endpointA)
		}
		w.hinting()
		w.hint(clientA)
		pass(100 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		for range 60 {
			for range 10 {
				w.store.deliver(clientA, endpointB)
			}
			w.queue.WakeDelivery(clientA)
			pass(time.Second)
			if n, _ := w.store.inState(job.DeliveryDelivered); n%10 != 0 {
				t.Fatal("the healthy endpoint waits")
			}
		}
		n, _ := w.store.inState(job.DeliveryDelivered)
		require.Equal(t, 600, n)
		require.Less(t, slowest, 100*time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		require.Equal(t, 2, w.sender.atOnce(endpointB), "a fifth of ten")
		_, claimed := w.store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, 2, "what cannot be sent in time is not held")
	})
}

// A client with many endpoints that hang has its share at most.
func TestAClientWhoseEndpointsHangDelaysNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.ClientID == clientA {
				return hanging(ctx, p)
			}
			return answers(200, 5*time.Millisecond)(ctx, p)
		})
		for i := range 100 {
			w.store.deliver(clientA, job.ID{1, byte(i)})
		}
		w.hinting()
		w.queue.WakeDelivery(clientA)
		pass(time.Second)
		require.Equal(t, 5.0, w.metric(w.metrics.sends), "half of ten")
		for range 20 {
			id := w.store.deliver(clientB, endpointB)
			w.queue.WakeDelivery(clientB)
			pass(50 * time.Millisecond)
			require.Equal(t, job.DeliveryDelivered, w.store.delivery(id).State)
			pass(time.Second)
		}
	})
}

// Several such clients can take all places for the time of one send, never
// longer: then it is somebody else's turn.
func TestClientsWhoseEndpointsHangTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var slowest time.Duration
		arrived := 0
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.ClientID != clientB {
				return hanging(ctx, p)
			}
			mu.Lock()
			slowest, arrived = max(slowest, time.Since(p.CreatedAt)), arrived+1
			mu.Unlock()
			return answers(200, 5*time.Millisecond)(ctx, p)
		})
		for i := range 4 {
			for j := range 20 {
				for range 20 {
					w.store.deliver(job.ID{0xc, byte(i)}, job.ID{1, byte(i), byte(j)})
				}
			}
		}
		w.hinting()
		for i := range 4 {
			w.queue.WakeDelivery(job.ID{0xc, byte(i)})
		}
		pass(testTimeout + time.Second)
		for range 120 {
			w.store.deliver(clientB, endpointB)
			w.queue.WakeDelivery(clientB)
			pass(time.Second)
		}
		require.Equal(t, 120, arrived)
		require.LessOrEqual(t, slowest, testTimeout+time.Second, "at worst until one of those that hang gives its place back")
		require.GreaterOrEqual(t, w.metric(w.metrics.sends), 7.0, "of ten: what is free is little")
	})
}

func TestAFailingEndpointGetsOneAtATimeUntilItSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var healed atomic.Bool
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if healed.Load() {
				return answers(200, 100*time.Millisecond)(ctx, p)
			}
			return answers(500, 100*time.Millisecond)(ctx, p)
		})
		w.store.endpointOf(endpointA).Failures = 3
		for range 100 {
			w.store.deliver(clientA, endpointA)
		}
		w.hint(clientA)
		pass(1050 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		require.Len(t, w.sender.begun(), 11, "at once after each other")
		healed.Store(true)
		pass(time.Second)
		require.Equal(t, 2, w.sender.atOnce(endpointA))
	})
}

// Callbacks have no row that remembers failures.
func TestAnEndpointThatBeginsToFailGetsOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var broken atomic.Bool
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if broken.Load() {
				return answers(500, 100*time.Millisecond)(ctx, p)
			}
			return answers(200, 100*time.Millisecond)(ctx, p)
		})
		w.forgetFailures(endpointA)
		for range 100 {
			w.store.deliver(clientA, endpointA)
		}
		w.hint(clientA)
		pass(550 * time.Millisecond)
		require.Equal(t, 2, w.sender.atOnce(endpointA))
		broken.Store(true)
		pass(200 * time.Millisecond)
		w.sender.atOnce(endpointA)
		pass(time.Second)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
	})
}

// forgetFailures makes an endpoint one whose failures storage does not count.
func (w *courierWorld) forgetFailures(endpoint job.ID) {
	w.store.hook("RecordDelivery", hook{after: func(context.Context) error {
		w.store.meddle(func() { w.store.endpointOf(endpoint).Failures = 0 })
		return nil
	}})
}

// A pump ends with what is due; the next one begins with what it learned.
func TestFailuresOfAnEndpointAreRememberedForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(410, time.Second))
		w.forgetFailures(endpointA)
		deliver := func(n int) (claimed int) {
			for range n {
				w.store.deliver(clientA, endpointA, func(r *parcelRow) { r.WebhookID = job.ID{} })
			}
			w.hint(clientA)
			pass(500 * time.Millisecond)
			_, claimed = w.store.inState(job.DeliveryPending)
			pass(time.Minute)
			require.Zero(t, w.running())
			return claimed
		}
		require.Equal(t, heldRounds, deliver(10))
		require.Equal(t, 2, deliver(10))
		pass(failureMemory)
		require.Equal(t, heldRounds, deliver(10))
	})
}

func TestHintsWaitAMomentWhileTheProcessIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, 5*time.Second))
		for i := range 10 {
			client := job.ID{0xc, byte(i)}
			w.store.deliver(client, endpointA)
			w.hint(client)
		}
		pass(time.Second)
		require.Equal(t, 10.0, w.metric(w.metrics.sends))

		id := w.store.deliver(clientB, endpointB)
		looked := w.store.count("DueEndpoints")
		ctx, cancel := context.WithTimeout(context.Background(), busyPause/2)
		defer cancel()
		require.ErrorIs(t, w.courier.Handle(ctx, clientB), context.DeadlineExceeded)
		require.Equal(t, looked, w.store.count("DueEndpoints"), "the hint is somebody else's")

		began := time.Now()
		w.hint(clientB)
		require.Equal(t, busyPause, time.Since(began))
		pass(8 * time.Second)
		require.Equal(t, job.DeliveryDelivered, w.store.delivery(id).State)
	})
}

// One client cannot have all pumps, whatever its callbacks are.
func TestPumpsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.ClientID == clientA {
				return hanging(ctx, p)
			}
			return answers(200, time.Millisecond)(ctx, p)
		})
		for i := range 300 {
			for range 3 {
				w.store.deliver(clientA, job.ID{1, byte(i >> 8), byte(i)})
			}
		}
		require.ErrorIs(t, w.courier.Handle(context.Background(), clientA), errCrowded)
		require.Equal(t, pumpShare*10/2, w.running())
		require.ErrorIs(t, w.courier.Handle(context.Background(), clientA), errCrowded)
		require.Equal(t, pumpShare*10/2, w.running())

		id := w.store.deliver(clientB, endpointB)
		w.hint(clientB)
		pass(time.Second)
		require.Equal(t, job.DeliveryDelivered, w.store.delivery(id).State)
	})
}

// With very many endpoints each pump holds little, so that the deliveries of
// all of them are not claimed by one process.
func TestManyEndpointsShareWhatOneProcessHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, 100*time.Millisecond))
		clients := []job.ID{clientA, {0xc}}
		for i := range 100 {
			for range 10 {
				w.store.deliver(clients[i%2], job.ID{1, byte(i)})
			}
		}
		w.hint(clients...)
		pass(10 * time.Millisecond)
		_, claimed := w.store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, 100*2)
		pass(15 * time.Second)
		n, _ := w.store.inState(job.DeliveryDelivered)
		require.Equal(t, 1000, n, "ten at once, each a tenth of a second")
	})
}

// Storage may give less than is due: a bound cut the claim, or others have locked
// rows. Nobody repairs here.
func TestAllIsDeliveredThoughClaimsFallShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, time.Millisecond))
		claims := 0
		w.store.short = func(n int) int {
			if claims++; claims%3 == 0 {
				return 0
			}
			return min(n, 2)
		}
		for range 20 {
			w.store.deliver(clientA, endpointA)
		}
		w.hint(clientA)
		pass(5 * time.Second)
		n, _ := w.store.inState(job.DeliveryDelivered)
		require.Equal(t, 20, n)
		require.Less(t, w.store.count("ClaimDeliveries"), 30)
	})
}

func TestClaimsThatFindOnlyLockedRowsDoNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newCourierWorld(t, answers(200, time.Millisecond))
		w.store.short = func(int) int { return 0 }
		w.store.deliver(clientA, endpointA)
		w.hint(clientA)
		pass(time.Second)
		require.LessOrEqual(t, w.store.count("ClaimDeliveries"), 11)
	})
}

// The endpoint is not to blame, and the delivery waits until it can be sent.
func TestTroubleOnThisSideIsNoTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		w := newCourierWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if broken.Load() {
				return failedWith(time.Now(), job.SendInternal, 0)
			}
			return answers(200, 0)(ctx, p)
		})
		id := w.store.deliver(clientA, endpointA)
		w.hinting()
		pass(2 * time.Hour)
		d := w.store.delivery(id)
		require.Equal(t, job.DeliveryPending, d.State)
		require.Zero(t, d.Tries)
		require.InDelta(t, 2*60*4/3, len(w.sender.begun()), 2*60/3, "after the longest wait of a minute, less its random part")
		w.courier.mu.Lock()
		require.Empty(t, w.courier.failed)
		w.courier.mu.Unlock()
		broken.Store(false)
		pass(2 * time.Minute)
		require.Equal(t, job.DeliveryDelivered, w.store.delivery(id).State)
	})
}
