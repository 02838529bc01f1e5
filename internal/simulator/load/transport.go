package load

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// transport sends short requests of plain http over fasthttp, in a third of the time
// of net/http: the generator must not limit a run. Streams go over net/http.
type transport struct {
	host    fasthttp.HostClient
	timeout time.Duration // of one request, waiting for a connection included
}

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 15 * time.Second
	connections    = 256 // open at a time; more requests wait, and their time counts
	maxBody        = 8 << 20
)

func newTransport(address string) *transport {
	return &transport{timeout: requestTimeout, host: fasthttp.HostClient{
		Addr:                      address,
		Dial:                      func(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, dialTimeout) },
		MaxConns:                  connections,
		MaxConnWaitTimeout:        requestTimeout,
		MaxIdleConnDuration:       20 * time.Second, // shorter than a server's patience
		MaxResponseBodySize:       maxBody,
		MaxIdemponentCallAttempts: 1, // trying again is decided, and written down, above
		NoDefaultUserAgentHeader:  true,
		DisablePathNormalizing:    true,
	}}
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

// RoundTrip sends one request and reads the whole answer. When the request's context ends before, nobody waits for it any
// more: fasthttp itself waits until the deadline.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	if err := fill(request, r); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(t.timeout)
	if d, ok := r.Context().Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	answered := make(chan error, 1)
	go func() { answered <- t.host.DoDeadline(request, response, deadline) }()
	select {
	case err := <-answered:
		defer fasthttp.ReleaseRequest(request)
		defer fasthttp.ReleaseResponse(response)
		if err != nil {
			return nil, cmp.Or(r.Context().Err(), err)
		}
		return read(response, r), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
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
