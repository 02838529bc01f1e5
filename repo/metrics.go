package repo

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	errors     *prometheus.CounterVec
	flushSize  *prometheus.HistogramVec
	flushDelay *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, pool *pgxpool.Pool) *metrics {
	m := &metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "database_errors_total", Help: "Failed database operations.",
		}, []string{"operation"}),
		flushSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "group_commit_items", Help: "Items that shared one statement.", Buckets: prometheus.ExponentialBuckets(1, 2, 8),
		}, []string{"operation"}),
		flushDelay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "group_commit_seconds", Help: "Time of one shared statement.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"operation"}),
	}
	inUse := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "database_connections_in_use", Help: "Pooled connections that are in use.",
	}, func() float64 { return float64(pool.Stat().AcquiredConns()) })
	if r != nil {
		r.MustRegister(m.errors, m.flushSize, m.flushDelay, inUse)
	}
	return m
}

func (m *metrics) flushed(operation string, items int, took time.Duration) {
	m.flushSize.WithLabelValues(operation).Observe(float64(items))
	m.flushDelay.WithLabelValues(operation).Observe(took.Seconds())
}
