package handlers

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/job"
)

// Jobs are the use cases of a client's jobs. An id that is not the client's
// own is answered as one that never existed.
type Jobs interface {
	Submit(ctx context.Context, r job.Request) (job.Receipt, error)
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
	Retry(ctx context.Context, client, id job.ID) (job.Change, error)
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) // attempt 0: the latest
}

// Clients are the use cases of clients and their keys. Except for
// Authenticate they decide themselves what the caller may do.
type Clients interface {
	Authenticate(ctx context.Context, bearer string) (job.Caller, error)
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool) (job.IssuedKey, error)
	RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
}

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
}

// Health tells whether the process can do its work.
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
	PublicURL       string        // base of problem type URIs, no slash at the end
	MaxBodyBytes    int           // larger bodies: 413 (1 MiB)
	MaxPayloadBytes int           // larger params or event data: 400 (256 KiB)
	MaxHeaderBytes  int           // larger request heads: 431 (16 KiB)
	RequestTimeout  time.Duration // for the use case: 504 (10 s)
	ReadTimeout     time.Duration // for reading one whole request: 408 (30 s)
	WriteTimeout    time.Duration // for writing one answer (30 s)
	IdleTimeout     time.Duration // of a kept-alive connection (75 s)
}

func (c Config) withDefaults() Config {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 1<<20)
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, 256<<10)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 16<<10)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 75*time.Second)
	return c
}

// Deps is what the server works with. All are required unless they say
// otherwise.
type Deps struct {
	Jobs     Jobs
	Clients  Clients
	Limiter  Limiter
	Health   Health
	Logger   *slog.Logger          // nil: no log
	Registry prometheus.Registerer // nil: metrics are not exposed
	Clock    func() time.Time      // nil: time.Now
}

// Server answers HTTP requests. It is made by New, runs in Serve and ends with
// Shutdown.
type Server struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	links   job.Links
	app     *fiber.App
	metrics *metrics
	pages   map[string][]byte // by problem slug; "" is the index

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
	s := &Server{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Logger,
		links:   job.Links{PublicURL: cfg.PublicURL},
		metrics: newMetrics(deps.Registry),
		pages:   problemPages(),
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.app = fiber.New(fiber.Config{
		// Fiber's strings otherwise point into buffers that the next request
		// overwrites; ids and keys outlive their request.
		Immutable:                    true,
		CaseSensitive:                true,
		StrictRouting:                true,
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		RequestMethods:               append(slices.Clone(fiber.DefaultMethods), otherMethod),
		BodyLimit:                    s.cfg.MaxBodyBytes,
		ReadBufferSize:               s.cfg.MaxHeaderBytes,
		ReadTimeout:                  s.cfg.ReadTimeout,
		WriteTimeout:                 s.cfg.WriteTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		ErrorHandler:                 s.unmatched,
	})
	s.register()

	server := s.app.Server()
	route := server.Handler
	server.Handler = func(c *fasthttp.RequestCtx) { nameMethod(c); route(c) }
	server.ErrorHandler = s.unreadable
	server.ExpectHandler = s.expect
	server.CloseOnShutdown = true
	return s
}

// otherMethod stands for every method that HTTP itself does not define, so
// that such a request is answered as any other that no route wants.
const otherMethod = "OTHER"

func nameMethod(c *fasthttp.RequestCtx) {
	if !slices.Contains(fiber.DefaultMethods, string(c.Method())) {
		c.Request.Header.SetMethod(otherMethod)
	}
}

// Serve answers on l until Shutdown, then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	l = &listener{Listener: l, silent: map[*conn]struct{}{}}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return l.Close()
	}
	s.listener = l
	s.mu.Unlock()
	return s.app.Listener(l)
}

// Shutdown stops accepting, lets requests that are under way finish until ctx
// ends, then ends their contexts. It may be called twice, and before Serve.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.cancel()
	s.mu.Lock()
	s.stopped = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	return s.app.ShutdownWithContext(ctx)
}

// Test answers one request without a network.
func (s *Server) Test(r *http.Request) (*http.Response, error) {
	return s.app.Test(r, -1)
}
