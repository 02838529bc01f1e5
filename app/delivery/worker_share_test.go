package delivery

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// latest is the longest that a healthy receiver's delivery took to begin, and how many began.
type latest struct {
	mu      sync.Mutex
	longest time.Duration
	begun   int
}

// beside answers at once to all but those whose endpoints hang.
func (l *latest) beside(hangs func(job.ClaimedDelivery) bool) func(context.Context, job.ClaimedDelivery) job.Sent {
	return func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		if hangs(p) {
			return hanging(ctx, p)
		}
		l.mu.Lock()
		l.longest, l.begun = max(l.longest, time.Since(p.CreatedAt)), l.begun+1
		l.mu.Unlock()
		return answers(200, 5*time.Millisecond)(ctx, p)
	}
}

// An endpoint that hangs has its share at most, one at a time once that is
// known, and the others go on as if it were not there.
func TestAHangingEndpointDelaysNobodyElse(t *testing.T) {
	var healthy latest
	sending(t, healthy.beside(func(p job.ClaimedDelivery) bool { return p.Endpoint == endpointA }), func(t *testing.T, w *sendingWorld) {
		w.Store.deliverMany(300, apptest.ClientA, endpointA)
		w.hinting()
		w.wake(apptest.ClientA)
		apptest.Pass(100 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		for range 60 {
			w.Store.deliverMany(10, apptest.ClientA, endpointB)
			w.Queue.WakeDelivery(apptest.ClientA)
			apptest.Pass(time.Second)
		}
		require.Equal(t, 600, healthy.begun)
		require.Less(t, healthy.longest, 100*time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		require.Equal(t, 2, w.sender.atOnce(endpointB), "a fifth of ten")
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, 2, "what cannot be sent in time is not held")
	})
}

// A client with many endpoints that hang has its share at most. Several such clients can take all slots for the time of one send,
// never longer: then it is somebody else's turn.
func TestClientsWhoseEndpointsHangShareSends(t *testing.T) {
	for clients, within := range map[int]time.Duration{1: 50 * time.Millisecond, 4: testTimeout + time.Second} {
		t.Run(strconv.Itoa(clients), func(t *testing.T) {
			var healthy latest
			hangs := func(p job.ClaimedDelivery) bool { return p.ClientID != apptest.ClientB }
			sending(t, healthy.beside(hangs), func(t *testing.T, w *sendingWorld) {
				w.hinting()
				for i := range clients {
					for j := range 20 * 8 {
						w.Store.deliver(job.ID{0xc, byte(i)}, job.ID{1, byte(i), byte(j % 20)})
					}
					w.Queue.WakeDelivery(job.ID{0xc, byte(i)})
				}
				apptest.Pass(time.Second)
				if clients == 1 {
					require.Equal(t, 5.0, w.Metric(w.Metrics.Sends), "half of ten")
				}
				apptest.Pass(testTimeout)
				for range 40 {
					w.Store.deliver(apptest.ClientB, endpointB)
					w.Queue.WakeDelivery(apptest.ClientB)
					apptest.Pass(time.Second)
				}
				require.Equal(t, 40, healthy.begun)
				require.LessOrEqual(t, healthy.longest, within, "at worst until one of those that hang gives its place back")
				if clients > 1 {
					require.GreaterOrEqual(t, w.Metric(w.Metrics.Sends), 7.0, "of ten: what is free is little")
				}
			})
		})
	}
}

// While it fails an endpoint gets one at a time, at once after each other, whether storage counts its failures or, as of callbacks,
// nobody does.
func TestAFailingEndpointGetsOneAtATime(t *testing.T) {
	var failing atomic.Bool
	sending(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		if failing.Load() {
			return answers(500, 100*time.Millisecond)(ctx, p)
		}
		return answers(200, 100*time.Millisecond)(ctx, p)
	}, func(t *testing.T, w *sendingWorld) {
		failing.Store(true)
		w.Store.endpointOf(endpointA).Failures = 3
		w.Store.deliverMany(100, apptest.ClientA, endpointA)
		w.wake(apptest.ClientA)
		apptest.Pass(1050 * time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		require.Len(t, w.sender.begun(), 11)
		failing.Store(false)
		apptest.Pass(time.Second)
		require.Equal(t, 2, w.sender.atOnce(endpointA), "until it succeeds")
		w.forgetFailures(endpointA)
		failing.Store(true)
		apptest.Pass(200 * time.Millisecond)
		w.sender.atOnce(endpointA)
		apptest.Pass(time.Second)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
	})
}

// forgetFailures makes an endpoint one whose failures storage does not count.
func (w *sendingWorld) forgetFailures(endpoint job.ID) {
	w.Store.Hook("RecordDelivery", apptest.Hook{After: func(context.Context) error {
		w.Store.Update(func() { w.Store.endpointOf(endpoint).Failures = 0 })
		return nil
	}})
}

func TestWakeUpsWaitAMomentWhileTheProcessIsBusy(t *testing.T) {
	sending(t, answers(200, 5*time.Second), func(t *testing.T, w *sendingWorld) {
		for i := range 10 {
			client := job.ID{0xc, byte(i)}
			w.Store.deliver(client, endpointA)
			w.wake(client)
		}
		apptest.Pass(time.Second)
		require.Equal(t, 10.0, w.Metric(w.Metrics.Sends))

		id := w.Store.deliver(apptest.ClientB, endpointB)
		looked := w.Store.Count("DueEndpoints")
		ctx, cancel := context.WithTimeout(context.Background(), busyPause/2)
		defer cancel()
		require.ErrorIs(t, w.worker.Handle(ctx, apptest.ClientB), context.DeadlineExceeded)
		require.Equal(t, looked, w.Store.Count("DueEndpoints"), "the wake-up is another process's")

		began := time.Now()
		w.wake(apptest.ClientB)
		require.Equal(t, busyPause, time.Since(began))
		apptest.Pass(8 * time.Second)
		require.Equal(t, job.DeliveryDelivered, w.Store.delivery(id).State)
	})
}

// One client cannot have all dispatchers, whatever its callbacks are.
func TestPumpsAreBounded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.ClientID == apptest.ClientA {
				return hanging(ctx, p)
			}
			return answers(200, time.Millisecond)(ctx, p)
		})
		for i := range 300 {
			w.Store.deliverMany(3, apptest.ClientA, job.ID{1, byte(i >> 8), byte(i)})
		}
		require.ErrorIs(t, w.worker.Handle(context.Background(), apptest.ClientA), errTooManyEndpoints)
		require.Equal(t, dispatcherShare*10/2, w.running())
		require.ErrorIs(t, w.worker.Handle(context.Background(), apptest.ClientA), errTooManyEndpoints)
		require.Equal(t, dispatcherShare*10/2, w.running())

		id := w.Store.deliver(apptest.ClientB, endpointB)
		w.wake(apptest.ClientB)
		apptest.Pass(time.Second)
		require.Equal(t, job.DeliveryDelivered, w.Store.delivery(id).State)
	})
}

// With very many endpoints each dispatcher holds little, so that the deliveries of
// all of them are not claimed by one process.
func TestManyEndpointsShareWhatOneProcessHolds(t *testing.T) {
	sending(t, answers(200, 100*time.Millisecond), func(t *testing.T, w *sendingWorld) {
		clients := []job.ID{apptest.ClientA, {0xc}}
		const endpoints = 60
		for i := range endpoints {
			w.Store.deliverMany(10, clients[i%2], job.ID{1, byte(i)})
		}
		w.wake(clients...)
		apptest.Pass(10 * time.Millisecond)
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, endpoints*2)
		apptest.Pass(9 * time.Second)
		n, _ := w.Store.inState(job.DeliveryDelivered)
		require.Equal(t, 10*endpoints, n, "ten at once, each a tenth of a second")
	})
}

// The endpoint is not to blame, and the delivery waits until it can be sent.
func TestTroubleOnThisSideIsNoTry(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var failing atomic.Bool
		failing.Store(true)
		w := newSendingWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if failing.Load() {
				return failedWith(time.Now(), job.SendInternal, 0)
			}
			return answers(200, 0)(ctx, p)
		})
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.hinting()
		apptest.Pass(2 * time.Hour)
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryPending, d.State)
		require.Zero(t, d.Tries)
		require.InDelta(t, 2*60*4/3, len(w.sender.begun()), 2*60/3, "after the longest wait of a minute, less its random part")
		failing.Store(false)
		apptest.Pass(2 * time.Minute)
		require.Equal(t, job.DeliveryDelivered, w.Store.delivery(id).State)
	})
}
