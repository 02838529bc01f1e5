// Package repo is the Postgres store, the source of truth for every job. A Store combines the packages jobs, deliveries, clients,
// maintenance, operator and testbed. All of them use pg. Package repo also migrates the schema, checks readiness, and reads data for
// `forgerun` commands.
//
// All these packages contain only storage logic. They return no pgx types.
package repo

import (
	"embed"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/repo/clients"
	"github.com/forgerun/forgerun/repo/deliveries"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/maintenance"
	"github.com/forgerun/forgerun/repo/operator"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/repo/testbed"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, nil)

// Config configures a Store.
type Config struct {
	URL             string // postgres:// URL or keyword string; pool_max_conns is honoured
	Timeout         time.Duration
	ApplicationName string        // shown in pg_stat_activity
	RetentionJobs   time.Duration // how long final jobs are kept
	ClientMaxHeld   int           // limit of one client's ASSIGNED and RUNNING jobs; 0 for no limit
	Webhooks        WebhookLimits
	OutcomeStream   bool // see UnpublishedOutcomes
	Logger          *slog.Logger
	Registry        prometheus.Registerer
	TracerProvider  trace.TracerProvider // makes spans of statements; nil for no spans
	Clock           *clock.Clock         // movable clock of a test bed; nil for Postgres' clock
}

// WebhookLimits determine when a failing webhook is disabled.
type WebhookLimits = deliveries.WebhookLimits

// DisableFailures is the default of WebhookLimits.DisableFailures.
const DisableFailures = deliveries.DisableFailures

// Store is the Postgres store of one process, with the methods of its parts. It is safe for concurrent use.
type Store struct {
	*jobStore
	*deliveryStore
	*clientStore
	*maintenanceStore
	*operatorStore
	*testbedStore

	db     *pg.DB
	writes writeCheck
}

type (
	jobStore         = jobs.Store
	deliveryStore    = deliveries.Store
	clientStore      = clients.Store
	maintenanceStore = maintenance.Store
	operatorStore    = operator.Store
	testbedStore     = testbed.Store
)

// Open makes a store. It does not wait for Postgres; calls return errors until the server is available.
func Open(cfg Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres %w", ErrBadURL) // the driver's error would quote the URL and its password
	}
	metrics := telemetry.In(cfg.Registry)
	db, err := pg.Open(pc, pg.Config{
		Timeout: cfg.Timeout, ApplicationName: cfg.ApplicationName, OutcomeStream: cfg.OutcomeStream, Clock: cfg.Clock,
		TracerProvider: cfg.TracerProvider, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("database pool: %w", err)
	}
	c := clients.New(db, cfg.Logger)
	j := jobs.New(db, c, cfg.ClientMaxHeld, metrics)
	return &Store{
		jobStore: j, deliveryStore: deliveries.New(db, j, cfg.Webhooks), clientStore: c,
		maintenanceStore: maintenance.New(db, c, cfg.RetentionJobs), operatorStore: operator.New(db), testbedStore: testbed.New(db),
		db: db,
	}, nil
}

// MaxConnections returns the largest number of connections of the store.
func (s *Store) MaxConnections() int { return int(s.db.Pool.Config().MaxConns) }

// Close flushes the batchers, then closes the pool. Later calls fail.
func (s *Store) Close() { s.db.Close() }
