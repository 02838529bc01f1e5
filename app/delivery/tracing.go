package delivery

import (
	"net/url"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// describeDelivery says which delivery a span is about. Of a callback's URL it
// gives the host alone: the others may hold secrets.
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

// describeSent says what became of an attempt to deliver.
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
