// Package telemetry has metrics that do nothing. Its file replaces that of
// internal/telemetry (go build -overlay) where the experiment "observability" measures
// what counting costs.
package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Factory makes metrics that do nothing.
type Factory struct{}

// In ignores the registry.
func In(prometheus.Registerer) Factory { return Factory{} }

// Register ignores the collector.
func (Factory) Register(prometheus.Collector) {}

// Counter makes a counter.
func (Factory) Counter(string, string) prometheus.Counter { return idle{} }

// Counters makes a counter for each value of the labels.
func (Factory) Counters(name, help string, labels []string, _ ...string) *prometheus.CounterVec {
	return &prometheus.CounterVec{MetricVec: idleVec(name, help, labels)}
}

// Gauge makes a gauge.
func (Factory) Gauge(string, string) prometheus.Gauge { return idle{} }

// Gauges makes a gauge for each value of the labels.
func (Factory) Gauges(name, help string, labels []string, _ ...string) *prometheus.GaugeVec {
	return &prometheus.GaugeVec{MetricVec: idleVec(name, help, labels)}
}

// GaugeFunc ignores the function.
func (Factory) GaugeFunc(string, string, func() float64) {}

// CounterFunc ignores the function.
func (Factory) CounterFunc(string, string, func() float64) {}

// Histogram makes a histogram.
func (Factory) Histogram(string, string, []float64) prometheus.Histogram { return idle{} }

// Histograms makes a histogram for each value of the labels.
func (Factory) Histograms(name, help string, _ []float64, labels []string, _ ...string) *prometheus.HistogramVec {
	return &prometheus.HistogramVec{MetricVec: idleVec(name, help, labels)}
}

// idle is a counter, a gauge and a histogram. Nothing reads its value.
type idle struct{ prometheus.Gauge }

func (idle) Inc()                                           {}
func (idle) Dec()                                           {}
func (idle) Add(float64)                                    {}
func (idle) Sub(float64)                                    {}
func (idle) Set(float64)                                    {}
func (idle) SetToCurrentTime()                              {}
func (idle) Observe(float64)                                {}
func (idle) ObserveWithExemplar(float64, prometheus.Labels) {}

func idleVec(name, help string, labels []string) *prometheus.MetricVec {
	return prometheus.NewMetricVec(prometheus.NewDesc(name, help, labels, nil), func(...string) prometheus.Metric { return idle{} })
}
