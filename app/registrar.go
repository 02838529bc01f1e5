package app

import "github.com/prometheus/client_golang/prometheus"

// registrar makes metrics and registers them, each label value from zero.
type registrar struct{ prometheus.Registerer }

func (r registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func (r registrar) counters(name, help string, labels []string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func (r registrar) gauges(name, help string, labels []string, values ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.MustRegister(g)
	for _, v := range values {
		g.WithLabelValues(v)
	}
	return g
}

// secondsBuckets are from a millisecond to two and a half minutes.
func secondsBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2.5, 14) }

func (r registrar) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: secondsBuckets()})
	r.MustRegister(h)
	return h
}

func (r registrar) histograms(name, help string, labels []string, values ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: secondsBuckets()}, labels)
	r.MustRegister(h)
	for _, v := range values {
		h.WithLabelValues(v)
	}
	return h
}
