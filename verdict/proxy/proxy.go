// Package proxy implements a proxy in front of any HTTP API for long-running work. It injects faults into the requests of a client, records
// the requests, and judges the client with package verdict. It keeps everything in memory.
package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

const eventStream = "text/event-stream"

// sessionHeader holds the label of a request's session.
const sessionHeader = "ForgeRun-Session"

const (
	probeTimeout  = 5 * time.Second
	idleTarget    = 4 * time.Second  // how long idle connections to targets are kept; many targets close them after 5 s
	flushInterval = time.Millisecond // delay before a part of a response is flushed
)

// Proxy is an http.Handler. It serves its own routes below Prefix and passes other requests to the target.
type Proxy struct {
	targets  []*url.URL // target of New, and further targets of Forward
	api      *api.API
	log      *slog.Logger
	sessions *sessions
	own      http.Handler
	forward  httputil.ReverseProxy
	server   *http.Server
	socket   *wire.Listener
	tls      *secure // nil without TLS
	hosts    func(host string) bool
	open     bool // the listener is not on loopback, so any Host is accepted
	moves    moves
	forwards *forwarder // nil for a reverse proxy
}

// New returns a proxy in front of a target.
func New(target *url.URL, a *api.API, log *slog.Logger) *Proxy {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression, transport.Proxy = true, nil
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns
	transport.IdleConnTimeout = idleTarget
	transport.ExpectContinueTimeout = time.Nanosecond // the transport must not wait: requestBody waits for 100 Continue
	p := &Proxy{targets: []*url.URL{target}, api: a, log: log, sessions: newSessions(a)}
	p.sessions.probe, p.sessions.base = p.probe(transport), strings.TrimSuffix(target.Path, "/")
	p.AllowHosts()
	p.own = p.routes()
	p.forward = httputil.ReverseProxy{
		Transport: transport, BufferPool: &buffers{}, Rewrite: p.rewrite, ErrorHandler: p.failed, FlushInterval: flushInterval,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

type buffers struct{ pool sync.Pool }

// Get returns a buffer of the size that io.Copy uses.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.open && !p.asForwardProxy(r) && p.misdirected(w, r):
	case p.forwarded(w, r):
	case r.Method == http.MethodConnect:
		writeProblem(w, http.StatusMethodNotAllowed, "This proxy forwards to one server. Call the proxy's own address, without CONNECT.")
	case strings.HasPrefix(r.URL.Path, Prefix):
		p.control(w, r)
	case upgrades(r): // the proxy does not read the new protocol
		p.forward.ServeHTTP(&passing{w, p, r}, r)
	default:
		p.exchange(w, r)
	}
}

// upgrades reports whether a request asks for a protocol other than HTTP/2. An offer of HTTP/2 (h2c) can be ignored: the client also
// accepts HTTP/1.1.
func upgrades(r *http.Request) bool {
	upgrade := r.Header.Get("Upgrade")
	return upgrade != "" && !strings.EqualFold(upgrade, "h2c") && r.ProtoMajor == 1
}

func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex() // a target may respond before it has read the whole body
	in, err := p.sessions.sessionFor(r.Header.Get(sessionHeader))
	if err != nil {
		refuseLabel(w, err)
		return
	}
	x := p.sessions.exchange(r)
	p.sessions.keyInURL(in, r, x)
	p.moves.restore(r)
	role, job, described := p.sessions.operation(in, r)
	x.Role, x.Job, x.Operation = role, job, string(role)
	x.Repeatable = p.api.MayRepeat(role)
	body := newBody(r)
	x.Fault = p.fault(in, x.Operation, r, body)
	e := x.Fault
	a := &response{
		ResponseWriter: w, proxy: p, in: in, request: r, body: body, exchange: x, effect: e, described: described, left: -1, rest: -1,
	}
	defer func() { a.finish(recover()) }()
	switch {
	case e == nil:
	case e.Replaces():
		a.body.fetch(false) // record the body, to compare it with the next try
		if e.Wait() == 0 || wait(r.Context(), e.Wait()) {
			p.inject(a, r, e)
		}
		return
	case e.Wait() > 0:
		a.body.fetch(true)
		if !wait(r.Context(), e.Wait()) {
			return
		}
	}
	if e != nil && e.Rewrites() { // a 304 has no document to rewrite
		r.Header.Del("If-None-Match")
		r.Header.Del("If-Modified-Since")
	}
	p.forward.ServeHTTP(a, r)
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// failed ends a request if the target did not respond or the client has gone.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if a, ok := w.(*response); ok {
		if a.exchange.HungUp = r.Context().Err() != nil || a.body.broken.Load(); a.exchange.HungUp {
			panic(http.ErrAbortHandler)
		}
		a.own = true
	}
	if errors.Is(err, errEnded) {
		panic(http.ErrAbortHandler)
	}
	at := p.targetFor(r.URL)
	target := redact.URL(at.String())
	if a, ok := w.(*response); ok {
		a.exchange.Unreached = unreached(err, at)
	}
	p.log.Warn("the target did not answer", "target", target, "method", redact.Keep(r.Method), "path", redact.KeepURL(r.URL.EscapedPath()),
		"error", redact.Keep(err.Error()))
	writeProblem(w, http.StatusBadGateway, "The target "+target+" did not answer: is it running?")
}

// unreached returns why the target did not respond, such as "connection refused at 127.0.0.1:3000".
func unreached(err error, target *url.URL) string {
	why := err.Error()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused"
	case errors.As(err, new(*net.DNSError)):
		why = "host not found"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		why = "connection closed without a response"
	}
	return redact.Keep(why + " at " + target.Host)
}

// inject sends the fault's response. The target does not get the request.
func (p *Proxy) inject(a *response, r *http.Request, e *fault.Effect) {
	if a.own = true; e.Unanswered() {
		a.lost = true
		return
	}
	switch {
	case e.Moved != 0:
		to := r.URL.RequestURI()
		if other := wire.OtherName(r.Host); other != "" && e.OtherHost {
			to = p.moves.to(r, other)
		}
		a.Header().Set("Location", to)
		a.Header().Set("Content-Length", "0") // with a known length, the exchange is recorded before the response is sent
		a.WriteHeader(e.Moved)
	case e.HTML:
		status := e.Status
		if status == 0 {
			status = http.StatusBadGateway
		}
		writeWhole(a, "text/html", status, wire.Page(status))
	default:
		p.refuse(a, e)
	}
}

// refuse sends an error document of the API or, if it has none, a problem document (RFC 9457).
func (p *Proxy) refuse(w http.ResponseWriter, e *fault.Effect) {
	status := e.Status
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	d, ok := p.api.Errors[status]
	if !ok {
		d, ok = p.api.Errors[0]
	}
	if !ok {
		writeProblem(w, status, "The test bed injected this fault.")
		return
	}
	writeWhole(w, d.ContentType, status, []byte(d.Body))
}

func (p *Proxy) probe(t http.RoundTripper) func(*url.URL, http.Header) (int, http.Header, any) {
	c := &http.Client{Transport: t, Timeout: probeTimeout, CheckRedirect: unfollowed}
	return func(address *url.URL, as http.Header) (int, http.Header, any) {
		at := *address
		target := p.targetFor(address)
		at.Scheme, at.Host = target.Scheme, target.Host
		r, err := http.NewRequest(http.MethodGet, at.String(), nil)
		if err != nil {
			return 0, nil, nil
		}
		r.Header = as.Clone()
		res, err := c.Do(r)
		if err != nil {
			return 0, nil, nil
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(res.Body, maxDocument)) // the status counts even if the body is incomplete
		return res.StatusCode, res.Header, api.Decode(body)
	}
}

func unfollowed(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
