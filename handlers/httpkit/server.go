// Package httpkit has the common parts of the client API and the operator API. It has the table of routes, limits, content negotiation,
// conditions, idempotency, paging, authentication of clients, and problem documents (RFC 9457). It knows nothing about single resources,
// such as jobs.
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

// MaxPayload is the maximum size of params and event data, in bytes.
const MaxPayload = 256 << 10

// Config has the limits of the HTTP side. The default of a zero field is in parentheses.
type Config struct {
	PublicURL          string            // base of all addresses, without a trailing slash
	DocsURL            string            // page that describes all paths (PublicURL + "/docs")
	MaxBodyBytes       int               // larger bodies: 413 (1 MiB)
	MaxBodiesBytes     int               // memory for all bodies above 4 KiB in progress; if none is left: 503 (256 MiB)
	Hosts              func(string) bool // allowed hosts, others get 421; nil: any
	Origins            cors.Origins      // web pages that may call the API from a browser (none)
	TrustedProxies     conn.Proxies      // proxies with trusted X-Forwarded-For headers
	StorageConnections int               // storage connections of this process, shared fairly among clients (20)
	MaxPayloadBytes    int               // larger params or event data: 400 (MaxPayload)
	TestBed            bool              // allows the work kind CUSTOM
	MaxHeaderBytes     int               // larger request heads: 431 (16 KiB)
	RequestTimeout     time.Duration     // limit for the use case; after it: 504 (10 s)
	ReadTimeout        time.Duration     // limit for reading one whole request; after it: 408 (30 s)
	WriteTimeout       time.Duration     // limit for writing one response (30 s)
	IdleTimeout        time.Duration     // how long a keep-alive connection may be unused (75 s)

	TimeScale     float64       // factor for the run time of jobs, used to estimate when a job ends
	RetentionJobs time.Duration // how long a final job is kept; 0: expires_at is omitted

	MaxStreams          int           // maximum number of event streams and waiting requests at a time; above: 503 (10,000)
	MaxStreamsPerClient int           // maximum number per client; above: 429 (100)
	Heartbeat           time.Duration // time between heartbeats on an idle stream (15 s)
	StallTimeout        time.Duration // maximum time for a client to read 8 KiB of a stream; slower clients are disconnected (10 s)
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

// Interceptor lets a test bed disturb and record requests.
type Interceptor interface {
	// Before is called after a request was admitted. It returns true if it has sent the response.
	Before(r *Request) (done bool, err error)
	// Body is called with the complete body.
	Body(r *Request, body []byte)
	// After is called when the response is complete but not sent.
	After(r *Request)
	// Stream returns the connection that an event stream must write to.
	Stream(r *Request, c *conn.Conn) net.Conn
}

// Deps are the dependencies of all requests. All are required, unless a comment says otherwise.
type Deps struct {
	Keys *clients.Service // can be nil if Callers is set
	// Callers authenticates requests; nil: by keys and tokens.
	Callers Callers
	Pages   Pages
	// Idempotency stores the responses to requests with an idempotency key, except submissions of jobs and batches.
	Idempotency   *app.Idempotency
	Limiter       Limiter
	Attempts      *authlimit.Limiter       // delays clients after failed authentications; nil: a new limiter
	Registrations *authlimit.Registrations // limits client registrations; nil: no limit
	Interceptor   Interceptor              // nil: not a test bed
	Logger        *slog.Logger             // nil: no logging
	Registry      prometheus.Registerer    // nil: metrics are not exposed
	Tracer        trace.Tracer             // nil: no tracing
	Clock         func() time.Time         // clock of the jobs; nil: time.Now
	// Real converts a time of Clock to real time, because clients cache and poll in real time. If Real is nil, Clock shows real time.
	Real func(t time.Time) time.Time
	// Named finds a client and its key by the key id in an invalid credential. Named may be nil.
	Named func(ctx context.Context, credential string) job.Caller
	// CursorKey returns the secret that signs cursors. All processes use the same secret.
	CursorKey query.Cursors
}

// Kit handles HTTP requests by a table of routes. Call New, Register, Serve and finally Shutdown.
type Kit struct {
	Config
	Deps
	Links  job.Links
	Routes []Route
	Waits  *stream.Limiter // limits streams and waiting requests; Shutdown ends them
	Slots  StorageSlots
	// Shown maps the path of each route to the GET route of the same resource.
	Shown map[string]*Route

	app     *fiber.App
	metrics *metrics
	bodies  *bodyMemory

	base   context.Context // parent of all requests' contexts; ends with Shutdown
	cancel context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	listener net.Listener
}

// New returns a kit without routes.
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
		s.holdOpen(c, handle)
	}
	server.ErrorHandler = s.unreadable
	server.ExpectHandler = s.expect
	server.CloseOnShutdown = true
	server.KeepHijackedConns = true // streams close their connections themselves, after fasthttp has freed its buffers
	return s
}

// Background returns a context with the time limit of a request, for work after the response.
func (s *Kit) Background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.base), s.RequestTimeout)
}

// Unauthorized counts an event stream that ended because its key became invalid.
func (s *Kit) Unauthorized(code job.Code) { s.metrics.authFailures.WithLabelValues(string(code)).Inc() }

// RefuseConnections refuses new connections for d.
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
		// Without Immutable, Fiber's strings refer to buffers that the next request overwrites. Ids and keys are used even after their request.
		Immutable:                    true,
		CaseSensitive:                true,
		StrictRouting:                true,
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		RequestMethods:               append(slices.Clone(fiber.DefaultMethods), otherMethod),
		// ReadBody reads the bodies, and limits their size. fasthttp waits only for the first BodyLimit bytes of a body before it calls the
		// handler.
		StreamRequestBody: true,
		BodyLimit:         1,
		ReadBufferSize:    s.MaxHeaderBytes,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       s.IdleTimeout,
		ErrorHandler:      s.unmatched,
	})
}

// Serve handles requests on l until Shutdown, and then returns nil. It closes l. A listener that is not from package conn has no limits.
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

// Shutdown stops accepting connections, and ends streams and waiting requests. Other requests may finish, but are canceled when ctx ends.
// Shutdown may be called twice, and before Serve.
func (s *Kit) Shutdown(ctx context.Context) error {
	defer s.cancel()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.Waits.Close()
	err := s.app.ShutdownWithContext(ctx) // sends Connection: close before it closes the listener
	s.mu.Lock()
	if s.listener != nil { // Serve may have set the listener meanwhile
		_ = s.listener.Close()
	}
	s.mu.Unlock()
	return errors.Join(err, s.Waits.Wait(ctx))
}

// Test handles a request without using a network.
func (s *Kit) Test(r *http.Request) (*http.Response, error) {
	return s.app.Test(r, -1)
}

// otherMethod replaces all methods that HTTP does not define.
const otherMethod = "OTHER"

func nameMethod(c *fasthttp.RequestCtx) {
	if !slices.Contains(fiber.DefaultMethods, string(c.Method())) {
		c.Request.Header.SetMethod(otherMethod)
	}
}

// decodePath decodes percent-encoded unreserved characters in the path. Such a character means the same with and without the encoding (RFC
// 3986, section 6.2.2.2). Other characters, such as %2F, stay encoded and are never part of an id.
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

// isUnreserved reports whether a character is unreserved in a URI (RFC 3986, section 2.3).
func isUnreserved(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("-._~", b) >= 0
}

// holdOpen handles a request. Meanwhile, the connection is not closed to make room for other connections. A stream keeps this protection
// until it ends.
func (s *Kit) holdOpen(c *fasthttp.RequestCtx, handle fasthttp.RequestHandler) {
	if s.Pages.has(c.URI().PathOriginal()) {
		handle = s.servePage
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
