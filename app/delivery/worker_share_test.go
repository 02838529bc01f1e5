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

// An endpoint that hangs is sent one at a time, and the others go on as if it were not there.
func TestAHangingEndpointDelaysNobodyElse(t *testing.T) {
	var healthy latest
	sending(t, healthy.beside(func(p job.ClaimedDelivery) bool { return p.Endpoint == endpointA }), func(t *testing.T, w *worldDelivery) {
		w.working()
		w.delivers(1, apptest.ClientA, endpointB)
		apptest.Pass(time.Second)
		w.delivers(300, apptest.ClientA, endpointA)
		for range 60 {
			w.delivers(10, apptest.ClientA, endpointB)
			apptest.Pass(time.Second)
		}
		require.Equal(t, 601, healthy.begun)
		require.Less(t, healthy.longest, 100*time.Millisecond)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		require.Equal(t, 2, w.sender.atOnce(endpointB), "a fifth of ten")
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, unknownRoom, "what cannot be sent in time is not held")
	})
}

// A client with many endpoints that hang has its share at most. Several such clients can take all slots for the time of one send,
// never longer: then it is somebody else's turn.
func TestClientsWhoseEndpointsHangShareSends(t *testing.T) {
	for clients, within := range map[int]time.Duration{1: 50 * time.Millisecond, 4: testTimeout + 2*time.Second} {
		t.Run(strconv.Itoa(clients), func(t *testing.T) {
			var healthy latest
			hangs := func(p job.ClaimedDelivery) bool { return p.ClientID != apptest.ClientB }
			sending(t, healthy.beside(hangs), func(t *testing.T, w *worldDelivery) {
				w.working()
				for i := range clients {
					for j := range 20 {
						w.delivers(8, job.ID{0xc, byte(i)}, job.ID{1, byte(i), byte(j)})
					}
				}
				apptest.Pass(time.Second)
				if clients == 1 {
					require.Equal(t, 5.0, w.Metric(w.Metrics.Sends), "half of ten")
				}
				apptest.Pass(testTimeout)
				for range 40 {
					w.delivers(1, apptest.ClientB, endpointB)
					apptest.Pass(time.Second)
				}
				apptest.Pass(testTimeout)
				require.Equal(t, 40, healthy.begun)
				require.LessOrEqual(t, healthy.longest, within, "at worst until one of those that hang gives its place back")
			})
		})
	}
}

// A failing endpoint gets one delivery at a time, also a callback, whose failures storage does not count.
func TestAFailingEndpointGetsOneAtATime(t *testing.T) {
	var failing atomic.Bool
	sending(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		if failing.Load() {
			return answers(500, 100*time.Millisecond)(ctx, p)
		}
		return answers(200, 100*time.Millisecond)(ctx, p)
	}, func(t *testing.T, w *worldDelivery) {
		failing.Store(true)
		w.Store.endpointOf(endpointA).Failures = 3
		w.working()
		w.delivers(100, apptest.ClientA, endpointA)
		apptest.Pass(5 * time.Second)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
		failing.Store(false)
		apptest.Pass(time.Minute)
		require.Equal(t, 2, w.sender.atOnce(endpointA), "until it succeeds")
		w.forgetFailures(endpointA)
		failing.Store(true)
		w.delivers(100, apptest.ClientA, endpointA)
		apptest.Pass(2 * time.Second)
		w.sender.atOnce(endpointA)
		apptest.Pass(10 * time.Second)
		require.Equal(t, 1, w.sender.atOnce(endpointA))
	})
}

// forgetFailures makes an endpoint one whose failures storage does not count.
func (w *worldDelivery) forgetFailures(endpoint job.ID) {
	w.Store.Hook("RecordDelivery", apptest.Hook{After: func(context.Context) error {
		w.Store.Update(func() { w.Store.endpointOf(endpoint).Failures = 0 })
		return nil
	}})
}

// A client with very many deliveries keeps no other client's waiting. What is put off comes back in the time that sending takes:
// no task is handled again and again.
func TestABacklogDelaysNoOtherClient(t *testing.T) {
	var healthy latest
	var others, handled atomic.Int32
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			if p.ClientID == apptest.ClientA {
				others.Add(1)
				return answers(200, 20*time.Millisecond)(ctx, p)
			}
			return healthy.beside(func(job.ClaimedDelivery) bool { return false })(ctx, p)
		})
		const backlog = 1500
		w.Background(func(ctx context.Context) {
			w.Queue.run(ctx, HandlersOf(10), func(ctx context.Context, t job.DeliveryTask) error {
				handled.Add(1)
				return w.worker.Handle(ctx, t)
			})
		})
		w.delivers(backlog, apptest.ClientA, endpointA)
		for range 10 {
			w.delivers(1, apptest.ClientB, endpointB)
			apptest.Pass(time.Second)
			_, claimed := w.Store.inState(job.DeliveryPending)
			require.LessOrEqual(t, claimed, claimShare*10, "their data is in memory")
		}
		require.Equal(t, 10, healthy.begun)
		require.Less(t, healthy.longest, 100*time.Millisecond)
		require.Greater(t, others.Load(), int32(500), "a hundred a second at most")
		apptest.Pass(time.Minute)
		n, _ := w.Store.inState(job.DeliveryDelivered)
		require.Equal(t, backlog+10, n, "the endpoint is kept busy")
		require.Less(t, handled.Load(), int32(5*backlog))
	})
}
