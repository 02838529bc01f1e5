package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Factory makes metrics and registers them, each label value from zero: an
// alert can only see a change of what is there.
type Factory struct {
	registry prometheus.Registerer
	off      bool
}

// In makes metrics in a registry. With nil they count and are shown nowhere;
// with Off they do not even count.
func In(registry prometheus.Registerer) Factory {
	_, off := registry.(offRegistry)
	return Factory{registry, off}
}

func (f Factory) register(c prometheus.Collector) {
	if f.registry != nil && !f.off {
		f.registry.MustRegister(c)
	}
}

// Register adds a collector of the package's own.
func (f Factory) Register(c prometheus.Collector) { f.register(c) }

// Counter makes a counter.
func (f Factory) Counter(name, help string) prometheus.Counter {
	if f.off {
		return offCounter{}
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.register(c)
	return c
}

// Counters makes a counter for each value of the label; of several labels the
// values are given by the caller, with WithLabelValues.
func (f Factory) Counters(name, help string, labels []string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	if f.off {
		c = &prometheus.CounterVec{MetricVec: offVec(name, help, labels, offCounter{})}
	}
	f.register(c)
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// Gauge makes a gauge.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	if f.off {
		return offGauge{}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.register(g)
	return g
}

// Gauges makes a gauge for each value of the label; see Counters.
func (f Factory) Gauges(name, help string, labels []string, values ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	if f.off {
		g = &prometheus.GaugeVec{MetricVec: offVec(name, help, labels, offGauge{})}
	}
	f.register(g)
	for _, v := range values {
		g.WithLabelValues(v)
	}
	return g
}

// GaugeFunc makes a gauge that is read when it is scraped.
func (f Factory) GaugeFunc(name, help string, read func() float64) {
	f.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// CounterFunc makes a counter that is read when it is scraped.
func (f Factory) CounterFunc(name, help string, read func() float64) {
	f.register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Histogram makes a histogram with these classic buckets, and native ones for
// scrapers that take them.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	if f.off {
		return offHistogram{}
	}
	h := prometheus.NewHistogram(histogramOpts(name, help, buckets))
	f.register(h)
	return h
}

// Histograms makes a histogram for each value of the label; see Counters.
func (f Factory) Histograms(name, help string, buckets []float64, labels []string, values ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(histogramOpts(name, help, buckets), labels)
	if f.off {
		h = &prometheus.HistogramVec{MetricVec: offVec(name, help, labels, offHistogram{})}
	}
	f.register(h)
	for _, v := range values {
		h.WithLabelValues(v)
	}
	return h
}

// Resolution and size of native histograms: buckets that grow by a tenth, at
// most so many, made anew no more often than hourly when they are too many.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
	nativeReset   = time.Hour
)

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: nativeFactor,
		NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: nativeReset,
	}
}

// Buckets for what takes milliseconds, and for what may take minutes. In
// seconds.
var (
	Quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	Long  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
)

// Observe observes a duration; if ctx is traced, with the trace's id as an
// exemplar.
func Observe(ctx context.Context, o prometheus.Observer, d time.Duration) {
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": s.TraceID().String()})
			return
		}
	}
	o.Observe(d.Seconds())
}
