package redisconn

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// Results, as label values.
const (
	ResultOK       = "ok"
	ResultFailed   = "failed"
	ResultDropped  = "dropped"  // the buffer was full, or the process is stopping
	ResultSkipped  = "skipped"  // Redis is known to be down
	ResultConflict = "conflict" // a task with the same id already exists
	ResultPresent  = "present"
	ResultStale    = "stale"
	ResultEarly    = "early" // the task came early and is handled again when it is due
	ResultReceived = "received"
	ResultBad      = "malformed"
)

var operations = []string{
	"ping", "enqueue", "ensure", "publish", "depth", "work", "limit",
	"notify", "progress", "listen", "append", "remove", "ready", "mend",
}

// Metrics are the metrics of all users of a Redis. Each series exists from the start, with the value 0.
type Metrics struct {
	Errors             *prometheus.CounterVec
	Enqueued           *prometheus.CounterVec
	Ensured            *prometheus.CounterVec
	Signals            *prometheus.CounterVec
	Notifications      *prometheus.CounterVec
	Handled            *prometheus.CounterVec
	DeliveriesEnqueued *prometheus.CounterVec
	DeliveriesHandled  *prometheus.CounterVec
	Grants             *prometheus.CounterVec
	Buffered           prometheus.Gauge
	RateLimitAlone     prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *Metrics {
	in := telemetry.In(registry)
	results := func(name, help string, values ...string) *prometheus.CounterVec {
		return in.Counters(name, help, []string{"result"}, values...)
	}
	return &Metrics{
		Errors: in.Counters("redis_errors_total", "Failed operations on Redis.", []string{"operation"}, operations...),
		Enqueued: results("tasks_enqueued_total", "Job tasks that were to be enqueued right after a commit, by result.",
			ResultOK, ResultConflict, ResultFailed, ResultDropped, ResultSkipped),
		Ensured: results("tasks_ensured_total", "Jobs and deliveries whose task the relay checked; ok: it created the task or made it run.",
			ResultOK, ResultPresent, ResultFailed),
		Signals: results("cancel_signals_total", "Cancel signals to and from other processes.",
			ResultOK, ResultFailed, ResultDropped, ResultSkipped, ResultReceived, ResultBad),
		Notifications: results("notifications_total", "Notifications for watchers of jobs, to and from other processes.",
			ResultOK, ResultFailed, ResultDropped, ResultSkipped, ResultReceived, ResultBad),
		Handled: results("tasks_handled_total", "Tasks that workers took from the queue.",
			ResultOK, ResultStale, ResultEarly, ResultFailed, ResultBad),
		DeliveriesEnqueued: results("delivery_tasks_enqueued_total", "Delivery tasks that were to be enqueued right after a commit, by result.",
			ResultOK, ResultConflict, ResultFailed, ResultDropped, ResultSkipped),
		DeliveriesHandled: results("delivery_tasks_handled_total", "Tasks that delivery workers took from the queue.",
			ResultOK, ResultStale, ResultEarly, ResultFailed, ResultBad),
		Grants:         results("rate_limit_grants_total", "Requests to the rate limit in Redis, by result.", ResultOK, ResultFailed),
		Buffered:       in.Gauge("tasks_enqueue_buffer", "Tasks that wait in this process to be enqueued."),
		RateLimitAlone: in.Gauge("rate_limit_alone", "1 while this process applies the rate limit without Redis."),
	}
}
