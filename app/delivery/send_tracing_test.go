package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func withTrace(traceparent string) func(*deliveryRow) {
	return func(r *deliveryRow) { r.Traceparent = traceparent }
}

func TestSpansOfDeliveries(t *testing.T) {
	callback := func(r *deliveryRow) {
		r.WebhookID, r.URL = job.ID{}, "https://user:password@receiver.example:8443/secret?token=secret"
	}
	tests := map[string]struct {
		send    func(context.Context, job.ClaimedDelivery) job.Sent
		change  func(*deliveryRow)
		want    map[string]any // beside those of every delivery
		failed  string         // what the span's status says
		attempt int64
	}{
		"delivered": {
			send: answers(200, time.Second), attempt: 1,
			want: map[string]any{"forgerun.webhook_id": endpointA.String(), "http.response.status_code": int64(200)},
		},
		"to a callback, the second time": {
			send: answers(200, 0), attempt: 2,
			change: func(r *deliveryRow) { callback(r); r.Attempts = 1 },
			want:   map[string]any{"server.address": "receiver.example", "http.response.status_code": int64(200)},
		},
		"refused": {
			send: answers(503, 0), attempt: 1, failed: job.SendServerError.Text(),
			want: map[string]any{"forgerun.webhook_id": endpointA.String(), "http.response.status_code": int64(503), "error.type": "HTTP_5XX"},
		},
		"without an answer": {
			send: hanging, change: callback, attempt: 1, failed: job.SendTimeout.Text(),
			want: map[string]any{"server.address": "receiver.example", "error.type": "TIMEOUT"},
		},
		"crashed": {
			send:    func(context.Context, job.ClaimedDelivery) job.Sent { panic("a secret") },
			attempt: 1, failed: job.SendInternal.Text(),
			want: map[string]any{"forgerun.webhook_id": endpointA.String(), "error.type": "INTERNAL"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, test.send)
				from := w.Traceparent()
				id := w.Store.deliver(apptest.ClientA, endpointA, withTrace(from), func(r *deliveryRow) {
					if test.change != nil {
						test.change(r)
					}
				})
				w.wake(apptest.ClientA)
				apptest.Pass(testTimeout + time.Second)

				span := w.Span("deliver event")
				w.RequireBelow(span, w.Span("request"))
				require.Equal(t, trace.SpanKindClient, span.SpanKind)
				d := w.Store.delivery(id)
				for key, value := range map[string]any{
					"forgerun.delivery_id": id.String(), "forgerun.client_id": apptest.ClientA.String(), "forgerun.job_id": d.JobID.String(),
					"forgerun.event_name": "job.succeeded", "forgerun.attempt": test.attempt, "http.request.method": "POST",
				} {
					test.want[key] = value
				}
				require.Equal(t, test.want, apptest.Attributes(span))
				require.Equal(t, test.failed, span.Status.Description)
				require.Equal(t, test.failed != "", span.Status.Code == codes.Error)
			})
		})
	}
}

// The sender puts the span's traceparent into the request; the record comes
// below the span.
func TestTheSpanOfADeliveryReachesSenderAndStorage(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var sent string
		w := newSendingWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			sent = telemetry.Traceparent(ctx)
			return answers(200, 0)(ctx, p)
		})
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: func(ctx context.Context) error {
			_, span := telemetry.Start(ctx, "record")
			span.End()
			return nil
		}})
		w.Store.deliver(apptest.ClientA, endpointA, withTrace(w.Traceparent()))
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		span := w.Span("deliver event")
		require.Equal(t, apptest.TraceparentOf(span), sent)
		w.RequireBelow(w.Span("record"), span)
	})
}

func TestEachAttemptHasItsSpan(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(500, 0))
		w.hinting()
		w.Store.deliver(apptest.ClientA, endpointA, withTrace(w.Traceparent()))
		w.wake(apptest.ClientA)
		apptest.Pass(time.Hour)
		spans := w.SpansNamed("deliver event")
		require.Len(t, spans, 1+testDeliveryPolicy.MaxRetries)
		for i, span := range spans {
			w.RequireBelow(span, w.Span("request"))
			require.Equal(t, int64(1+i), apptest.Attributes(span)["forgerun.attempt"])
		}
	})
}

func TestUntracedEventsHaveNoSpans(t *testing.T) {
	for _, traceparent := range []string{"", "nonsense", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"} {
		t.Run(traceparent, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newSendingWorld(t, answers(200, 0))
				id := w.Store.deliver(apptest.ClientA, endpointA, withTrace(traceparent))
				w.wake(apptest.ClientA)
				apptest.Pass(time.Second)
				require.Equal(t, job.DeliveryDelivered, w.Store.delivery(id).State)
				require.Empty(t, w.Names())
			})
		})
	}
}

func TestTheSpanOfADeliveryThatIsCutOffEnds(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, hanging)
		w.Store.deliver(apptest.ClientA, endpointA, withTrace(w.Traceparent()))
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		w.stop(w.worker, 0)
		span := w.Span("deliver event")
		require.Equal(t, codes.Error, span.Status.Code)
		require.Equal(t, errStopping.Error(), span.Status.Description)
	})
}

func TestHistogramsNameTraces(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newSendingWorld(t, answers(200, time.Second))
		endpoint := w.subscribe(apptest.ClientA).ID
		w.Store.deliver(apptest.ClientA, endpoint, withTrace(w.Traceparent()))
		w.wake(apptest.ClientA)
		apptest.Pass(2 * time.Second)
		id := []string{w.Span("request").SpanContext.TraceID().String()}
		for _, name := range []string{"webhook_send_seconds", "webhook_latency_seconds"} {
			require.Equal(t, id, w.Exemplars(name), name)
		}
	})
}
