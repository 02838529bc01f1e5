package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
)

// Results of an attempt to deliver.
const (
	resultDelivered = "delivered"
	resultFailed    = "failed"
	resultRetried   = "retried"
)

// deliveryMetrics are the metrics of webhooks and of the outcome stream.
type deliveryMetrics struct {
	deliveries, deliveryFailures *prometheus.CounterVec
	sendTime, deliveryLatency    prometheus.Histogram
	pumps, sends                 prometheus.Gauge
	webhooksDisabled             *prometheus.CounterVec
	deliveriesRepaired           *prometheus.CounterVec
	outcomesPublished            prometheus.Counter
}

func newDeliveryMetrics(in registrar) deliveryMetrics {
	classes := make([]string, 0, len(job.SendErrors))
	for _, class := range job.SendErrors {
		if class != job.SendDisabled && class != job.SendDeleted { // these are of no attempt
			classes = append(classes, string(class))
		}
	}
	return deliveryMetrics{
		deliveries: in.counters("webhook_deliveries_total", "Attempts to deliver, by what became of the delivery.", []string{"result"},
			resultDelivered, resultFailed, resultRetried),
		deliveryFailures: in.counters("webhook_failures_total", "Attempts to deliver that failed, by what went wrong.", []string{"class"}, classes...),
		sendTime:         in.histogram("webhook_send_seconds", "Time that an attempt to deliver took."),
		deliveryLatency:  in.histogram("webhook_latency_seconds", "Time from an event to its delivery, where the first attempt succeeded."),
		pumps:            in.gauge("webhook_pumps", "Endpoints that this process delivers to at the moment."),
		sends:            in.gauge("webhook_sends_in_flight", "Attempts to deliver that are under way in this process."),
		webhooksDisabled: in.counters("webhook_disabled_total", "Webhooks that the server disabled.", []string{"reason"},
			string(job.DisabledGone), string(job.DisabledFailing)),
		deliveriesRepaired: in.counters("maintenance_deliveries_total",
			"Deliveries whose claim was ended or whose webhook is gone, and clients whose deliveries were hinted again.", []string{"by"},
			repairReclaimed, repairOrphaned, repairHinted),
		outcomesPublished: in.counter("outcomes_published_total", "Outcomes appended to the outcome stream, repetitions included."),
	}
}

// delivered counts a recorded attempt.
func (m *deliveryMetrics) delivered(r job.DeliveryResult) {
	result := resultRetried
	switch r.State {
	case job.DeliveryDelivered:
		result = resultDelivered
	case job.DeliveryFailed:
		result = resultFailed
	case job.DeliveryPending:
	}
	m.deliveries.WithLabelValues(result).Inc()
	if class := r.Sent.Attempt.Error; class != "" {
		m.deliveryFailures.WithLabelValues(string(class)).Inc()
	}
}
