package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Factory makes and registers metrics. Every series exists with the value 0 from the start. Without this, an alert on increases would miss
// the first increase of a series.
type Factory struct {
	registry prometheus.Registerer // nil: the metrics are not exposed
}

// In returns a factory that registers metrics in a registry. With a nil registry, the metrics work but are not exposed.
func In(registry prometheus.Registerer) Factory { return Factory{registry} }

// Register adds a collector that the caller made.
func (f Factory) Register(c prometheus.Collector) {
	if f.registry != nil {
		f.registry.MustRegister(c)
	}
}

// Counter makes a counter.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return promauto.With(f.registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters makes a counter for each value of the label. If there are several labels, pass no values and call WithLabelValues for each
// series.
func (f Factory) Counters(name, help string, labels []string, values ...string) *prometheus.CounterVec {
	c := promauto.With(f.registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// Gauge makes a gauge.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return promauto.With(f.registry).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges makes a gauge for each value of the label; see Counters.
func (f Factory) Gauges(name, help string, labels []string, values ...string) *prometheus.GaugeVec {
	g := promauto.With(f.registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	for _, v := range values {
		g.WithLabelValues(v)
	}
	return g
}

// GaugeFunc makes a gauge that is read when it is scraped.
func (f Factory) GaugeFunc(name, help string, read func() float64) {
	promauto.With(f.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// CounterFunc makes a counter that is read when it is scraped.
func (f Factory) CounterFunc(name, help string, read func() float64) {
	promauto.With(f.registry).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read)
}

// Histogram makes a histogram with the given classic buckets. Scrapers that support native histograms get a native histogram.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(f.registry).NewHistogram(histogramOpts(name, help, buckets))
}

// Histograms makes a histogram for each value of the label; see Counters.
func (f Factory) Histograms(name, help string, buckets []float64, labels []string, values ...string) *prometheus.HistogramVec {
	h := promauto.With(f.registry).NewHistogramVec(histogramOpts(name, help, buckets), labels)
	for _, v := range values {
		h.WithLabelValues(v)
	}
	return h
}
