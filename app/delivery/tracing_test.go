package delivery

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func withTrace(traceparent string) func(*deliveryRow) {
	return func(r *deliveryRow) { r.Traceparent = traceparent }
}

func toCallback(r *deliveryRow) {
	r.WebhookID, r.URL = job.ID{}, "https://user:password@receiver.example:8443/secret?token=secret"
}

// The sender puts the span's traceparent into the request; the record comes below the span, and line and histograms name the trace.
func TestTheLineOfADelivery(t *testing.T) {
	var sent string
	sending(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		sent = telemetry.Traceparent(ctx)
		if p.Attempts > 0 {
			return hanging(ctx, p)
		}
		return answers(503, time.Second)(ctx, p)
	}, func(t *testing.T, w *sendingWorld) {
		w.Logger = slog.New(apptest.TracingHandler{Handler: slog.NewJSONHandler(w.Log, nil)})
		w.worker = w.newSender()
		w.Store.Hook("RecordDelivery", apptest.Hook{Before: func(ctx context.Context) error {
			_, span := telemetry.Start(ctx, "record")
			span.End()
			return nil
		}})
		id := w.attempted(2*time.Second, withTrace(w.Traceparent()))
		span, traceID := w.Span("deliver event"), w.Span("request").SpanContext.TraceID().String()
		require.Equal(t, apptest.TraceparentOf(span), sent)
		w.RequireBelow(w.Span("record"), span)
		lines := w.Log.Lines(t, map[string]any{"msg": "delivery attempt"})
		require.Len(t, lines, 1)
		for field, want := range map[string]any{
			"action": "deliver", "delivery_id": id.String(), "client_id": apptest.ClientA.String(), "webhook_id": endpointA.String(),
			"status": 503.0, "current_state": "PENDING", "next_state": "PENDING", "error_code": "HTTP_5XX",
			"error_message": job.SendServerError.Text(), "trace_id": traceID, "span_id": span.SpanContext.SpanID().String(),
		} {
			require.Equal(t, want, lines[0][field], field)
		}
		require.Equal(t, []string{traceID}, w.Exemplars("webhook_send_seconds"))

		apptest.Pass(10 * time.Second)
		w.wake(apptest.ClientA)
		apptest.Pass(time.Second)
		w.stop(w.worker, 0)
		cut := w.SpansNamed("deliver event")[1]
		require.Equal(t, errStopping.Error(), cut.Status.Description, "the span of what is cut off ends")
		require.Equal(t, int64(2), apptest.Attributes(cut)["forgerun.attempt"])
	})
}
