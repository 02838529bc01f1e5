// Package telemetry takes the place of internal/telemetry/metrics.go in the build
// of the service against which the experiment "observability" measures what
// counting costs (go build -overlay). Its metrics do nothing and are exposed nowhere.
package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Factory makes metrics that do nothing.
type Factory struct{}

// In ignores the registry.
func In(prometheus.Registerer) Factory { return Factory{} }

// Register ignores the collector.
func (Factory) Register(prometheus.Collector) {}

// Counter makes a counter.
func (Factory) Counter(string, string) prometheus.Counter { return idleCounter{} }

// Counters makes a counter for each value of the labels.
func (Factory) Counters(name, help string, labels []string, _ ...string) *prometheus.CounterVec {
	return &prometheus.CounterVec{MetricVec: idleVec(name, help, labels, idleCounter{})}
}

// Gauge makes a gauge.
func (Factory) Gauge(string, string) prometheus.Gauge { return idleGauge{} }

// Gauges makes a gauge for each value of the labels.
func (Factory) Gauges(name, help string, labels []string, _ ...string) *prometheus.GaugeVec {
	return &prometheus.GaugeVec{MetricVec: idleVec(name, help, labels, idleGauge{})}
}

// GaugeFunc ignores the function.
func (Factory) GaugeFunc(string, string, func() float64) {}

// CounterFunc ignores the function.
func (Factory) CounterFunc(string, string, func() float64) {}

// Histogram makes a histogram.
func (Factory) Histogram(string, string, []float64) prometheus.Histogram { return idleHistogram{} }

// Histograms makes a histogram for each value of the labels.
func (Factory) Histograms(name, help string, _ []float64, labels []string, _ ...string) *prometheus.HistogramVec {
	return &prometheus.HistogramVec{MetricVec: idleVec(name, help, labels, idleHistogram{})}
}

// The metrics themselves. Nothing reads their values.
type (
	idleCounter   struct{ prometheus.Counter }
	idleGauge     struct{ prometheus.Gauge }
	idleHistogram struct{ prometheus.Histogram }
)

func (idleCounter) Inc()        {}
func (idleCounter) Add(float64) {}

func (idleGauge) Inc()              {}
func (idleGauge) Dec()              {}
func (idleGauge) Add(float64)       {}
func (idleGauge) Sub(float64)       {}
func (idleGauge) Set(float64)       {}
func (idleGauge) SetToCurrentTime() {}

func (idleHistogram) Observe(float64)                                {}
func (idleHistogram) ObserveWithExemplar(float64, prometheus.Labels) {}

func idleVec(name, help string, labels []string, m prometheus.Metric) *prometheus.MetricVec {
	return prometheus.NewMetricVec(prometheus.NewDesc(name, help, labels, nil), func(...string) prometheus.Metric { return m })
}
