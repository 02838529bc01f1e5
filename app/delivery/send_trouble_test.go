package delivery

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
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
		"the claim's":     {"ClaimDeliveries", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)}, hold + 3*time.Second, 1},
		"the claim fails": {"ClaimDeliveries", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)}, 2 * time.Second, 1},
		"the record's":    {"RecordDelivery", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)}, time.Second, 1},
		"the record fails for seconds": {"RecordDelivery", apptest.Hook{Before: apptest.Fails(recordTries-1, apptest.ErrStorage)},
			5 * time.Second, 1},
		"the record fails for long": {"RecordDelivery", apptest.Hook{Before: apptest.Fails(recordTries, apptest.ErrStorage)},
			hold + 3*time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, answers(200, 0))
				w.hinting()
				w.Store.Hook(c.operation, c.hook)
				id := w.Store.deliver(apptest.ClientA, endpointA)
				w.wake(apptest.ClientA)
				apptest.Pass(c.within)
				d := w.Store.delivery(id)
				require.Equal(t, job.DeliveryDelivered, d.State)
				require.Len(t, d.Results, 1)
				require.Len(t, w.sender.begun(), c.sends)
			})
		})
	}
}

func TestALateResultChangesNothing(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, time.Second))
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.wake(apptest.ClientA)
		synctest.Wait()
		w.Store.Update(func() { w.Store.row(id).Fence++ })
		apptest.Pass(2 * time.Second)
		require.Empty(t, w.Store.delivery(id).Results)
		require.Equal(t, 1, w.Store.Count("RecordDelivery"), "and is not repeated")
		require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("deliver")))
		require.Zero(t, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "delivered")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "a late write changed nothing", "fence": 1.0}), 1)
	})
}

// An answer that storage refuses must not have the delivery repeated for good.
func TestAnAttemptIsRecordedWithoutAnAnswerThatStorageRefuses(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 0))
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: apptest.Fails(1, &job.Error{Code: job.CodeInternal,
			Detail: "invalid byte sequence"})})
		w.wake(apptest.ClientA)
		synctest.Wait()
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryDelivered, d.State)
		require.Empty(t, d.Results[0].Sent.Attempt.Body)
	})
}

// A send that would outlast its claim does not begin: somebody else may have
// the delivery by then.
func TestAClaimThatEndsTooSoonIsGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 0))
		id := w.Store.deliver(apptest.ClientA, endpointA)
		late := make(chan struct{})
		w.Store.Hook("ClaimDeliveries", apptest.Hook{After: func(context.Context) error { <-late; return nil }})
		w.wake(apptest.ClientA)
		apptest.Pass(holdMargin - sendMargin + time.Millisecond)
		require.Equal(t, 1, w.Store.Count("ClaimDeliveries"))
		close(late)
		synctest.Wait()
		require.Equal(t, 1, w.Store.Count("ReleaseDeliveries"))
		d := w.Store.delivery(id)
		require.Len(t, d.Results, 1, "claimed again, at once")
		require.Equal(t, 2, d.Results[0].Fence)
		require.Len(t, w.sender.begun(), 1)
	})
}

// What waits behind a receiver that is slow is given back for others in time.
func TestWhatWaitsTooLongIsGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, hanging)
		first := app.NewID()
		for seq := 1; seq <= 4; seq++ {
			w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { r.JobID, r.Seq = first, seq })
		}
		w.wake(apptest.ClientA)
		apptest.Pass(2*testTimeout + time.Second)
		require.GreaterOrEqual(t, w.Store.Count("ReleaseDeliveries"), 1)
		apptest.Pass(3 * testTimeout)
		for _, r := range w.Store.deliveries {
			require.NotEmpty(t, r.Results)
		}
		require.Zero(t, w.Metric(w.Metrics.FencedWrites.WithLabelValues("deliver")))
	})
}

// Others, or this process later, may send it in time.
func TestWhatAnEndpointThatBeginsToFailCannotTakeIsGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(410, time.Second))
		for range 20 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.wake(apptest.ClientA)
		apptest.Pass(500 * time.Millisecond)
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, heldRounds, claimed)
		apptest.Pass(2 * time.Second)
		_, claimed = w.Store.inState(job.DeliveryPending)
		require.LessOrEqual(t, claimed, 2)
		apptest.Pass(time.Minute)
		require.LessOrEqual(t, len(w.sender.begun()), 2+2, "it is gone")
	})
}

// Results that storage does not take hold up the sending in the end: otherwise
// everything would be sent again and again.
func TestUnrecordedResultsAreBounded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 0))
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: apptest.Hangs})
		clients := []job.ID{apptest.ClientA, apptest.ClientB}
		for i := range 10 {
			for range 20 {
				w.Store.deliver(clients[i%2], job.ID{1, byte(i)})
			}
		}
		w.wake(clients...)
		apptest.Pass(5 * time.Second)
		require.Len(t, w.sender.begun(), 10*unrecordedShare)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		w.worker.Stop(ctx)
		require.LessOrEqual(t, time.Since(began), time.Second+cutGrace)
	})
}

// Results are recorded beside the sends, not between them.
func TestSlowRecordsDelayNoSend(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 10*time.Millisecond))
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }})
		for range 100 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.wake(apptest.ClientA)
		apptest.Pass(520 * time.Millisecond)
		require.Len(t, w.sender.begun(), 100, "two at once, each a hundredth of a second")
	})
}

func TestStoppingWaitsForSendsAndGivesTheRestBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 3*time.Second))
		for range 20 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		_, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, heldRounds, claimed, "one is sent, the others wait")
		began := time.Now()
		w.stop(w.worker, 10*time.Second)
		require.Equal(t, 2*time.Second, time.Since(began))
		delivered, _ := w.Store.inState(job.DeliveryDelivered)
		require.Equal(t, 1, delivered)
		_, claimed = w.Store.inState(job.DeliveryPending)
		require.Zero(t, claimed)
		require.Len(t, w.sender.begun(), 1)
	})
}

// What a shutdown cuts off did not fail: it is sent again, by somebody else.
func TestStoppingCutsOffWhatTakesTooLong(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 8*time.Second))
		for range 20 {
			w.Store.deliver(apptest.ClientA, endpointA)
		}
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		began := time.Now()
		w.stop(w.worker, 2*time.Second)
		require.Equal(t, 2*time.Second, time.Since(began))
		n, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, []int{20, 0}, []int{n, claimed})
		require.Zero(t, w.Store.Count("RecordDelivery"))
	})
}

func TestStoppingWhileEverythingHangs(t *testing.T) {
	for _, operation := range []string{"ClaimDeliveries", "RecordDelivery", "ReleaseDeliveries", "DueEndpoints"} {
		t.Run(operation, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, answers(200, 100*time.Millisecond))
				for range 20 {
					w.Store.deliver(apptest.ClientA, endpointA)
				}
				w.Store.Hook(operation, apptest.Hook{Before: apptest.Hangs})
				ctx, cancel := context.WithCancel(context.Background())
				handled := make(chan error, 1)
				go func() { handled <- w.worker.Handle(ctx, apptest.ClientA) }()
				apptest.Pass(50 * time.Millisecond)
				began := time.Now()
				w.stop(w.worker, time.Second)
				require.LessOrEqual(t, time.Since(began), time.Second+cutGrace)
				cancel()
				if err := <-handled; err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			})
		})
	}
}

// A claim whose answer comes during the stop is given back as well.
func TestAClaimThatIsAnsweredDuringTheStopIsGivenBack(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, 0))
		w.Store.deliver(apptest.ClientA, endpointA)
		w.Store.Hook("ClaimDeliveries", apptest.Hook{After: func(context.Context) error { time.Sleep(time.Second); return nil }})
		w.wake(apptest.ClientA)
		w.stop(w.worker, time.Minute)
		n, claimed := w.Store.inState(job.DeliveryPending)
		require.Equal(t, []int{1, 0}, []int{n, claimed})
		require.Empty(t, w.sender.begun())
	})
}

// Workers that come and go on stores that fail in all ways, receivers that
// fail and hang, and a queue that is emptied: in the end all is delivered or
// given up, and what counts as delivered was received.
func TestDeliveringOnStoresThatFail(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) { deliverOnStoresThatFail(t, &sharedRand{r: rand.New(rand.NewPCG(seed, 1))}) })
		})
	}
}

func deliverOnStoresThatFail(t *testing.T, random *sharedRand) {
	received := map[job.ID]bool{}
	calm := false
	w := newSendingWorld(t, nil)
	w.sender.send = func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		n, took := random.n(20), time.Duration(random.n(200))*time.Millisecond
		switch {
		case n == 0:
			return hanging(ctx, p)
		case n == 1:
			panic("boom")
		case n < 6:
			return answers(500, took)(ctx, p)
		}
		sent := answers(200, took)(ctx, p)
		w.Store.Update(func() { received[p.Delivery.ID] = received[p.Delivery.ID] || sent.Attempt.Error == "" })
		return sent
	}
	w.Store.Chaos = func(string) (before, after error) { // with the lock held
		switch n := random.n(20); {
		case calm || n > 1:
			return nil, nil
		case n == 0:
			return apptest.ErrStorage, nil
		default:
			return nil, apptest.ErrStorage
		}
	}
	w.Store.short = func(n int) int { return random.n(n + 1) }
	w.hinting()
	for range 200 {
		w.Store.deliver(job.ID{0xc, byte(random.n(3))}, job.ID{0xe, byte(random.n(5))})
		w.Queue.WakeDelivery(job.ID{0xc, byte(random.n(3))})
		apptest.Pass(time.Duration(random.n(200)) * time.Millisecond)
		if random.n(40) == 0 {
			w.replace()
			w.Queue.Woken()
		}
	}
	w.Store.Update(func() { calm = true })
	apptest.Pass(15 * time.Minute)
	pending, _ := w.Store.inState(job.DeliveryPending)
	require.Zero(t, pending)
	w.Store.Update(func() {
		for _, r := range w.Store.deliveries {
			require.LessOrEqual(t, len(r.Results), 1+testDeliveryPolicy.MaxRetries)
			require.True(t, r.State != job.DeliveryDelivered || received[r.ID], "delivered without being received")
		}
	})
}

func TestTheLineOfADelivery(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(503, 0))
		w.Logger = slog.New(apptest.TracingHandler{Handler: slog.NewJSONHandler(w.Log, nil)})
		w.worker = w.newSender()
		id := w.Store.deliver(apptest.ClientA, endpointA, withTrace(w.Traceparent()))
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		lines := w.Log.Lines(t, map[string]any{"msg": "delivery attempt"})
		require.Len(t, lines, 1)
		for field, want := range map[string]any{
			"action": "deliver", "delivery_id": id.String(), "client_id": apptest.ClientA.String(), "webhook_id": endpointA.String(),
			"status":        503.0,
			"current_state": "PENDING", "next_state": "PENDING", "error_code": "HTTP_5XX", "error_message": job.SendServerError.Text(),
			"trace_id": w.Span("request").SpanContext.TraceID().String(), "span_id": w.Span("deliver event").SpanContext.SpanID().String(),
		} {
			require.Equal(t, want, lines[0][field], field)
		}
	})
}
