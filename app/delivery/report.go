package delivery

import (
	"context"
	"log/slog"
	"net/url"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// reportRecorded counts and logs an attempt. If the attempt disabled the webhook, it also publishes that event.
func (w *Worker) reportRecorded(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, recorded job.Recorded) {
	w.metrics.Delivered(p, r)
	w.logAttempt(ctx, p, r, recorded.Number)
	if recorded.Disabled == "" {
		return
	}
	w.metrics.WebhooksDisabled.WithLabelValues(string(recorded.Disabled)).Inc()
	w.log.WarnContext(ctx, "webhook disabled", "action", "disable_webhook", "client_id", p.ClientID.String(), "webhook_id",
		p.WebhookID.String(), "reason", string(recorded.Disabled))
	w.queue.Publish(job.Notification{ClientID: p.ClientID})
}

func (w *Worker) logAttempt(ctx context.Context, p job.ClaimedDelivery, r job.DeliveryResult, number int) {
	if !w.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	a := r.Sent.Attempt
	attrs := append(aboutDelivery(p), slog.Int("attempt", number), slog.Int("status", a.Status),
		slog.Int64("duration_ms", a.Duration.Milliseconds()), slog.String("current_state", string(job.DeliveryPending)),
		slog.String("next_state", string(r.State)))
	if a.Error != "" {
		attrs = append(attrs, slog.String("error_code", string(a.Error)), slog.String("error_message", a.Error.Text()))
	}
	if r.State == job.DeliveryPending {
		attrs = append(attrs, slog.Int64("wait_ms", r.Wait.Milliseconds()))
	}
	w.log.InfoContext(ctx, "delivery attempt", attrs...)
}

// Paths and queries of callbacks may contain secrets, so only the host is logged.
func aboutDelivery(p job.ClaimedDelivery) []any {
	attrs := append(make([]any, 0, 12), slog.String("action", "deliver"),
		slog.String("delivery_id", p.Delivery.ID.String()), slog.String("client_id", p.ClientID.String()))
	if !p.WebhookID.IsZero() {
		attrs = append(attrs, slog.String("webhook_id", p.WebhookID.String()))
	} else if u, err := url.Parse(p.URL); err == nil {
		attrs = append(attrs, slog.String("callback_host", u.Host))
	}
	if !p.JobID.IsZero() {
		attrs = append(attrs, slog.String("job_id", p.JobID.String()))
	}
	request := p.RequestID
	if b := p.Occurrence.Batch; b != nil {
		request = b.RequestID
	}
	if request != "" {
		attrs = append(attrs, slog.String("request_id", request))
	}
	if id := p.Occurrence.Origin.CorrelationID; id != "" {
		attrs = append(attrs, slog.String("correlation_id", id))
	}
	return append(attrs, slog.String("event_name", p.EventName))
}

// Only the host of a callback is added: the rest may have secrets.
func describeDelivery(span trace.Span, p job.ClaimedDelivery) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		telemetry.DeliveryID.String(p.Delivery.ID.String()), telemetry.ClientID.String(p.ClientID.String()),
		telemetry.EventName.String(p.EventName), telemetry.Attempt.Int(p.Attempts+1), semconv.HTTPRequestMethodPost)
	if !p.JobID.IsZero() {
		span.SetAttributes(telemetry.JobID.String(p.JobID.String()))
	}
	if !p.WebhookID.IsZero() {
		span.SetAttributes(telemetry.WebhookID.String(p.WebhookID.String()))
	} else if u, err := url.Parse(p.URL); err == nil {
		span.SetAttributes(semconv.ServerAddress(u.Hostname()))
	}
}

func describeSent(span trace.Span, a job.DeliveryAttempt) {
	if !span.IsRecording() {
		return
	}
	if a.Status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(a.Status))
	}
	if a.Error != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(a.Error)))
		span.SetStatus(codes.Error, a.Error.Text())
	}
}
