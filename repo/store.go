// Package repo is the Postgres store: the truth about every job. Each change
// of a job's state is one guarded statement that writes the state, the events,
// the report and the result together, so nothing is ever half-written. Hot
// statements are shared by the callers that wait at the same moment (group
// commit, see batcher).
//
// A file is named after what it stores: jobs_*, batches, deliveries*, events,
// webhooks, clients, workers, maintenance. Its statements, each with its contract,
// are in the file of the same name in sql/; see statement.
//
// No pgx type leaves the package, and no decision that is not about storage
// is taken in it.
package repo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Config of a Store.
type Config struct {
	URL             string        // postgres:// URL or keyword string; pool_max_conns is honoured
	Timeout         time.Duration // of one statement
	ApplicationName string        // shown in pg_stat_activity
	RetentionJobs   time.Duration // how long final jobs are kept
	ClientMaxHeld   int           // how many jobs of one client workers hold at once; 0: any number
	Webhooks        WebhookLimits
	OutcomeStream   bool // each outcome is kept until it was published, see UnpublishedOutcomes
	Logger          *slog.Logger
	Registry        prometheus.Registerer
	TracerProvider  trace.TracerProvider // of spans of statements; nil: there are none
	Clock           *clock.Clock         // of a test bed, which may be moved; nil: Postgres' own counts, and is not moved
}

// Store is the Postgres store of one process. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	cfg     Config
	metrics *metrics
	probe   probe

	order   *order // of flushes of new jobs
	inserts *batcher[insertion, job.Receipt]
	cancels *batcher[cancelRequest, job.Canceling]
	retries *batcher[retryRequest, job.Change]
	steps   *batcher[step, stepped]
	pickups *batcher[pickup, job.DeliveryClaim]
	records *batcher[job.DeliveryResult, job.Recorded]

	batchers []flusher // all of these

	batchSlots semaphore             // of transactions that insert batches
	newHooks   keyedMutex[job.ID]    // of clients for whom a webhook is being inserted
	counting   keyedMutex[job.ID]    // of clients whose requests are counted for the rules of a test bed
	onceSlots  semaphore             // of transactions of Once
	onceKeys   keyedMutex[onceKey]   // of requests that are being done, and of batches that are being inserted
	orphans    walk[job.EndpointKey] // of FailOrphans
	unused     walk[job.ID]          // through clients, for those that were never used
	writes     writeCheck            // of readiness
}

// Open makes a store. It does not wait for Postgres: an unreachable server
// shows as errors of the calls, until it is there.
func Open(cfg Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres %w", ErrBadURL) // the driver quotes the address
	}
	setSession(&pc.ConnConfig.Config, cfg)
	if pc.MaxConns < minConns {
		pc.MaxConns = minConns
	}
	pc.AfterConnect = scanUTC
	if cfg.TracerProvider != nil {
		pc.ConnConfig.Tracer = newQueryTracer(cfg.TracerProvider)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		return nil, fmt.Errorf("database pool: %w", err)
	}
	cfg.Webhooks = cfg.Webhooks.orDefault()
	shown := telemetry.In(cfg.Registry)
	s := &Store{
		pool: pool, cfg: cfg, metrics: newMetrics(shown),
		batchSlots: make(semaphore, maxBatchInserts), onceSlots: make(semaphore, maxOnce),
	}
	s.probe.own.config = pc.ConnConfig
	showPool(shown, pool, s.probe.answers)
	s.order = newOrder(s.metrics.late)
	s.order.service = s.serviceTime
	s.inserts = newBatcher("insert", s, s.insertJobs, submissionKey, submissionBytes)
	s.inserts.prepare, s.inserts.begin = s.learnClock, s.beginInserts
	s.cancels = newBatcher("cancel", s, s.cancelJobs, func(r cancelRequest) string { return keyOf(r.id) }, nil)
	s.retries = newBatcher("retry", s, s.retryJobs, func(r retryRequest) string { return keyOf(r.id) }, nil)
	s.steps = newBatcher(exchanges, s, s.exchange, func(st step) string { return keyOf(st.job) }, stepBytes)
	s.steps.operation = func(st step) operation { return st.operation }
	s.pickups = newBatcher("pickup", s, s.pickUp, func(p pickup) string { return keyOf(p.client) + keyOf(p.endpoint) }, nil)
	s.records = newBatcher("record", s, s.recordDeliveries, func(r job.DeliveryResult) string { return keyOf(r.DeliveryID) }, resultBytes)
	s.batchers = []flusher{s.inserts, s.cancels, s.retries, s.steps, s.pickups, s.records}
	for _, b := range s.batchers {
		b.start()
	}
	return s, nil
}

// walk is where a search goes on that is made a part at a time.
type walk[P any] struct {
	mu sync.Mutex
	at P
}

// MaxConnections is how many connections the store has at most.
func (s *Store) MaxConnections() int { return int(s.pool.Config().MaxConns) }

// minConns leaves room for every batcher's flushers and for reads.
const minConns = 20

// flusher is any batcher.
type flusher interface {
	start()
	stop()
}

// Close flushes what waits in the batchers, then closes the pool. Calls made
// afterwards fail.
func (s *Store) Close() {
	for _, b := range s.batchers {
		b.stop()
	}
	s.probe.close()
	s.pool.Close()
}

// Ping reports whether Postgres answers and its schema is at least the one this
// program was built with: a later one still suits it, while programs of the next
// version take over.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var version int64
	var former bool
	err := s.pool.QueryRow(ctx, readSchemaVersion).Scan(&version, &former)
	if err != nil {
		return translate(err)
	}
	if former {
		return job.Errorf(job.CodeConfigInvalid, "The "+formerSchema+".")
	}
	if want := schemaVersion(); version < want {
		return job.Errorf(job.CodeConfigInvalid, "The database schema has version %d, this program needs %d.", version, want)
	}
	return s.RefuseMovedClock(ctx)
}

// bound limits a call to the statement timeout and a little more, so that the
// server's own limit fires first and the connection survives.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Timeout+s.cfg.Timeout/5)
}

// failed translates a driver error, counts it, and drops pooled connections
// where every other one must be expected to be broken too. An error that is
// not storage's own passes.
func (s *Store) failed(operation string, err error) error {
	if isKnown(err) {
		return err
	}
	s.metrics.errors.WithLabelValues(operation).Inc()
	if hasState(err, stateReadOnly) {
		s.pool.Reset() // after a failover old connections still lead to the former primary
	}
	return translate(err)
}

// maxBatchInserts is how many batches are inserted at once. One takes long, and
// holds its connection all the time.
const maxBatchInserts = 3

// semaphore has room for a number of callers at once.
type semaphore chan struct{}

// acquire waits for room. An error means that ctx ended before.
func (s semaphore) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, translate(ctx.Err())
	}
}

// keyedMutex lets one caller at a time hold a key. The zero value is ready.
type keyedMutex[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*keyLock
}

type keyLock struct {
	held  semaphore
	users int // callers that hold it, or wait for it
}

// lock waits until no other caller holds the key; waited: one did.
func (m *keyedMutex[K]) lock(ctx context.Context, key K) (waited bool, unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks = map[K]*keyLock{}
	}
	l, waited := m.locks[key]
	if !waited {
		l = &keyLock{held: make(semaphore, 1)}
		m.locks[key] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, key)
		}
	}
	release, err := l.held.acquire(ctx)
	if err != nil {
		leave()
		return waited, nil, err
	}
	return waited, func() { release(); leave() }, nil
}

const stateDiskFull = "53100"

// writeCheck remembers for a moment whether Postgres took a write.
type writeCheck struct {
	mu     sync.Mutex
	at     time.Time
	err    error
	suited atomic.Bool // the schema and the clock suited this program when they were read last
}

// writeCheckKept is for how long: so often a process writes for its readiness, however often it is asked.
const writeCheckKept = time.Second

// readyPing is how long Ready reads the schema, within the time that it has: the rest is for the write.
const readyPing = 400 * time.Millisecond

// Ready is Ping, and reports whether Postgres takes what this program writes: there is
// room on its disk, and a commit comes to its end. A lock on a table that Ping reads and
// submissions do not is no reason to be unready.
func (s *Store) Ready(ctx context.Context) error {
	c := &s.writes
	brief, cancel := context.WithTimeout(ctx, readyPing)
	err := s.Ping(brief)
	cancel()
	if err == nil {
		c.suited.Store(true)
	} else if !c.suited.Load() || job.CodeOf(err) == job.CodeConfigInvalid {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < writeCheckKept {
		return c.err
	}
	err = translate(s.tryWrite(ctx))
	if hasState(err, stateDiskFull) {
		err = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database has no room left on its disk.", Cause: err}
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // whoever asked is still there
		c.at, c.err = time.Now(), err
	}
	return err
}

// readyWrites are what tryWrite does in one transaction. Nothing of it stays.
var readyWrites = []string{
	`SET LOCAL work_mem = '64kB'`,
	// What is beyond work_mem goes to a file on the disk of the database: a megabyte, as much as a table may
	// grow at once. A row would only be written to the free room in its table.
	`WITH spilled AS MATERIALIZED (SELECT repeat('x', 8000) AS x FROM generate_series(1, 130)) SELECT count(x) FROM spilled`,
	`SELECT FROM jobs WHERE false FOR NO KEY UPDATE`, // refused where nothing may be written
	// A record in the WAL and nothing else: the commit is flushed and, where that is set up, replicated.
	`SELECT pg_logical_emit_message(true, 'forgerun', 'ready')`,
}

func (s *Store) tryWrite(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range readyWrites {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}
