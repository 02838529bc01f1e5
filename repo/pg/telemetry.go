package pg

import (
	"regexp"
	"slices"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// grouped lists the operations of group commits; single lists all others.
var (
	grouped = []string{"insert", "cancel", "retry", "claim", "start", "finish", "pickup", "record"}
	single  = []string{
		"read", "batch", "complete", "delete", "clean", "release", "schedule", "resume throttled", "resume paused", "pause",
		"mark dead", "end stranded leases", "headroom", "heartbeat", "reclaim",
		"redeliver", "publish", "idempotency", "use key", "audit", "lead", "resign", "webhook",
		"insert client", "name client", "change keys",
		"signing key", "history", "bulk", "schedules", "gather", "erase", "testbed", "emit", "session",
	}
)

var flushSizes = prometheus.ExponentialBuckets(1, 2, 8)

type metrics struct {
	errors     *prometheus.CounterVec
	flushSize  *prometheus.HistogramVec
	flushDelay *prometheus.HistogramVec
}

func newMetrics(f telemetry.Factory) *metrics {
	operation := []string{"operation"}
	return &metrics{
		errors:    f.Counters("database_errors_total", "Failed database operations.", operation, slices.Concat(grouped, single)...),
		flushSize: f.Histograms("group_commit_items", "Number of writes that shared one SQL statement.", flushSizes, operation, grouped...),
		flushDelay: f.Histograms("group_commit_seconds", "Duration of an SQL statement that several writes share.",
			telemetry.Quick, operation, grouped...),
	}
}

// showPool registers the metrics of the pool. Of these metrics, only database_up sends a query to Postgres during a scrape.
func showPool(f telemetry.Factory, pool *pgxpool.Pool, answers func() bool) {
	for state, count := range map[string]func(*pgxpool.Stat) int32{
		"in_use": (*pgxpool.Stat).AcquiredConns, "idle": (*pgxpool.Stat).IdleConns,
		"constructing": (*pgxpool.Stat).ConstructingConns, "max": (*pgxpool.Stat).MaxConns,
	} {
		f.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "database_connections", Help: "Pooled connections by state; max is the limit.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(count(pool.Stat())) }))
	}
	f.GaugeFunc("database_connections_in_use", "Pooled connections that are in use.",
		func() float64 { return float64(pool.Stat().AcquiredConns()) })
	f.CounterFunc("database_connection_waits_total", "Number of times that no pooled connection was free immediately.",
		func() float64 { return float64(pool.Stat().EmptyAcquireCount()) })
	f.CounterFunc("database_connection_wait_seconds_total", "Time spent waiting for pooled connections.",
		func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() })
	f.GaugeFunc("database_up", "1 if Postgres answers.", func() float64 {
		if answers() {
			return 1
		}
		return 0
	})
}

// newQueryTracer returns a tracer. The tracer makes a span for each statement, if the statement's caller has a span. The spans contain
// the text of the statement, but not its parameters, because the parameters are the clients' data.
func newQueryTracer(p trace.TracerProvider) pgx.QueryTracer {
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(p), otelpgx.WithSpanNameFunc(Verb),
		otelpgx.WithQuerySpanNamePrefix(), otelpgx.WithDisableAcquireTracer())
}

// change matches the first INSERT, UPDATE or DELETE in a statement. A lower-case table name must follow, so FOR UPDATE OF does not match.
var change = regexp.MustCompile(`\b(INSERT|UPDATE|DELETE)(?: INTO| FROM)? [a-z]`)

// Verb returns the main verb of a statement, such as UPDATE. If the statement begins with WITH, Verb returns its first INSERT, UPDATE or
// DELETE, or else SELECT.
func Verb(statement string) string {
	if strings.HasPrefix(statement, "--") {
		return "PING" // the driver's check of a connection
	}
	if found := change.FindStringSubmatch(statement); found != nil {
		return found[1]
	}
	first, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	if first == "WITH" {
		return "SELECT"
	}
	return strings.ToUpper(first)
}
