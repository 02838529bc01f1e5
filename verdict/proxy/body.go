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
	maxFetched  = 8 << 20                // of a body that no target reads
	restTimeout = 100 * time.Millisecond // for the rest of a body that the target did not read
	askTimeout  = time.Second            // for the target to ask for a body, where it cannot be seen that the client sends it unasked
)

// requestBody is the body of a request on its way to the target. It notes for the record what passes.
type requestBody struct {
	io.ReadCloser
	request  *http.Request
	trailer  http.Header   // that the target gets
	expected bool          // the client waits until it is asked for the body
	gate     func() error  // waits until the client is asked for the body, or sends it
	ask      func()        // notes that the target has asked for it
	over     chan struct{} // closed when the exchange is over

	reading sync.Mutex // held while the client's body is read
	ahead   []byte     // read before the target asked

	mu    sync.Mutex // guards what follows
	noted *payload   // nil: there is no body
	taken bool       // the record has what it needs

	opened atomic.Bool // the client was asked for the body, or sends it unasked
	whole  atomic.Bool // it was read to its end
	broken atomic.Bool // it cannot be: the client has gone
}

// newBody puts a requestBody in the place of the body of a request. A request without a body has one that is whole.
func newBody(r *http.Request) *requestBody {
	b := &requestBody{request: r, over: make(chan struct{}), trailer: http.Header{}, ask: func() {}, gate: func() error { return nil }}
	if r.Body == nil || r.ContentLength == 0 {
		b.whole.Store(true)
		return b
	}
	maps.Copy(b.trailer, r.Trailer) // those that are announced
	b.ReadCloser, b.noted, r.Body = r.Body, newPayload(r.Header), b
	if b.expected = r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue"); b.expected {
		asked := make(chan struct{})
		b.ask = sync.OnceFunc(func() { close(asked) })
		b.gate = sync.OnceValue(func() error { return b.waitUntil(asked) })
	}
	return b
}

// waitUntil waits until the target has asked for the body, or the client sends it all the same.
func (b *requestBody) waitUntil(asked chan struct{}) error {
	var arrives <-chan struct{}
	var conn *wire.Conn
	if c, ok := b.request.Context().Value(connKey{}).(*connection); ok && b.request.ProtoMajor == 1 {
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
		if conn != nil && b.request.TLS == nil { // with TLS it cannot be held back
			conn.Unasked()
		}
		return nil
	}
}

// Read is called by the transport.
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

// read reads and notes what the client sends. The caller holds reading.
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

// fetch reads a body before the target does, or in its place. Until then net/http does not notice that the client hangs up. It keeps
// what the target gets later. It does not ask for a body that the client holds back.
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

// end completes the record of the request. It reads what the target left of the body, unless that takes long.
func (b *requestBody) end(a *api.API, x *verdict.Exchange) {
	close(b.over)
	if b.noted != nil && !b.whole.Load() {
		rest := make(chan struct{})
		go func() { // net/http ends the read after the answer
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

// take notes what the request says, once.
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
	x.Key, x.Correlation = sum([]byte(a.KeyOf(m))), redact.Keep(a.CorrelationOf(m))
	x.Receiver = x.Method == http.MethodPost && api.NamesReceiver(m)
}
