package repo

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// grouped are the operations of group commits, single all others: the values
// of the label operation.
var (
	grouped = []string{"insert", "cancel", "retry", "claim", "start", "finish", "pickup", "record"}
	single  = []string{
		"read", "batch", "complete", "delete", "clean", "release", "schedule", "resume throttled", "resume paused", "pause",
		"mark dead", "end stranded leases", "heartbeat", "reclaim",
		"redeliver", "publish", "idempotency", "use key", "audit", "lead", "resign", "epoch", "raise epoch", "webhook",
		"insert client", "change keys",
		"signing key", "history", "bulk", "schedules", "gather", "erase", "testbed", "emit", "session",
	}
)

// flushSizes are buckets up to maxFlushItems.
var flushSizes = prometheus.ExponentialBuckets(1, 2, 8)

type metrics struct {
	errors     *prometheus.CounterVec
	flushSize  *prometheus.HistogramVec
	flushDelay *prometheus.HistogramVec
	late       prometheus.Counter
}

func newMetrics(f telemetry.Factory) *metrics {
	operation := []string{"operation"}
	return &metrics{
		errors:     f.Counters("database_errors_total", "Failed database operations.", operation, slices.Concat(grouped, single)...),
		flushSize:  f.Histograms("group_commit_items", "Items that shared one statement.", flushSizes, operation, grouped...),
		flushDelay: f.Histograms("group_commit_seconds", "Time of one shared statement.", telemetry.Quick, operation, grouped...),
		late: f.Counter("submissions_out_of_order_total",
			"Jobs that were handed to the queue after younger ones, because their commit took longer than a second."),
	}
}

// showPool makes the metrics that are read off a pool when they are scraped,
// and of whether Postgres answers. Only the latter asks Postgres.
func showPool(f telemetry.Factory, pool *pgxpool.Pool, answers func() bool) {
	for state, count := range map[string]func(*pgxpool.Stat) int32{
		"in_use": (*pgxpool.Stat).AcquiredConns, "idle": (*pgxpool.Stat).IdleConns,
		"constructing": (*pgxpool.Stat).ConstructingConns, "max": (*pgxpool.Stat).MaxConns,
	} {
		f.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "database_connections", Help: "Pooled connections by state; max is how many there may be.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(count(pool.Stat())) }))
	}
	f.GaugeFunc("database_connections_in_use", "Pooled connections that are in use.",
		func() float64 { return float64(pool.Stat().AcquiredConns()) })
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

// newQueryTracer makes spans of statements below the span of their caller, and
// none without one. They have the text of the statement and no parameters: those
// are the clients' data.
func newQueryTracer(p trace.TracerProvider) pgx.QueryTracer {
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(p), otelpgx.WithSpanNameFunc(verb),
		otelpgx.WithQuerySpanNamePrefix(), otelpgx.WithDisableAcquireTracer())
}

// change is the first change that a statement makes. The names of tables have
// small letters, what may follow UPDATE elsewhere has not.
var change = regexp.MustCompile(`\b(INSERT|UPDATE|DELETE)(?: INTO| FROM)? [a-z]`)

// verb names a statement by what it does: most begin with WITH, whatever they do.
func verb(statement string) string {
	if strings.HasPrefix(statement, "--") {
		return "PING" // the driver's way to ask whether a connection is alive
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

// probeTimeout is how long a scrape waits for Postgres.
const probeTimeout = time.Second

// probe asks whether Postgres answers. It has a connection of its own, which it
// keeps: neither a full pool nor a server that takes no more connections is an
// outage.
type probe struct {
	mu     sync.Mutex
	own    ownConn
	closed bool
	last   bool      // the latest answer
	at     time.Time // of it
}

// answers reports whether Postgres answers within probeTimeout. Those who ask
// at the same moment share the answer.
func (p *probe) answers() bool {
	asked := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && !p.at.After(asked) {
		p.last, p.at = p.ask(), time.Now()
	}
	return p.last
}

// ask tries the connection that there is, and then a new one.
func (p *probe) ask() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for range 2 {
		conn, err := p.own.open(ctx)
		if err != nil {
			return false
		}
		if conn.Ping(ctx) == nil {
			return true
		}
		p.own.drop()
	}
	return false
}

// close ends the connection. The answer afterwards is that Postgres does
// not answer.
func (p *probe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.last = true, false
	p.own.drop()
}

// ownConn is a connection outside of the pool. Its owner guards it with a mutex.
type ownConn struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn // nil until needed, and after drop
}

// open gives the connection, and connects if there is none.
func (c *ownConn) open(ctx context.Context) (conn *pgx.Conn, err error) {
	if c.conn == nil || c.conn.IsClosed() {
		c.conn, err = pgx.ConnectConfig(ctx, c.config)
	}
	return c.conn, err
}

func (c *ownConn) drop() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.conn.Close(ctx)
		c.conn = nil
	}
}
