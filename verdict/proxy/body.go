package proxy

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	maxFetched  = 8 << 20                // maximum number of bytes that fetch reads and discards
	restTimeout = 100 * time.Millisecond // time for reading the rest of a body that the target did not read
	askTimeout  = time.Second            // longest wait for 100 Continue, if the proxy cannot see when the client sends the body
)

// requestBody is the body of a request to the target. It notes the content, so that the exchange can be recorded.
type requestBody struct {
	io.ReadCloser
	request  *http.Request
	trailer  http.Header
	expected bool          // the client waits for 100 Continue
	gate     func() error  // blocks until the target asks for the body, or the client sends the body
	ask      func()        // called when the target has sent 100 Continue
	over     chan struct{} // closed at the end of the exchange

	reading sync.Mutex // held while the client's body is read
	ahead   []byte     // bytes that fetch has read from the client, for the next calls of Read

	mu    sync.Mutex // guards `noted` and `taken`
	noted *payload   // nil without a body
	taken bool       // `take` was called; later bytes are not noted

	opened atomic.Bool // the client was asked for the body, or sends it unasked
	whole  atomic.Bool
	broken atomic.Bool // the body is incomplete, because the client has gone
}

// newBody wraps the body of a request, so that its content is noted. A request without a body counts as read to its end.
func newBody(r *http.Request) *requestBody {
	b := &requestBody{request: r, over: make(chan struct{}), trailer: http.Header{}, ask: func() {}, gate: func() error { return nil }}
	if r.Body == nil || r.ContentLength == 0 {
		b.whole.Store(true)
		return b
	}
	maps.Copy(b.trailer, r.Trailer) // announced trailers
	b.ReadCloser, b.noted, r.Body = r.Body, newPayload(r.Header), b
	if b.expected = r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue"); b.expected {
		asked := make(chan struct{})
		b.ask = sync.OnceFunc(func() { close(asked) })
		b.gate = sync.OnceValue(func() error { return b.waitUntil(asked) })
	}
	return b
}

func (b *requestBody) waitUntil(asked chan struct{}) error {
	var arrives <-chan struct{}
	var conn *wire.Conn
	if c := connectionOf(b.request); c != nil && b.request.ProtoMajor == 1 {
		conn = c.below
	}
	if conn != nil {
		arrives = conn.Arrives()
	} else {
		late := make(chan struct{})
		defer time.AfterFunc(askTimeout, func() { close(late) }).Stop()
		arrives = late
	}
	select {
	case <-asked:
		return nil
	case <-b.over:
		return http.ErrBodyReadAfterClose
	case <-arrives:
		if conn != nil && b.request.TLS == nil { // net/http will send 100 Continue; Unasked prevents this, except with TLS
			conn.Unasked()
		}
		return nil
	}
}

func (b *requestBody) Read(p []byte) (int, error) {
	if err := b.gate(); err != nil {
		return 0, err
	}
	b.opened.Store(true)
	b.reading.Lock()
	defer b.reading.Unlock()
	if n := copy(p, b.ahead); n > 0 {
		b.ahead = b.ahead[n:]
		return n, nil
	}
	return b.read(p)
}

// The caller holds b.reading.
func (b *requestBody) read(p []byte) (int, error) {
	if b.whole.Load() {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return n, err
	}
	b.noted.note(p[:n])
	if err == io.EOF {
		maps.Copy(b.trailer, b.request.Trailer)
		b.whole.Store(true)
	} else if err != nil {
		b.broken.Store(true)
	}
	return n, err
}

// fetch reads the body even if the target does not. Until the body is read, net/http does not notice that the client hung up. If `keep` is
// true, later calls of Read return the fetched bytes. fetch does not read a body that the client holds back until 100 Continue.
func (b *requestBody) fetch(keep bool) {
	if b.expected && !b.opened.Load() {
		return
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	most, piece := maxFetched, make([]byte, 32<<10)
	if keep {
		most = maxDocument
	}
	for size := 0; size < most; {
		n, err := b.read(piece)
		if size += n; keep {
			b.ahead = append(b.ahead, piece[:n]...)
		}
		if err != nil {
			return
		}
	}
}

// end completes the record of the request. It reads the rest of the body, for at most restTimeout.
func (b *requestBody) end(a *api.API, x *verdict.Exchange) {
	close(b.over)
	if b.noted != nil && !b.whole.Load() {
		rest := make(chan struct{})
		go func() { // not a leak: net/http ends the read when the response is complete
			defer close(rest)
			b.fetch(false)
		}()
		select {
		case <-rest:
		case <-time.After(restTimeout):
		}
	}
	b.take(a, x)
}

// take sets the members of x that depend on the request's header and body. Only the first call has an effect.
func (b *requestBody) take(a *api.API, x *verdict.Exchange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return
	}
	b.taken = true
	m := &api.Message{URL: b.request.URL, Header: b.request.Header}
	if b.noted != nil {
		x.Body, m.Body = b.noted.end(b.whole.Load())
	}
	x.Key, x.Correlation = wire.Sum([]byte(a.KeyOf(m))), redact.Keep(a.CorrelationOf(m))
	x.Receiver = x.Method == http.MethodPost && api.NamesReceiver(m)
}
