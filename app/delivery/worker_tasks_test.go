package delivery

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// punctual begins attempts by the tasks alone: each so much before (or, if
// negative, after) its time by storage's clock.
func (w *sendingWorld) punctual(early time.Duration) {
	w.Background(func(ctx context.Context) {
		var handling sync.WaitGroup
		defer handling.Wait()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		begun := map[job.ID]int{}
		for ctx.Err() == nil {
			for _, d := range w.Queue.WaitingDeliveries() {
				if begun[d.ID] < d.Attempts && time.Until(*d.NextAttemptAt) <= early {
					begun[d.ID] = d.Attempts
					at := job.EndpointKey{Client: d.ClientID, Endpoint: d.Endpoint}
					handling.Go(func() { _ = w.current().Try(ctx, at) })
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

// The task of a delivery begins its next attempt on time, also if the clocks of
// who brings it and of storage differ.
func TestTasksBeginAttempts(t *testing.T) {
	for name, early := range map[string]time.Duration{"punctual": 0, "early": 300 * time.Millisecond, "late": -50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, answers(500, 0))
				id := w.Store.deliver(apptest.ClientA, endpointA)
				w.punctual(early)
				w.wake(apptest.ClientA)
				apptest.Pass(10 * time.Minute)
				d := w.Store.delivery(id)
				require.Equal(t, job.DeliveryFailed, d.State)
				attempts := w.Queue.Attempts()
				require.Len(t, attempts, 1+testDeliveryPolicy.MaxRetries)
				for i, a := range attempts {
					require.Equal(t, []any{id, i + 1, job.SendServerError, 500}, []any{a.ID, a.Attempts, a.LastError, a.LastStatus})
					if i == len(attempts)-1 {
						require.Equal(t, []any{job.DeliveryFailed, (*time.Time)(nil)}, []any{a.State, a.NextAttemptAt})
						break
					}
					require.Equal(t, job.DeliveryPending, a.State)
					late := d.Results[i+1].Sent.Attempt.StartedAt.Sub(*a.NextAttemptAt)
					require.GreaterOrEqual(t, late, time.Duration(0), "never before its time")
					require.LessOrEqual(t, late, 60*time.Millisecond)
				}
				require.Empty(t, w.Queue.WaitingDeliveries())
				require.Zero(t, w.running())
			})
		})
	}
}

// A task whose delivery is not due any more does nothing.
func TestStaleTasks(t *testing.T) {
	for name, change := range map[string]func(*sendingWorld, *deliveryRow){
		"delivered": func(_ *sendingWorld, r *deliveryRow) { r.State = job.DeliveryDelivered },
		"claimed": func(_ *sendingWorld, r *deliveryRow) {
			until := time.Now().Add(time.Hour)
			r.ClaimedUntil = &until
		},
		"its webhook is disabled": func(w *sendingWorld, _ *deliveryRow) {
			w.Store.endpointOf(endpointA).Disabled = &job.Disabled{Reason: job.DisabledByOwner}
		},
		"of no delivery": func(_ *sendingWorld, r *deliveryRow) { r.Endpoint = endpointB },
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, answers(200, 0))
				w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) { change(w, r) })
				require.NoError(t, w.worker.Try(t.Context(), job.EndpointKey{Client: apptest.ClientA, Endpoint: endpointA}))
				apptest.Pass(time.Second)
				require.Empty(t, w.sender.begun())
				require.Empty(t, w.Queue.Attempts())
				require.Zero(t, w.running())
			})
		})
	}
}

// While all sends are taken, the tasks of an endpoint that is being worked for
// do not wait one after another.
func TestTasksOfABusyEndpointDoNotWait(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, hanging)
		for i := range 20 {
			for range 3 {
				w.Store.deliver(job.ID{1, byte(i)}, job.ID{2, byte(i)})
			}
			w.wake(job.ID{1, byte(i)})
		}
		apptest.Pass(time.Second)
		began := time.Now()
		for range 100 {
			require.NoError(t, w.worker.Try(t.Context(), job.EndpointKey{Client: job.ID{1, 0}, Endpoint: job.ID{2, 0}}))
		}
		require.Zero(t, time.Since(began))
		require.NoError(t, w.worker.Try(t.Context(), job.EndpointKey{Client: apptest.ClientA, Endpoint: endpointA}))
		require.Equal(t, busyPause, time.Since(began), "another process may be free")
	})
}

// What waits for a webhook leaves the queue when nothing is sent there any more.
func TestTasksOfAnEndpointAreDropped(t *testing.T) {
	for name, end := range map[string]func(*webhookWorld, job.ID) error{
		"disabled": func(h *webhookWorld, id job.ID) error {
			disabled := false
			_, err := h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{Enabled: &disabled})
			return err
		},
		"deleted": func(h *webhookWorld, id job.ID) error { return h.Unregister(context.Background(), apptest.ClientA, id) },
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				h := newWebhookWorld(t)
				hook := h.w.subscribe(apptest.ClientA)
				at := time.Now().Add(time.Hour)
				for _, endpoint := range []job.ID{hook.ID, endpointB} {
					h.w.Queue.Attempted(job.Delivery{ID: job.ID{3, endpoint[0]}, Endpoint: endpoint, State: job.DeliveryPending, NextAttemptAt: &at})
				}
				require.NoError(t, end(h, hook.ID))
				waiting := h.w.Queue.WaitingDeliveries()
				require.Len(t, waiting, 1)
				require.Equal(t, endpointB, waiting[0].Endpoint)
			})
		})
	}
	t.Run("disabled by an answer", func(t *testing.T) {
		apptest.Bubble(t, func(t *testing.T) {
			w := newSendingWorld(t, answers(410, 0))
			at := time.Now().Add(time.Hour)
			w.Queue.Attempted(job.Delivery{ID: job.ID{3}, Endpoint: endpointA, State: job.DeliveryPending, NextAttemptAt: &at})
			w.Store.deliver(apptest.ClientA, endpointA)
			w.wake(apptest.ClientA)
			apptest.Pass(time.Second)
			require.Empty(t, w.Queue.WaitingDeliveries())
		})
	})
}

// The relay gives the queue what it lost, and begins where it has stopped.
func TestRelaySchedulesWhatWaits(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(500, 0))
		for range job.MaxWaitingTasks + 5 {
			w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) {
				at := time.Now().Add(time.Hour)
				r.Attempts, r.NextAttemptAt = 1, &at
			})
		}
		w.Store.deliver(apptest.ClientA, endpointB, func(r *deliveryRow) {
			at := time.Now().Add(2 * time.Second)
			r.Attempts, r.NextAttemptAt = 1, &at
		})
		w.punctual(0)
		w.lead()
		apptest.Pass(time.Second)
		require.Len(t, w.Queue.WaitingDeliveries(), job.MaxWaitingTasks+1)
		require.Equal(t, job.MaxWaitingTasks+1.0, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("scheduled")))
		w.Queue.Flush()
		apptest.Pass(1500 * time.Millisecond)
		require.Len(t, w.Queue.WaitingDeliveries(), job.MaxWaitingTasks+1)
		require.Len(t, w.Queue.Attempts(), 1, "on time")
		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		require.ErrorIs(t, NewRelay(w.Store, w.Queue, w.Metrics, w.Logger).Round(t.Context(), steadyLead), apptest.ErrQueue)
	})
}
