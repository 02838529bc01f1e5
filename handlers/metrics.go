package handlers

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics makes the metrics of the HTTP side. Labels come from the route
// table, never from the client's text.
func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total",
			Help: "HTTP requests answered, by route pattern, method and status.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "http_request_duration_seconds",
			Help:    "Time from a request read to its answer made, without waits that the client asked for, by route pattern and status class.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "code"}),
	}
	if registry != nil {
		registry.MustRegister(m.requests, m.duration)
	}
	return m
}

func (m *metrics) observe(r *call, took time.Duration) {
	status := r.Response().StatusCode()
	m.requests.WithLabelValues(r.route.path, r.Method(), strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(r.route.path, classes[min(status/100, len(classes)-1)]).Observe(took.Seconds())
}

var classes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}
