package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	resultDelivered = "delivered"
	resultFailed    = "failed"
	resultRetried   = "retried"
)

type deliveryMetrics struct {
	Deliveries, DeliveryFailures *prometheus.CounterVec
	sendTime, deliveryLatency    prometheus.Histogram
	Endpoints, Sends             prometheus.Gauge
	WebhooksDisabled             *prometheus.CounterVec
}

func newDeliveryMetrics(in telemetry.Factory) deliveryMetrics {
	m := deliveryMetrics{
		Deliveries: in.Counters("webhook_deliveries_total", "Delivery attempts, by the resulting state of the delivery.",
			[]string{"event", "result"}),
		DeliveryFailures: in.Counters("webhook_failures_total", "Failed delivery attempts, by error and status.",
			[]string{"class", "code"}),
		sendTime: in.Histogram("webhook_send_seconds", "Duration of a delivery attempt.", telemetry.Long),
		deliveryLatency: in.Histogram("webhook_latency_seconds", "Time from an event to its delivery, if the first attempt succeeded.",
			telemetry.Long),
		Endpoints: in.Gauge("webhook_endpoints_active", "Endpoints that this process delivers to now."),
		Sends:     in.Gauge("webhook_sends_in_flight", "Delivery attempts in progress in this process."),
		WebhooksDisabled: in.Counters("webhook_disabled_total", "Webhooks that the server disabled.", []string{"reason"},
			string(job.DisabledGone), string(job.DisabledFailing)),
	}
	for _, event := range append(slices.Clone(job.SubscribableEvents), otherEvent) {
		for _, result := range []string{resultDelivered, resultFailed, resultRetried} {
			m.Deliveries.WithLabelValues(event, result)
		}
	}
	for _, class := range job.SendErrors {
		if class == job.SendDisabled || class == job.SendDeleted { // these errors end a delivery without an attempt
			continue
		}
		for _, code := range []string{noAnswer, "2xx", "3xx", "4xx", "5xx"} {
			m.DeliveryFailures.WithLabelValues(string(class), code)
		}
	}
	return m
}

const otherEvent = "other"

func eventLabel(name string) string {
	if slices.Contains(job.SubscribableEvents, name) {
		return name
	}
	return otherEvent
}

const noAnswer = "none"

func codeLabel(status int) string {
	if status < 200 || status > 599 {
		return noAnswer
	}
	return fmt.Sprintf("%dxx", status/100)
}

// Sent records the duration of an attempt. If the first attempt succeeded, it also records the time since the delivery was created.
func (m *deliveryMetrics) Sent(ctx context.Context, p job.ClaimedDelivery, a job.DeliveryAttempt, took time.Duration) {
	telemetry.Observe(ctx, m.sendTime, took)
	if a.Error == "" && p.Attempts == 0 {
		telemetry.Observe(ctx, m.deliveryLatency, max(0, time.Since(p.CreatedAt)))
	}
}

// Delivered counts a recorded attempt.
func (m *deliveryMetrics) Delivered(p job.ClaimedDelivery, r job.DeliveryResult) {
	result := map[job.DeliveryState]string{
		job.DeliveryDelivered: resultDelivered, job.DeliveryFailed: resultFailed, job.DeliveryPending: resultRetried,
	}[r.State]
	m.Deliveries.WithLabelValues(eventLabel(p.EventName), result).Inc()
	if a := r.Sent.Attempt; a.Error != "" {
		m.DeliveryFailures.WithLabelValues(string(a.Error), codeLabel(a.Status)).Inc()
	}
}
