package handlers

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	inFlight     prometheus.Gauge
	authFailures *prometheus.CounterVec
	refused      *prometheus.CounterVec
	usual        map[string]usualAnswer // by a route's action
}

// usualAnswer is the good answer of a route, whose metrics need not be looked up
// each time.
type usualAnswer struct {
	method   string
	status   int
	requests prometheus.Counter
	duration prometheus.Observer
}

// newMetrics makes the metrics of the HTTP side, with the usual answer of each
// route from zero. Labels come from the route table, never from the client's
// text.
func newMetrics(f telemetry.Factory, routes []route) *metrics {
	m := &metrics{
		requests: f.Counters("http_requests_total",
			"HTTP requests answered, by route pattern, method and status.", []string{"route", "method", "code"}),
		duration: f.Histograms("http_request_duration_seconds",
			"Time from a request read to its answer made, without waits that the client asked for, by route pattern and status class.",
			telemetry.Quick, []string{"route", "code"}),
		inFlight: f.Gauge("http_requests_in_flight",
			"HTTP requests being answered now. A client that waits for its job is among them; an event stream is not, see streams_open."),
		authFailures: f.Counters("auth_failures_total",
			"Requests and streams refused for who asks, by error code.", []string{"error_code"}),
		refused: f.Counters("submissions_refused_total",
			"Submissions and retries refused for a while: too many wait for storage (overload), "+
				"the service holds as many jobs as it may (queue_full), the client sends too many (rate_limit).",
			[]string{"reason"}, "overload", "queue_full", "rate_limit"),
		usual: map[string]usualAnswer{},
	}
	for _, rt := range append(routes, *nowhere, *preflight) {
		m.usual[rt.action] = usualAnswer{
			rt.method, rt.success,
			m.requests.WithLabelValues(rt.path, rt.method, strconv.Itoa(rt.success)), m.duration.WithLabelValues(rt.path, class(rt.success)),
		}
	}
	for _, code := range authCodes {
		m.authFailures.WithLabelValues(string(code))
	}
	return m
}

func (m *metrics) observe(r *call, took time.Duration) {
	status := r.Response().StatusCode()
	if usual := m.usual[r.route.action]; usual.status == status && usual.method == r.Method() {
		usual.requests.Inc()
		telemetry.Observe(r.ctx, usual.duration, took)
		return
	}
	m.requests.WithLabelValues(r.route.path, r.Method(), strconv.Itoa(status)).Inc()
	telemetry.Observe(r.ctx, m.duration.WithLabelValues(r.route.path, class(status)), took)
}

// countRefused counts a submission that may come again later.
func (m *metrics) countRefused(r *call, code job.Code) {
	switch {
	case r.refused:
		m.refused.WithLabelValues("overload").Inc()
	case code == job.CodeQueueFull:
		m.refused.WithLabelValues("queue_full").Inc()
	case code == job.CodeRateLimited && r.route.submits():
		m.refused.WithLabelValues("rate_limit").Inc()
	}
}

// class gives the class of a status, such as 2xx.
func class(status int) string { return classes[min(status/100, len(classes)-1)] }

var classes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}
