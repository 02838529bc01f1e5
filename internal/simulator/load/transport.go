package load

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// transport sends short requests of plain http over fasthttp, in a third of the time
// of net/http: the generator must not limit a run. Streams go over net/http.
type transport struct {
	host    fasthttp.HostClient
	timeout time.Duration // of one request, waiting for a connection included

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 15 * time.Second
	connections    = 256 // open at a time; more requests wait, and their time counts
)

func newTransport(address string) *transport {
	t := &transport{timeout: requestTimeout, open: map[net.Conn]bool{}}
	t.host = fasthttp.HostClient{
		Addr:                      address,
		Dial:                      t.dial,
		MaxConns:                  connections,
		MaxConnWaitTimeout:        requestTimeout,
		MaxIdleConnDuration:       20 * time.Second, // shorter than a server's patience
		MaxResponseBodySize:       maxBody,
		MaxIdemponentCallAttempts: 1, // trying again is decided, and written down, above
		NoDefaultUserAgentHeader:  true,
		DisablePathNormalizing:    true,
	}
	return t
}

// dial remembers the connection, for abort.
func (t *transport) dial(address string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	t.open[c] = true
	return &connection{c, t}, nil
}

// connection is one that is forgotten when it is closed.
type connection struct {
	net.Conn
	t *transport
}

func (c *connection) Close() error {
	c.t.mu.Lock()
	delete(c.t.open, c.Conn)
	c.t.mu.Unlock()
	return c.Conn.Close()
}

// abort ends present and future requests; fasthttp alone waits for deadlines.
func (t *transport) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.open {
		_ = c.Close() // its user gets an error
	}
}

// locating notes the Location of answers, which the library hides in refusals.
type locating struct{ http.RoundTripper }

// tryKey is the context's key of the history.Try that a request is sent for.
type tryKey struct{}

func (l locating) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if try, ok := r.Context().Value(tryKey{}).(*history.Try); ok && err == nil {
		try.Location = response.Header.Get("Location")
	}
	return response, err
}

const maxBody = 8 << 20

// RoundTrip sends one request and reads the whole answer. The request's context
// ends it through its deadline only; abort ends all.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	if err := fill(request, r); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(t.timeout)
	if d, ok := r.Context().Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := t.host.DoDeadline(request, response, deadline); err != nil {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return nil, err
	}
	return read(response, r), nil
}

func fill(request *fasthttp.Request, r *http.Request) error {
	request.Header.SetMethod(r.Method)
	request.SetRequestURI(r.URL.String())
	for name, values := range r.Header {
		for _, v := range values {
			request.Header.Add(name, v)
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	defer r.Body.Close()
	_, err := io.Copy(request.BodyWriter(), r.Body)
	return err
}

func read(response *fasthttp.Response, r *http.Request) *http.Response {
	body := bytes.Clone(response.Body()) // the response goes back to its pool
	header := make(http.Header, 8)
	for name, value := range response.Header.All() {
		header.Add(string(name), string(value))
	}
	return &http.Response{
		StatusCode: response.StatusCode(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// CloseIdleConnections closes what waits for nothing. http.Client calls it.
func (t *transport) CloseIdleConnections() { t.host.CloseIdleConnections() }
