package tasks

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
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
	m := &metrics{
		errors:     newCounter("redis_errors_total", "Failed operations on Redis.", "operation", operations...),
		enqueued:   newCounter("tasks_enqueued_total", "Tasks that were to be enqueued right after a commit.", "result", resultOK, resultConflict, resultFailed, resultDropped, resultSkipped),
		dispatched: newCounter("tasks_dispatched_total", "Tasks that the relay handed to the queue.", "result", resultOK, resultPresent, resultSpent, resultFailed),
		signals:    newCounter("cancel_signals_total", "Cancel signals to and from other processes.", "result", resultOK, resultFailed, resultDropped, resultSkipped, resultReceived, resultBad),
		news:       newCounter("news_total", "News for watchers of jobs, to and from other processes.", "result", resultOK, resultFailed, resultDropped, resultSkipped, resultReceived, resultBad),
		handled:    newCounter("tasks_handled_total", "Tasks that workers took from the queue.", "result", resultOK, resultFailed, resultBad),
		hints:      newCounter("delivery_hints_total", "Hints that a client may have something to deliver, for the queue.", "result", resultOK, resultPresent, resultSpent, resultFailed, resultDropped, resultSkipped),
		hinted:     newCounter("delivery_hints_handled_total", "Hints that couriers took from the queue.", "result", resultOK, resultFailed, resultBad),
		leases:     newCounter("rate_limit_leases_total", "Exchanges with the shared rate limit.", "result", resultOK, resultFailed),
		buffered: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tasks_enqueue_buffer", Help: "Tasks that wait in this process to be enqueued.",
		}),
		alone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rate_limit_alone", Help: "1 while this process applies the rate limit without Redis.",
		}),
	}
	if registry != nil {
		registry.MustRegister(m.errors, m.enqueued, m.dispatched, m.signals, m.news, m.handled, m.hints, m.hinted, m.leases, m.buffered, m.alone)
	}
	return m
}

// newCounter starts every label value at zero, so that it is seen before it is
// needed.
func newCounter(name, help, label string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// depthCollector asks Redis when it is scraped. Without Redis it has nothing to
// say; redis_errors_total{operation="depth"} tells of it.
type depthCollector struct{ redis *Redis }

var depthDesc = prometheus.NewDesc("asynq_queue_tasks", "Tasks in Redis.", []string{"queue", "state"}, nil)

func (c depthCollector) Describe(out chan<- *prometheus.Desc) { out <- depthDesc }

func (c depthCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.redis.timeout)
	defer cancel()
	for _, queue := range Queues {
		states, err := c.redis.depth(ctx, queue)
		if err != nil {
			return
		}
		for state, n := range states {
			out <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(n), queue, state)
		}
	}
}
