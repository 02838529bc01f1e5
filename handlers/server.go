// Package handlers is the HTTP side of ForgeRun, on Fiber: one table of
// routes, strict decoding of requests, the shapes of answers, and the only
// place where errors become problem documents (RFC 9457).
//
// It knows the domain and the few use cases it declares itself. No rule about
// jobs is decided here, and no Fiber type leaves the package.
package handlers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Jobs are the use cases that change a client's jobs. Here as in the other
// interfaces, an id that is not the client's own is answered as one that never
// existed.
type Jobs interface {
	Submit(ctx context.Context, r job.Request) (job.Receipt, error)
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
	Retry(ctx context.Context, client, id job.ID) (job.Change, error)
	Delete(ctx context.Context, client, id job.ID) error // nil for one that is gone already
	// CancelClient stops some of a client's unfinished jobs, and tells whether there may be more.
	CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error)
}

// Reader reads a client's jobs.
type Reader interface {
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	// Await reads a job again with each change until done says so. When ctx
	// ends first, it gives the job as it was read last.
	Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error)
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)    // attempt 0: the latest
	Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) // from the first to the current one
	Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
	List(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
}

// Batches are the use cases of batches.
type Batches interface {
	SubmitBatch(ctx context.Context, r job.BatchRequest) (b *job.Batch, replayed bool, err error)
	Batch(ctx context.Context, client, id job.ID) (*job.Batch, error)
	CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error)
}

// Events are the use cases of watching.
type Events interface {
	// JobEvents reads events of a job after the given seq: at most limit, and
	// fewer where they are large.
	JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error)
	// ClientEvents reads in the same way events of all of a client's jobs and
	// batches after the given position. Nothing will ever appear between the
	// position and what it answers with.
	ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error)
	// FeedEnd is the position after everything that ClientEvents can give now.
	FeedEnd(ctx context.Context) (job.Position, error)
	// Watch receives the notifications of one job, or with the zero id of all of a
	// client's jobs and batches, until stop is called. Some may be late and others
	// come twice; what is not received in time is merged. Progress comes of single
	// jobs only.
	Watch(client, id job.ID) (notifications <-chan job.Notification, stop func())
}

// Webhooks are the use cases of webhooks.
type Webhooks interface {
	Register(ctx context.Context, r job.WebhookRequest) (job.IssuedWebhook, error)
	Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) // newest first
	Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error)
	Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	Unregister(ctx context.Context, client, id job.ID) error
	RotateSecret(ctx context.Context, client, id job.ID) (job.IssuedWebhook, error)
}

// Proofs asks receivers whether they want events: Webhooks asks for that with
// job.ErrUnproven.
type Proofs interface {
	Prove(ctx context.Context, client job.ID, url string) error
}

// Deliveries are the use cases of deliveries to webhooks and callbacks.
type Deliveries interface {
	Test(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error)
	Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
	// RedeliverFailed sends again what failed since a time, and Replay also what
	// was not sent at all. Each does a part at a time; the answer to Replay says
	// after which position to go on.
	RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error)
	Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error)
}

// Clients are the use cases of clients and their keys. Except for
// Authenticate they decide themselves what the caller may do.
type Clients interface {
	Authenticate(ctx context.Context, bearer string) (job.Caller, error) // "": without credentials, where they are optional
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error)
	RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
}

// Admission bounds how many submissions wait for storage at once.
type Admission interface {
	// Full refuses with an error while nobody would be admitted.
	Full() error
	// Enter admits a submission, and Leave must follow; an error refuses it.
	Enter() error
	Leave(accepted bool)
}

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
	// AllowItems counts the items of a request that was allowed, all or none.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

// Health reports whether the process can do its work.
type Health interface {
	Ready(ctx context.Context) Readiness
}

// Readiness is the answer of /readyz.
type Readiness struct {
	OK     bool              `json:"-"`      // false: 503
	Status string            `json:"status"` // "ok", "degraded" or "unavailable"
	Checks map[string]string `json:"checks"` // by dependency
}

// Config holds the limits of the HTTP side. A zero field means its default.
type Config struct {
	PublicURL          string            // base of problem type URIs, no slash at the end
	MaxBodyBytes       int               // larger bodies: 413 (1 MiB)
	MaxBodiesBytes     int               // memory for bodies above 4 KiB that are under way: 503 (256 MiB)
	Hosts              func(string) bool // whether requests for a host are answered, else 421; nil: any
	TrustedProxies     conn.Proxies      // whose X-Forwarded-For is believed
	StorageConnections int               // of the process, to divide among clients (20)
	MaxPayloadBytes    int               // larger params or event data: 400 (256 KiB)
	TestBed            bool              // CUSTOM is a work kind
	MaxHeaderBytes     int               // larger request heads: 431 (16 KiB)
	RequestTimeout     time.Duration     // for the use case: 504 (10 s)
	ReadTimeout        time.Duration     // for reading one whole request: 408 (30 s)
	WriteTimeout       time.Duration     // for writing one answer (30 s)
	IdleTimeout        time.Duration     // of a kept-alive connection (75 s)

	TimeScale     float64       // of the workers, for estimates
	RetentionJobs time.Duration // how long a final job is kept; 0: expires_at is not shown

	MaxStreams          int           // event streams and waiting requests at once: 503 (10,000)
	MaxStreamsPerClient int           // of these, of one client: 429 (100)
	Heartbeat           time.Duration // between heartbeats on an idle stream (15 s)
	StallTimeout        time.Duration // a reader that takes longer for a piece of 8 KiB is dropped (10 s)
}

func (c Config) withDefaults() Config {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 1<<20)
	c.MaxBodiesBytes = cmp.Or(c.MaxBodiesBytes, 256<<20)
	c.StorageConnections = cmp.Or(c.StorageConnections, 20)
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, 256<<10)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 16<<10)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 75*time.Second)
	c.MaxStreams = cmp.Or(c.MaxStreams, 10_000)
	c.MaxStreamsPerClient = cmp.Or(c.MaxStreamsPerClient, 100)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 10*time.Second)
	return c
}

// Deps is what the server works with. All are required unless they say
// otherwise.
type Deps struct {
	Jobs       Jobs
	Reader     Reader
	Batches    Batches
	Events     Events
	Webhooks   Webhooks
	Proofs     Proofs
	Deliveries Deliveries
	Clients    Clients
	Bulk       Bulk
	Testbed    Testbed // nil: this is none
	// Idempotency of all requests but submissions of jobs and batches.
	Idempotency Idempotency
	Limiter     Limiter
	Health      Health
	// Admission of jobs, and of batches: one of these is much work, and must not
	// displace the others. Nil: all are admitted.
	Admission, BatchAdmission Admission
	Attempts                  *authlimit.Limiter       // slows failed authentication; nil: one of its own
	Registrations             *authlimit.Registrations // limits those of clients; nil: no limit
	Logger                    *slog.Logger             // nil: no log
	Registry                  prometheus.Registerer    // nil: metrics are not exposed
	Tracer                    trace.Tracer             // nil: no traces begin here
	Clock                     func() time.Time         // nil: time.Now
	// CursorKey gives the secret that signs cursors, the same in all processes.
	CursorKey func(context.Context) ([]byte, error)
	// Directory gives the public keys that deliveries are signed with, as a JSON
	// Web Key Set (RFC 7517).
	Directory func(context.Context) ([]byte, error)
}

// Server answers HTTP requests. It is made by New, runs in Serve and ends with
// Shutdown.
type Server struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	links   job.Links
	paths   [][]string // see knownPaths
	app     *fiber.App
	metrics *metrics
	bodies  *bodyMemory
	places  places
	streams *stream.Engine
	limiter *stream.Limiter // of streams and waiting requests; all end when Shutdown begins

	base   context.Context // parent of all requests' contexts; ends with Shutdown
	cancel context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	listener net.Listener
}

// New builds a server; nothing runs before Serve.
func New(cfg Config, deps Deps) *Server {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	if deps.Attempts == nil {
		deps.Attempts = authlimit.New(deps.Clock, telemetry.In(deps.Registry))
	}
	if deps.Registrations == nil {
		deps.Registrations = authlimit.NewRegistrations(0, deps.Clock)
	}
	s := &Server{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Logger,
		links: job.Links{PublicURL: cfg.PublicURL},
	}
	s.paths = knownPaths(s.routes())
	s.metrics = newMetrics(telemetry.In(deps.Registry), s.routes())
	s.bodies, s.places = newBodyMemory(s.cfg.MaxBodiesBytes), newPlaces(s.cfg.StorageConnections)
	s.limiter = stream.NewLimiter(s.cfg.MaxStreams, s.cfg.MaxStreamsPerClient)
	s.streams = &stream.Engine{
		Heartbeat: s.cfg.Heartbeat, StallTimeout: s.cfg.StallTimeout, RequestTimeout: s.cfg.RequestTimeout,
		Watch:   func(client, id job.ID) (<-chan job.Notification, func()) { return s.deps.Events.Watch(client, id) },
		Recheck: s.stillGood, Render: s.frameData, RenderProgress: progressFrameOf,
		Limiter: s.limiter, Metrics: stream.NewMetrics(telemetry.In(deps.Registry)), Logger: s.log,
		Unauthorized: func(code job.Code) { s.metrics.authFailures.WithLabelValues(string(code)).Inc() },
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.app = s.newApp()
	s.register()

	server := s.app.Server()
	route := server.Handler
	server.Handler = func(c *fasthttp.RequestCtx) {
		if err := checkFraming(&c.Request.Header); err != nil {
			c.Response.SetConnectionClose()
			s.unreadable(c, err)
			return
		}
		nameMethod(c)
		s.underWay(c, route)
	}
	server.ErrorHandler = s.unreadable
	server.ExpectHandler = s.expect
	server.CloseOnShutdown = true
	server.KeepHijackedConns = true // streams close theirs; fasthttp then keeps no buffer for them
	return s
}

func (s *Server) newApp() *fiber.App {
	return fiber.New(fiber.Config{
		// Fiber's strings otherwise point into buffers that the next request
		// overwrites; ids and keys outlive their request.
		Immutable:                    true,
		CaseSensitive:                true,
		StrictRouting:                true,
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		RequestMethods:               append(slices.Clone(fiber.DefaultMethods), otherMethod),
		// Routes read their bodies themselves, within their limits: see readBody. Of
		// one with a length fasthttp wants one byte before it calls the handler.
		StreamRequestBody: true,
		BodyLimit:         1,
		ReadBufferSize:    s.cfg.MaxHeaderBytes,
		ReadTimeout:       s.cfg.ReadTimeout,
		WriteTimeout:      s.cfg.WriteTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		ErrorHandler:      s.unmatched,
	})
}

// Serve answers on l until Shutdown, then returns nil. It closes l. One that is
// no listener of package conn has no limits.
func (s *Server) Serve(l net.Listener) error {
	if _, ok := l.(*conn.Listener); !ok {
		l = conn.NewListener(l, conn.Limits{})
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return l.Close()
	}
	s.listener = l
	s.mu.Unlock()
	return s.app.Listener(l)
}

// Shutdown stops accepting, ends streams and waits, lets requests that are
// under way finish until ctx ends, then ends their contexts. It may be called
// twice, and before Serve.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.cancel()
	s.mu.Lock()
	s.stopped = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	s.limiter.Close()
	return errors.Join(s.app.ShutdownWithContext(ctx), s.limiter.Wait(ctx))
}

// Test answers one request without a network.
func (s *Server) Test(r *http.Request) (*http.Response, error) {
	return s.app.Test(r, -1)
}
