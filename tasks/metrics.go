package tasks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// Results, as label values.
const (
	resultOK       = "ok"
	resultFailed   = "failed"
	resultDropped  = "dropped"  // the buffer was full, or the process is stopping
	resultSkipped  = "skipped"  // Redis is known not to work
	resultConflict = "conflict" // a task of that name is there already
	resultPresent  = "present"
	resultSpent    = "spent"
	resultReceived = "received"
	resultBad      = "malformed"
)

var operations = []string{
	"ping", "enqueue", "dispatch", "probe", "epoch", "publish", "depth", "work", "limit",
	"news", "progress", "listen", "hint", "append", "register",
}

type metrics struct {
	errors     *prometheus.CounterVec
	enqueued   *prometheus.CounterVec
	dispatched *prometheus.CounterVec
	signals    *prometheus.CounterVec
	news       *prometheus.CounterVec
	handled    *prometheus.CounterVec
	hints      *prometheus.CounterVec
	hinted     *prometheus.CounterVec
	leases     *prometheus.CounterVec
	buffered   prometheus.Gauge
	alone      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	in := telemetry.In(registry)
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		return in.Counters(name, help, []string{label}, values...)
	}
	return &metrics{
		errors:     counters("redis_errors_total", "Failed operations on Redis.", "operation", operations...),
		enqueued:   counters("tasks_enqueued_total", "Tasks that were to be enqueued right after a commit.", "result", resultOK, resultConflict, resultFailed, resultDropped, resultSkipped),
		dispatched: counters("tasks_dispatched_total", "Tasks that the relay handed to the queue.", "result", resultOK, resultPresent, resultSpent, resultFailed),
		signals:    counters("cancel_signals_total", "Cancel signals to and from other processes.", "result", resultOK, resultFailed, resultDropped, resultSkipped, resultReceived, resultBad),
		news:       counters("news_total", "News for watchers of jobs, to and from other processes.", "result", resultOK, resultFailed, resultDropped, resultSkipped, resultReceived, resultBad),
		handled:    counters("tasks_handled_total", "Tasks that workers took from the queue.", "result", resultOK, resultFailed, resultBad),
		hints:      counters("delivery_hints_total", "Hints that a client may have something to deliver, for the queue.", "result", resultOK, resultPresent, resultSpent, resultFailed, resultDropped, resultSkipped),
		hinted:     counters("delivery_hints_handled_total", "Hints that couriers took from the queue.", "result", resultOK, resultFailed, resultBad),
		leases:     counters("rate_limit_leases_total", "Exchanges with the shared rate limit.", "result", resultOK, resultFailed),
		buffered:   in.Gauge("tasks_enqueue_buffer", "Tasks that wait in this process to be enqueued."),
		alone:      in.Gauge("rate_limit_alone", "1 while this process applies the rate limit without Redis."),
	}
}
