// Package backend runs the service behind the HTTP API in tests. It wires all use cases as in cmd/forgerun, with a new database. It has
// no workers and no Redis.
package backend

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/pauses"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// Service has the use cases and their dependencies.
type Service struct {
	T         testing.TB
	Store     *repo.Store
	Queue     *Queue
	Hub       *events.Hub
	Completer *batches.Completer
	Jobs      *jobs.Service
	Clients   *clients.Service
	Bulk      *bulk.Service
	Schedules *schedules.Service
	Webhooks  *delivery.Webhooks
	Erasures  *erasures.Service
	Pauses    *pauses.Service
	Testbed   *testbed.Bed
	Operators *testbed.Operators
	Once      *app.Idempotency
	Metrics   *app.Metrics
	Log       *testkit.Output
	Logger    *slog.Logger

	Receivers int // number of enabled webhooks that each client is assumed to have
	// Targets returns the reason why callbacks must not go to `url`, or "". If Targets is nil, only local hosts are forbidden.
	Targets func(url string) string
	// Ask asks the receiver at `url` whether it accepts events. Ask returns the reason for a refusal, or "". If Ask is nil, no receiver is
	// asked.
	Ask func(ctx context.Context, url string) (wrong string)

	url string
}

// Tokens of two operators.
const (
	AdminToken = "the-token-of-ann-who-may-change"
	ReadToken  = "the-token-of-one-who-reads"
)

// Tokens returns the operators' tokens.
func Tokens(t testing.TB) operators.Tokens {
	tokens, err := operators.Parse("ann:"+AdminToken, ReadToken)
	require.NoError(t, err)
	return tokens
}

// New makes a service with an empty database.
func New(t testing.TB, change ...func(*Service)) *Service {
	t.Helper()
	s := &Service{T: t, Log: &testkit.Output{}, url: repotest.URL(t)}
	s.Logger = slog.New(slog.NewJSONHandler(s.Log, nil))
	s.Metrics = app.NewMetrics(prometheus.NewRegistry())
	for _, f := range change {
		f(s)
	}
	if s.Targets == nil {
		s.Targets = apptest.NoLocals
	}
	s.Store = repotest.OpenURL(t, s.url, func(c *repo.Config) { c.Clock, c.Logger = clock.New(), slog.New(slog.DiscardHandler) })
	s.Queue = &Queue{Queue: apptest.NewQueue()}
	s.Hub = events.NewHub(s.Store, listener{}, s.Metrics, s.Logger)
	s.Queue.hub = s.Hub
	s.Completer = batches.NewCompleter(s.Store, s.Queue, s.Metrics, s.Logger)
	s.Jobs = jobs.New(jobs.Config{Catalogue: Catalogue, MaxAttempts: 4, Backoff: apptest.Backoff, Clock: s.Store.Now}, jobs.Deps{
		Store: s.Store, Queue: s.Queue, Targets: s.Targets, Receivers: func(job.ID) int { return s.Receivers }, Progress: s.Queue.Progress,
		Completer: s.Completer, Metrics: s.Metrics, Log: s.Logger, Hub: s.Hub,
		Admission: &jobs.Admission{
			Pauses: func() job.Pauses { return nil }, Storage: unlimited, Capacity: jobs.NewCapacity(limits, s.Store, s.Logger),
		},
	})
	s.Clients = clients.New(clients.Config{Operators: Tokens(t), OpenRegistration: true, TTL: 90 * 24 * time.Hour}, s.Store, time.Now,
		s.Logger)
	s.Bulk, s.Erasures, s.Pauses = bulk.New(s.Store, s.Logger), erasures.New(s.Store, s.Logger), pauses.New(s.Store, s.Logger)
	s.Schedules = schedules.New(s.Store, s.Jobs, 100, s.Logger)
	deps := delivery.WebhooksDeps{
		Store: s.Store, Targets: apptest.NoLocals, Queue: s.Queue, Subscribers: delivery.NewSubscribers(s.Store, s.Logger), Log: s.Logger,
		Clock:     time.Now,
		NewSecret: func(job.ID) (string, []byte, error) { return Secret, []byte("sealed"), nil },
	}
	if s.Ask != nil {
		deps.Challenge = func(ctx context.Context, url string) string { return s.Ask(ctx, url) }
	}
	s.Webhooks = delivery.NewWebhooks(deps)
	bed := testbed.New(s.Store, false)
	clocks := &testbed.Clock{Store: s.Store, Schedule: func(context.Context) error { return nil }}
	s.Testbed = &testbed.Bed{
		Service: bed, Clock: clocks, Jobs: s.Jobs, Tasks: s.Queue, Limit: apptest.Limit,
	}
	s.Operators = &testbed.Operators{Store: s.Store, Bed: bed, Time: clocks}
	s.Once = &app.Idempotency{Store: s.Store, Hits: s.Metrics.IdempotencyHits}
	return s
}

// limits are higher than any test needs.
var limits = jobs.Limits{Active: 100_000, Queued: 100_000, ClientActive: 100_000, ClientQueued: 100_000, ClientRate: 100_000}

func unlimited(context.Context, job.ID, int) job.Allowance { return job.Allowance{OK: true} }

// Catalogue enables all kinds of jobs.
var Catalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: apptest.Limit, TestBed: true}

// Secret is the secret of every webhook.
const Secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" //nolint:gosec // for tests only

// URL returns the address of the database.
func (s *Service) URL() string { return s.url }

// Exec executes SQL directly in the database.
func (s *Service) Exec(sql string, args ...any) {
	s.T.Helper()
	repotest.Exec(s.T, s.url, sql, args...)
}

// Lock locks a table until a call of `release`.
func (s *Service) Lock(table string) (release func()) {
	s.T.Helper()
	return s.Begin(`LOCK TABLE ` + table)
}

// Begin executes a statement in a transaction that stays open until a call of `end`.
func (s *Service) Begin(sql string) (end func()) {
	s.T.Helper()
	return repotest.Begin(s.T, s.url, sql)
}

// Changed notifies watchers that a job has changed.
func (s *Service) Changed(client, id job.ID) {
	s.Hub.Received(job.Notification{ClientID: client, JobID: id})
}

// Move puts a job into the given states in turn, as workers do, and notifies watchers. A failed job reaches QUEUED by a retry.
func (s *Service) Move(id job.ID, states ...job.State) {
	s.T.Helper()
	ctx := context.Background()
	for _, state := range states {
		var err error
		claim := job.ClaimID{JobID: id}
		row := repotest.All[[]int](s.T, s.url, `SELECT ARRAY[attempt, fence::int] FROM jobs WHERE job_id = $1`, id.String())[0]
		client, _ := job.ParseID(repotest.All[string](s.T, s.url, `SELECT client_id::text FROM jobs WHERE job_id = $1`, id.String())[0])
		claim.Attempt, claim.Fence = row[0], int64(row[1])
		switch state {
		case job.Queued:
			_, err = s.Jobs.RetryNow(ctx, client, id)
		case job.Canceled:
			_, err = s.Jobs.Cancel(ctx, client, id)
		case job.Assigned:
			var c *job.Claim
			c, _, err = s.Store.Claim(ctx, Worker, id, claim.Attempt)
			require.NotNil(s.T, c, "the job cannot be claimed")
		case job.Running:
			_, err = s.Store.Start(ctx, claim)
		default:
			f := job.Finish{ClaimID: claim, State: state}
			if state == job.Failed {
				f.Failure = job.NewFailure(job.FailedOnce, claim.Attempt, apptest.Backoff)
			} else {
				f.Result = &job.Result{MediaType: "text/plain; charset=utf-8", Body: []byte("0123456789"), SHA256: sha256.Sum256([]byte("0123456789"))}
			}
			_, err = s.Store.Finish(ctx, f)
		}
		require.NoError(s.T, err)
		s.Changed(client, id)
	}
}

// Newest returns the id of the job that was submitted last.
func (s *Service) Newest() job.ID {
	s.T.Helper()
	id, err := job.ParseID(repotest.All[string](s.T, s.url, `SELECT job_id::text FROM jobs ORDER BY job_id DESC LIMIT 1`)[0])
	require.NoError(s.T, err)
	return id
}

// listener pretends to be connected to other processes. It delivers no notifications.
type listener struct{}

func (listener) Watch(job.ID)    {}
func (listener) Unwatch(job.ID)  {}
func (listener) Connected() bool { return true }

// Queue records calls of its methods, and forwards notifications to the hub.
type Queue struct {
	*apptest.Queue
	hub *events.Hub
}

// Publish notifies the hub, as Redis would.
func (q *Queue) Publish(n job.Notification) {
	q.Queue.Publish(n)
	q.hub.Received(n)
}
