package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestLostAnswersCostTimeAndLoseNothing(t *testing.T) {
	hold := testTimeout + holdMargin
	for name, c := range map[string]struct {
		operation string
		hook      apptest.Hook
		within    time.Duration
		sends     int
	}{
		"the claim's":     {"ClaimDelivery", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)}, hold + 3*time.Second, 1},
		"the claim fails": {"ClaimDelivery", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)}, 2 * time.Second, 1},
		"the record's":    {"RecordDelivery", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)}, time.Second, 1},
		"the record fails for seconds": {"RecordDelivery", apptest.Hook{Before: apptest.Fails(recordTries-1, apptest.ErrStorage)},
			5 * time.Second, 1},
		"the record fails for long": {"RecordDelivery", apptest.Hook{Before: apptest.Fails(recordTries, apptest.ErrStorage)},
			hold + 3*time.Second, 2},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldDelivery(t, answers(200, 0))
			w.Store.Hook(c.operation, c.hook)
			id := w.Store.deliver(apptest.ClientA, endpointA)
			w.working()
			apptest.Pass(c.within)
			d := w.Store.delivery(id)
			require.Equal(t, job.DeliveryDelivered, d.State)
			require.Len(t, d.Results, 1)
			require.Len(t, w.sender.begun(), c.sends)
		})
	}
}

func TestALateResultChangesNothing(t *testing.T) {
	sending(t, answers(200, time.Second), func(t *testing.T, w *worldDelivery) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		handled := make(chan error, 1)
		go func() { handled <- w.handle(id) }()
		synctest.Wait()
		w.Store.Update(func() { w.Store.row(id).Fence++ })
		require.ErrorIs(t, <-handled, job.ErrTaskStale)
		require.Empty(t, w.Store.delivery(id).Results)
		require.Equal(t, 1, w.Store.Count("RecordDelivery"), "and is not repeated")
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("deliver")))
		require.Zero(t, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "delivered")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "a late write changed nothing", "fence": 1.0}), 1)
	})
}

// An answer that storage refuses must not have the delivery repeated for good.
func TestAnAttemptIsRecordedWithoutAnAnswerThatStorageRefuses(t *testing.T) {
	sending(t, answers(200, 0), func(t *testing.T, w *worldDelivery) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: apptest.Fails(1, &job.Error{Code: job.CodeInternal,
			Detail: "invalid byte sequence"})})
		require.NoError(t, w.handle(id))
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryDelivered, d.State)
		require.Empty(t, d.Results[0].Sent.Attempt.Body)
	})
}

// A send that would outlast its claim does not begin: somebody else may have
// the delivery by then.
func TestAClaimThatEndsTooSoonIsGivenBack(t *testing.T) {
	sending(t, answers(200, 0), func(t *testing.T, w *worldDelivery) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.Store.Hook("ClaimDelivery", apptest.Hook{After: apptest.Slow(holdMargin - sendMargin + time.Millisecond)})
		require.Equal(t, &job.TaskEarly{}, w.handle(id))
		require.Equal(t, 1, w.Store.Count("ReleaseDelivery"))
		w.Store.Hook("ClaimDelivery", apptest.Hook{})
		require.NoError(t, w.handle(id))
		require.Equal(t, 2, w.Store.delivery(id).Results[0].Fence)
		require.Len(t, w.sender.begun(), 1)
	})
}

// Stopping waits for sends, for as long as it may; what it cuts off did not fail, and what waits is given back: somebody else
// sends it.
func TestStopping(t *testing.T) {
	late := func(w *worldDelivery) { w.Store.Hook("ClaimDelivery", apptest.Hook{After: apptest.Slow(time.Second)}) }
	for name, c := range map[string]struct {
		takes       time.Duration // each send
		change      func(*worldDelivery)
		runs, grace time.Duration
		took        time.Duration
		held        int // when it begins
		delivered   int
	}{
		"waits for sends":           {3 * time.Second, func(*worldDelivery) {}, time.Second, 10 * time.Second, 2 * time.Second, unknownRoom, 1},
		"cuts off what is too long": {8 * time.Second, func(*worldDelivery) {}, time.Second, 2 * time.Second, 2 * time.Second, unknownRoom, 0},
		"gives a late claim back":   {0, late, 0, time.Minute, time.Second, unknownRoom, 0},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldDelivery(t, answers(200, c.takes))
			c.change(w)
			w.Background(func(ctx context.Context) { w.Queue.run(ctx, HandlersOf(10), w.worker.Handle) })
			w.delivers(20, apptest.ClientA, endpointA)
			apptest.Pass(c.runs)
			_, held := w.Store.inState(job.DeliveryPending)
			require.Equal(t, c.held, held, "one is sent, the others wait")
			began := time.Now()
			w.stop(c.grace)
			require.Equal(t, c.took, time.Since(began))
			waiting, held := w.Store.inState(job.DeliveryPending)
			require.Equal(t, []int{20 - c.delivered, 0}, []int{waiting, held})
			require.Equal(t, c.delivered, w.Store.Count("RecordDelivery"))
			require.Equal(t, &job.TaskEarly{Wait: minBusy}, w.handle(w.Store.deliver(apptest.ClientA, endpointB)), "it takes no more")
		})
	}
}

func TestStoppingWhileEverythingHangs(t *testing.T) {
	for _, operation := range []string{"ClaimDelivery", "RecordDelivery", "ReleaseDelivery"} {
		apptest.Run(t, operation, func(t *testing.T) {
			w := newWorldDelivery(t, answers(200, 100*time.Millisecond))
			w.Store.Hook(operation, apptest.Hook{Before: apptest.Hangs})
			w.Background(func(ctx context.Context) { w.Queue.run(ctx, HandlersOf(10), w.worker.Handle) })
			w.delivers(20, apptest.ClientA, endpointA)
			apptest.Pass(50 * time.Millisecond)
			began := time.Now()
			w.stop(time.Second)
			require.LessOrEqual(t, time.Since(began), time.Second+cutGrace)
		})
	}
}

func toCallback(r *deliveryRow) {
	r.WebhookID, r.URL = job.ID{}, "https://user:password@receiver.example:8443/secret?token=secret"
}
