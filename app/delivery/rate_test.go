package delivery

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeRate lets so many attempts of each client pass in any minute.
type fakeRate struct {
	perMinute int

	mu     sync.Mutex
	passed map[job.ID][]time.Time
	asked  int
}

func (f *fakeRate) Allow(_ context.Context, client job.ID) job.Allowance {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	now, passed := time.Now(), f.passed[client]
	if len(passed) >= f.perMinute {
		if free := passed[len(passed)-f.perMinute].Add(time.Minute); free.After(now) {
			return job.Allowance{RetryAfter: free.Sub(now)}
		}
	}
	f.passed[client] = append(passed, now)
	return job.Allowance{OK: true}
}

func (w *sendingWorld) limit(perMinute int) *fakeRate {
	rate := &fakeRate{perMinute: perMinute, passed: map[job.ID][]time.Time{}}
	w.worker.cfg.Rate = rate
	return rate
}

// What is over a client's rate waits: it is not lost, no attempt is used up, and
// other clients' deliveries go on. Storage is not asked again and again meanwhile.
func TestDeliveriesOverTheRateWait(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 10*time.Millisecond))
		rate := w.limit(5)
		var ids []job.ID
		for range 17 {
			ids = append(ids, w.Store.deliver(apptest.ClientA, endpointA))
		}
		w.hinting()
		var claims atomic.Int32
		w.Store.Hook("ClaimDeliveries", apptest.Hook{Before: func(context.Context) error { claims.Add(1); return nil }})
		w.wake(apptest.ClientA)
		apptest.Pass(30 * time.Second)
		require.Len(t, w.sender.begun(), 5)
		w.Store.deliver(apptest.ClientB, endpointB)
		w.Queue.WakeDelivery(apptest.ClientB)
		apptest.Pass(time.Second)
		require.Len(t, w.sender.begun(), 6, "of the other client at once")
		for _, id := range ids {
			d := w.Store.delivery(id)
			require.Equal(t, d.State == job.DeliveryDelivered, d.Attempts == 1, "no attempt is used up")
			require.Nil(t, d.ClaimedUntil, "nothing is held meanwhile")
		}
		apptest.Pass(40 * time.Second)
		require.Len(t, w.sender.begun(), 11)
		apptest.Pass(2 * time.Minute)
		require.Len(t, w.sender.begun(), 18)
		for _, id := range ids {
			require.Equal(t, job.DeliveryDelivered, w.Store.delivery(id).State)
			require.Equal(t, 1, w.Store.delivery(id).Attempts)
		}
		require.Less(t, claims.Load(), int32(60), "in three minutes")
		require.Less(t, rate.asked, 200)
		apptest.Pass(time.Minute)
		require.Zero(t, w.running())
	})
}

// Who stops does not wait for the rate.
func TestStopWhileDeliveriesWaitForTheRate(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 10*time.Millisecond))
		w.limit(1)
		for range 5 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		began := time.Now()
		w.stop(w.worker, time.Minute)
		require.Less(t, time.Since(began), time.Second)
		waiting, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, []int{4, 0}, []int{waiting, claimed})
	})
}
