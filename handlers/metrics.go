package handlers

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/telemetry"
)

type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	inFlight     prometheus.Gauge
	authFailures *prometheus.CounterVec
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
	}
	for _, rt := range append(routes, *nowhere) {
		m.requests.WithLabelValues(rt.path, rt.method, strconv.Itoa(rt.success))
		m.duration.WithLabelValues(rt.path, class(rt.success))
	}
	for _, code := range authCodes {
		m.authFailures.WithLabelValues(string(code))
	}
	return m
}

func (m *metrics) observe(r *call, took time.Duration) {
	status := r.Response().StatusCode()
	m.requests.WithLabelValues(r.route.path, r.Method(), strconv.Itoa(status)).Inc()
	telemetry.Observe(r.ctx, m.duration.WithLabelValues(r.route.path, class(status)), took)
}

// class gives the class of a status, such as 2xx.
func class(status int) string { return classes[min(status/100, len(classes)-1)] }

var classes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}
