package repo

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// grouped are the operations of group commits, single all others: the values
// of the label operation.
var (
	grouped = []string{"insert", "cancel", "retry", "claim", "finish", "pickup", "record"}
	single  = []string{
		"read", "batch", "settle", "delete", "clean", "release", "schedule", "bury", "heartbeat", "reclaim", "redeliver", "publish",
		"lead", "resign", "epoch", "raise epoch", "webhook", "insert client", "change keys", "signing key",
	}
)

// flushSizes are buckets up to maxFlushItems.
var flushSizes = prometheus.ExponentialBuckets(1, 2, 8)

type metrics struct {
	errors     *prometheus.CounterVec
	flushSize  *prometheus.HistogramVec
	flushDelay *prometheus.HistogramVec
}

func newMetrics(f telemetry.Factory) *metrics {
	operation := []string{"operation"}
	return &metrics{
		errors:     f.Counters("database_errors_total", "Failed database operations.", operation, slices.Concat(grouped, single)...),
		flushSize:  f.Histograms("group_commit_items", "Items that shared one statement.", flushSizes, operation, grouped...),
		flushDelay: f.Histograms("group_commit_seconds", "Time of one shared statement.", telemetry.Quick, operation, grouped...),
	}
}

// flushed counts a group commit.
func (m *metrics) flushed(ctx context.Context, operation string, items int, took time.Duration) {
	m.flushSize.WithLabelValues(operation).Observe(float64(items))
	telemetry.Observe(ctx, m.flushDelay.WithLabelValues(operation), took)
}

// showPool makes the metrics that are read off a pool when they are scraped,
// and of whether Postgres answers. Only the latter asks Postgres.
func showPool(f telemetry.Factory, pool *pgxpool.Pool, answers func() bool) {
	f.Register(newPoolCollector(pool))
	f.GaugeFunc("database_connections_in_use", "Pooled connections that are in use.", func() float64 { return float64(pool.Stat().AcquiredConns()) })
	f.CounterFunc("database_connection_waits_total", "Times that no pooled connection was free at once.",
		func() float64 { return float64(pool.Stat().EmptyAcquireCount()) })
	f.CounterFunc("database_connection_wait_seconds_total", "Time that was waited for pooled connections.",
		func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() })
	f.GaugeFunc("database_up", "1 if Postgres answers.", func() float64 {
		if answers() {
			return 1
		}
		return 0
	})
}

// poolCollector shows the connections of a pool by state.
type poolCollector struct {
	pool        *pgxpool.Pool
	connections *prometheus.Desc
}

func newPoolCollector(pool *pgxpool.Pool) *poolCollector {
	return &poolCollector{pool, prometheus.NewDesc("database_connections", "Pooled connections by state; max is how many there may be.", []string{"state"}, nil)}
}

// Describe tells what there is to collect.
func (c *poolCollector) Describe(out chan<- *prometheus.Desc) { out <- c.connections }

// Collect reads the pool.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	stat := c.pool.Stat()
	for state, n := range map[string]int32{
		"in_use": stat.AcquiredConns(), "idle": stat.IdleConns(), "constructing": stat.ConstructingConns(), "max": stat.MaxConns(),
	} {
		out <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(n), state)
	}
}
