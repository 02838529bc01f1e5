// Package pg holds the shared parts of the store: the pool and its sessions, group commit, transactions, statements, errors and metrics.
// It reads one table, api_keys, to check the API key before each change.
package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/telemetry"
)

// Config configures a DB. Its fields are described in repo.Config.
type Config struct {
	Timeout         time.Duration
	ApplicationName string
	OutcomeStream   bool
	Clock           *clock.Clock
	TracerProvider  trace.TracerProvider
	Metrics         telemetry.Factory
}

// DB is a process' access to Postgres. It is safe for concurrent use.
type DB struct {
	Pool    *pgxpool.Pool
	Timeout time.Duration // limit for one statement
	Clock   *clock.Clock  // nil except in a test bed

	metrics  *metrics
	probe    probe
	batchers []flusher
}

// Open makes a DB from the configuration of its pool. It does not wait for Postgres.
func Open(pc *pgxpool.Config, cfg Config) (*DB, error) {
	setSession(&pc.ConnConfig.Config, cfg)
	if pc.MaxConns < MinConns {
		pc.MaxConns = MinConns
	}
	pc.AfterConnect = ScanUTC
	if cfg.TracerProvider != nil {
		pc.ConnConfig.Tracer = newQueryTracer(cfg.TracerProvider)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		return nil, err
	}
	d := &DB{Pool: pool, Timeout: cfg.Timeout, Clock: cfg.Clock, metrics: newMetrics(cfg.Metrics)}
	d.probe.own.config = pc.ConnConfig
	showPool(cfg.Metrics, pool, d.probe.answers)
	return d, nil
}

// Start starts batchers; Close stops them.
func (d *DB) Start(batchers ...flusher) {
	for _, b := range batchers {
		b.start()
	}
	d.batchers = append(d.batchers, batchers...)
}

// Close flushes the batchers, then closes the pool. Later calls fail.
func (d *DB) Close() {
	for _, b := range d.batchers {
		b.stop()
	}
	d.probe.close()
	d.Pool.Close()
}

// Queued returns the number of items that wait for a flusher of the named batcher.
func (d *DB) Queued(batcher string) (n int) {
	for _, b := range d.batchers {
		if name, queued := b.waiting(); name == batcher {
			n = queued
		}
	}
	return n
}

// Every calls `do` immediately, and then at each interval until ctx ends.
func Every(ctx context.Context, interval time.Duration, do func()) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		do()
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// MinConns is the smallest allowed size of the pool: enough for all flushers, and some reads.
const MinConns = 20

// Bound limits a call to slightly more than the statement timeout. So Postgres cancels a slow statement before the context ends, and the
// connection survives.
func (d *DB) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.Timeout+d.Timeout/5)
}

// Failed translates a driver error and counts it. If the server is read-only after a failover, Failed also closes all pooled connections.
// Errors of the API are returned unchanged and are not counted.
func (d *DB) Failed(operation string, err error) error {
	if IsKnown(err) {
		return err
	}
	d.metrics.errors.WithLabelValues(operation).Inc()
	if HasState(err, stateReadOnly) {
		d.Pool.Reset() // after a failover, old connections still lead to the former primary
	}
	return Translate(err)
}
