// Package httpkit is what all resources of the client API and of the operator API have in common: the table of routes, limits,
// negotiation, conditions, idempotency, paging, and the only place where errors become problem documents (RFC 9457). It also admits
// clients by their keys. It knows no resource.
package httpkit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// MaxPayload is the largest size of params and event data, in bytes.
const MaxPayload = 256 << 10

// Config holds the limits of the HTTP side. A zero field means its default.
type Config struct {
	PublicURL          string            // below which all addresses are, no slash at the end
	DocsURL            string            // where all paths are described (PublicURL + "/docs")
	MaxBodyBytes       int               // larger bodies: 413 (1 MiB)
	MaxBodiesBytes     int               // memory for bodies above 4 KiB that are under way: 503 (256 MiB)
	Hosts              func(string) bool // whether requests for a host are answered, else 421; nil: any
	Origins            cors.Origins      // whose pages may call the API from a browser (none)
	TrustedProxies     conn.Proxies      // whose X-Forwarded-For is believed
	StorageConnections int               // of the process, to divide among clients (20)
	MaxPayloadBytes    int               // larger params or event data: 400 (MaxPayload)
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
	c.DocsURL = cmp.Or(c.DocsURL, c.PublicURL+"/docs")
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 1<<20)
	c.MaxBodiesBytes = cmp.Or(c.MaxBodiesBytes, 256<<20)
	c.StorageConnections = cmp.Or(c.StorageConnections, 20)
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, MaxPayload)
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

// Interceptor is what a test bed does to requests, and keeps of them.
type Interceptor interface {
	// Before comes once a request was admitted. done says that it has its answer.
	Before(r *Request) (done bool, err error)
	// Body is told the body once it is there.
	Body(r *Request, body []byte)
	// After comes when the answer is made, before it is sent.
	After(r *Request)
	// Stream returns the connection to which an event stream writes.
	Stream(r *Request, c *conn.Conn) net.Conn
}

// Deps is what all requests need. All are required unless they say otherwise.
type Deps struct {
	Keys *clients.Service // nil if Callers need none
	// Callers decides who may ask; nil: holders of keys.
	Callers Callers
	Pages   Pages
	// Idempotency of all requests but submissions of jobs and batches.
	Idempotency   *app.Idempotency
	Limiter       Limiter
	Attempts      *authlimit.Limiter       // slows failed authentication; nil: one of its own
	Registrations *authlimit.Registrations // limits those of clients; nil: no limit
	Interceptor   Interceptor              // nil: this is no test bed
	Logger        *slog.Logger             // nil: no log
	Registry      prometheus.Registerer    // nil: metrics are not exposed
	Tracer        trace.Tracer             // nil: no traces begin here
	Clock         func() time.Time         // by which jobs live; nil: time.Now
	// Real is when the machine's clock will show that Clock shows t, of caches and of polling; nil: it is the same.
	Real func(t time.Time) time.Time
	// Named returns the client and key that a wrong credential names; nil: not known.
	Named func(ctx context.Context, credential string) job.Caller
	// CursorKey gives the secret that signs cursors, the same in all processes.
	CursorKey query.Cursors
}

// Kit answers HTTP requests by a table of routes. It is made by New, gets its routes by Register, runs in Serve and ends with Shutdown.
type Kit struct {
	Config
	Deps
	Links  job.Links
	Routes []Route
	Waits  *stream.Limiter // of streams and waiting requests; all end when Shutdown begins
	Slots  StorageSlots
	// Shown has for the path of each change the route that shows what the change is about.
	Shown map[string]*Route

	paths   [][]string // see knownPaths
	app     *fiber.App
	metrics *metrics
	bodies  *bodyMemory

	base   context.Context // parent of all requests' contexts; ends with Shutdown
	cancel context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	listener net.Listener
}

// New makes a kit without routes; nothing runs before Serve.
func New(cfg Config, deps Deps) *Kit {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Clock == nil {
		deps.Clock = time.Now
	}
	if deps.Real == nil {
		deps.Real = func(t time.Time) time.Time { return t }
	}
	if deps.Attempts == nil {
		deps.Attempts = authlimit.New(deps.Clock, telemetry.In(deps.Registry))
	}
	if deps.Registrations == nil {
		deps.Registrations = authlimit.NewRegistrations(0, deps.Clock)
	}
	s := &Kit{Config: cfg.withDefaults(), Deps: deps, Links: job.Links{PublicURL: cfg.PublicURL}}
	if s.Callers == nil {
		s.Callers = keyHolders{s}
	}
	s.bodies, s.Slots = newBodyMemory(s.MaxBodiesBytes), newStorageSlots(s.StorageConnections)
	s.Waits = stream.NewLimiter(s.MaxStreams, s.MaxStreamsPerClient)
	s.base, s.cancel = context.WithCancel(context.Background())
	s.app = s.newApp()

	server := s.app.Server()
	handle := server.Handler
	server.Handler = func(c *fasthttp.RequestCtx) {
		nameMethod(c)
		decodePath(c)
		s.underWay(c, handle)
	}
	server.ErrorHandler = s.unreadable
	server.ExpectHandler = s.expect
	server.CloseOnShutdown = true
	server.KeepHijackedConns = true // streams close theirs; fasthttp then keeps no buffer for them
	return s
}

// Background returns a context with the time of a request, for what is done once a request has its answer.
func (s *Kit) Background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.base), s.RequestTimeout)
}

// Unauthorized counts an event stream that ended because its key did.
func (s *Kit) Unauthorized(code job.Code) { s.metrics.authFailures.WithLabelValues(string(code)).Inc() }

// RefuseConnections closes the socket for so long.
func (s *Kit) RefuseConnections(d time.Duration) {
	s.mu.Lock()
	l, ok := s.listener.(*conn.Listener)
	s.mu.Unlock()
	if ok {
		l.Refuse(d)
	}
}

func (s *Kit) newApp() *fiber.App {
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
		ReadBufferSize:    s.MaxHeaderBytes,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       s.IdleTimeout,
		ErrorHandler:      s.unmatched,
	})
}

// Serve answers on l until Shutdown, then returns nil. It closes l. One that is
// no listener of package conn has no limits.
func (s *Kit) Serve(l net.Listener) error {
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
func (s *Kit) Shutdown(ctx context.Context) error {
	defer s.cancel()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.Waits.Close()
	err := s.app.ShutdownWithContext(ctx) // answers say that their connections end before it closes the listener
	s.mu.Lock()
	if s.listener != nil { // which Serve may have taken meanwhile
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	return errors.Join(err, s.Waits.Wait(ctx))
}

// Test answers one request without a network.
func (s *Kit) Test(r *http.Request) (*http.Response, error) {
	return s.app.Test(r, -1)
}

// otherMethod stands for every method that HTTP itself does not define.
const otherMethod = "OTHER"

func nameMethod(c *fasthttp.RequestCtx) {
	if !slices.Contains(fiber.DefaultMethods, string(c.Method())) {
		c.Request.Header.SetMethod(otherMethod)
	}
}

// decodePath writes those characters of the path plainly that mean the same so (RFC 3986, section 6.2.2.2), once. Others, such as %2F,
// stay as they are, and are never part of an id.
func decodePath(c *fasthttp.RequestCtx) {
	path := c.URI().PathOriginal()
	if bytes.IndexByte(path, '%') < 0 {
		return
	}
	plain := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if b, err := hex.DecodeString(string(path[i+1 : i+3])); err == nil && isUnreserved(b[0]) {
				plain = append(plain, b[0])
				i += 2
				continue
			}
		}
		plain = append(plain, path[i])
	}
	c.URI().SetPathBytes(plain)
}

// isUnreserved reports whether a character has no meaning of its own in a URI (RFC 3986, section 2.3).
func isUnreserved(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("-._~", b) >= 0
}

// underWay keeps the connection from being closed as an idle one while its
// request is answered, and for good if it becomes a stream.
func (s *Kit) underWay(c *fasthttp.RequestCtx, handle fasthttp.RequestHandler) {
	if s.Pages.has(c.URI().PathOriginal()) {
		handle = s.answerPage
	}
	served, ok := c.Conn().(*conn.Conn)
	if !ok || !s.Pages.keeps(c) {
		handle(c)
		return
	}
	served.Begin()
	handle(c)
	if !c.Hijacked() {
		served.End()
	}
}
