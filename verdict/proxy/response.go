package proxy

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

var errEnded = errors.New("a fault ended the response")

// response passes a response to the client. It applies faults, and reads event streams and JSON documents up to maxDocument. It has no
// method Flush, because httputil.ReverseProxy would flush bytes that must be withheld.
type response struct {
	http.ResponseWriter
	proxy     *Proxy
	in        *session
	request   *http.Request
	body      *requestBody
	exchange  *verdict.Exchange
	effect    *fault.Effect
	described bool // whether the description of the API contains the operation

	own      bool // whether the response comes from the proxy, not from the target
	status   int
	document bytes.Buffer // received part of a JSON document
	isJSON   bool         // whether the document may be JSON; many servers send no suitable Content-Type
	held     http.Header  // header of the response, if the document is rewritten before it is sent; else nil
	earlier  *pending     // earlier response to send in place of this one; may be nil
	lost     bool         // whether the client gets nothing
	left     int          // bytes until the connection is cut; -1 without a cut
	rest     int          // bytes still expected from the target; -1 if unknown
	last     []byte       // last bytes, sent after the exchange is recorded
	ended    bool         // whether disturbNextConnections has run
	stream   *wire.Stream
}

func (a *response) WriteHeader(status int) {
	if status < http.StatusOK {
		a.interim(status)
		return
	}
	a.disturbNextConnections()
	a.status = status
	h := a.Header()
	if !a.own {
		a.proxy.asSent(h, status, a.request)
	}
	a.retryAfter(h)
	a.rest = length(a.request.Method, status, h)
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	said := kind == "application/json" || strings.HasSuffix(kind, "+json")
	a.isJSON = said || kind == "" || kind == "text/plain"
	a.exchange.Status, a.exchange.ETag = status, redact.Keep(h.Get("ETag"))
	a.exchange.RetryAfter = wire.RetryAfter(h["Retry-After"], time.Now())
	e := a.effect
	switch streams := kind == eventStream && status == http.StatusOK && a.request.Method != http.MethodHead; {
	case streams && e != nil && e.Close == fault.AfterCommit:
		a.lost, a.exchange.Fault, a.exchange.Stream = true, e.OnStream(), &verdict.Part{Cut: true}
		panic(http.ErrAbortHandler) // end the stream now, because the target may never do so
	case streams:
		a.begin()
	case e != nil:
		a.disturb(e, h, said)
	}
	if p := a.earlierResponse(); p != nil && !a.lost && (status == http.StatusSeeOther || !said) {
		a.sendEarlier(p)
	}
	if e != nil && e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	}
	if !a.lost && a.held == nil {
		a.ResponseWriter.WriteHeader(status)
	}
	if a.stream != nil { // send the header now, because a fault may withhold the first event
		_ = http.NewResponseController(a.ResponseWriter).Flush()
	}
}

func (a *response) retryAfter(h http.Header) {
	if a.effect == nil {
		return
	}
	if lines, set := a.effect.RetryAfterLines(time.Now()); set {
		delete(h, "Retry-After")
		if len(lines) > 0 {
			h["Retry-After"] = lines
		}
	}
}

// interim passes interim responses on, unless the response is lost. 100 Continue always passes, so that the client sends its body.
func (a *response) interim(status int) {
	lost := a.effect != nil && a.effect.Close == fault.AfterCommit
	if a.request.ProtoAtLeast(1, 1) && (status == http.StatusContinue || !lost) {
		a.ResponseWriter.WriteHeader(status)
	}
	if status == http.StatusContinue {
		a.body.ask()
	}
}

// length returns -1 if the length of the body is unknown.
func length(method string, status int, h http.Header) int {
	if method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified {
		return 0
	}
	if n, err := strconv.Atoi(h.Get("Content-Length")); err == nil {
		return n
	}
	return -1
}

// FlushError sends the written bytes, unless they are held back or the response is lost. The last byte is sent after the exchange is
// recorded. So the record exists when the client has the whole response.
func (a *response) FlushError() error {
	if a.status == 0 || a.lost || a.held != nil || a.rest == 0 && a.left < 0 {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// disturbNextConnections starts the faults of later connections. It runs before any part of the response is sent.
func (a *response) disturbNextConnections() {
	e, p := a.effect, a.proxy
	if e == nil || a.ended {
		return
	}
	a.ended = true
	if e.Refuse > 0 && p.socket != nil {
		p.socket.Refuse(time.Duration(e.Refuse))
	}
	if e.TLS != "" && p.tls != nil {
		p.tls.next.Store(&e.TLS)
		a.Header().Set("Connection", "close")
	}
}

// disturb applies an effect to a response that is not an event stream.
func (a *response) disturb(e *fault.Effect, h http.Header, isJSON bool) {
	switch {
	case e.Close == fault.AfterCommit:
		a.lost = true
	case e.Close == fault.CloseMidBody, e.Close == fault.CloseStall:
		a.left = max(1, a.rest/2)
		a.lost = a.rest == 0 || a.rest == 1 // an empty body, or a single byte, cannot be cut in the middle
	}
	if isJSON && e.Rewrites() && !a.lost && !digested(h) {
		h.Del("Content-Length")
		h.Del("ETag") // the rewrite makes the ETag wrong
		a.exchange.ETag = ""
		a.held, a.rest = h.Clone(), -1
	}
}

// digested reports whether the header has a digest of the body, which a rewrite would invalidate.
func digested(h http.Header) bool {
	return h.Get("Repr-Digest")+h.Get("Content-Digest")+h.Get("Digest")+h.Get("Content-Md5") != ""
}

// begin records the start of an event stream immediately, because the stream may last long.
func (a *response) begin() {
	x := a.exchange
	e := a.effect
	if e != nil {
		e = e.OnStream()
		x.Fault = e
		if !e.OfStreams() && !e.Rewrites() && e.SlowBytes == 0 {
			e = nil
		}
	}
	if e != nil {
		a.Header().Del("Content-Length") // the effect changes the length
	}
	if a.body.whole.Load() {
		a.body.take(a.proxy.api, x)
	}
	begun := *x
	begun.Stream, begun.End = &verdict.Part{Open: true}, time.Now().UTC()
	a.proxy.sessions.record(a.in, &begun)
	a.stream = &wire.Stream{
		To: flushing{a.ResponseWriter}, Shape: a.proxy.sessions.shape(a.in), Effect: e,
		Resumed: x.LastEventID != "", Closed: a.request.Context().Done(),
		Note: func(data []byte) { a.proxy.sessions.noteEvent(a.in, x, e, data) },
	}
}

type flushing struct{ http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

func (a *response) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.stream != nil {
		if _, err := a.stream.Write(b); err != nil {
			return 0, errEnded
		}
		return len(b), nil
	}
	if a.isJSON && a.document.Len()+len(b) <= maxDocument {
		a.document.Write(b)
	} else if a.isJSON { // too large to read or rewrite
		a.isJSON = false
		if a.held != nil {
			if err := a.release(a.document.Bytes()); err != nil {
				return 0, err
			}
		}
		a.document = bytes.Buffer{}
	}
	if (a.lost || a.left == 0) && !a.isJSON { // the rest is not needed, and the response may never end
		return 0, errEnded
	}
	if a.lost || a.held != nil {
		return len(b), nil
	}
	n := len(b)
	if a.rest -= min(n, max(a.rest, 0)); a.rest == 0 && n > 0 && a.left < 0 {
		a.last = append(a.last, b[n-1])
		b = b[:n-1]
	}
	return n, a.send(b)
}

// release sends the held header and a document. The trailers of the target follow.
func (a *response) release(document []byte) error {
	h := a.Header()
	after := h.Clone()
	clear(h)
	maps.Copy(h, a.held)
	a.held = nil
	if a.left >= 0 {
		a.left = max(1, len(document)/2)
	}
	a.ResponseWriter.WriteHeader(a.status)
	maps.Copy(h, after)
	return a.send(document)
}

func (a *response) send(b []byte) error {
	if a.left >= 0 {
		b = b[:min(len(b), a.left)]
		a.left -= len(b)
	}
	slow := 0
	var to io.Writer = a.ResponseWriter
	if a.effect != nil && a.effect.SlowBytes > 0 {
		slow, to = a.effect.SlowBytes, flushing{a.ResponseWriter}
	}
	err := wire.Slowly(to, b, slow, a.request.Context().Done())
	if err != nil {
		a.exchange.HungUp = true
	}
	return err
}

// finish sends the held bytes and records the exchange. Then it cuts the connection, if the fault does so or the target cut the response.
func (a *response) finish(panicked any) {
	a.disturbNextConnections()
	x := a.exchange
	var rewritten []byte
	if a.held != nil {
		document := a.document.Bytes()
		if p := a.earlierResponse(); p != nil && !a.proxy.api.StateOf(api.Decode(document)).Known {
			a.sendEarlier(p)
		}
		if a.earlier != nil {
			document = a.earlier.body
		}
		rewritten = a.proxy.sessions.shape(a.in).Rewrite(a.effect, document)
		if panicked == nil {
			_ = a.release(rewritten)
		}
	}
	cut := panicked != nil || a.lost || a.left >= 0 || a.status == 0
	if a.stream != nil {
		if panicked == nil {
			_ = a.stream.Flush()
		}
		x.Stream = a.stream.Part()
		cut = cut || x.Stream.Cut
	} else if panicked != nil && !a.lost && a.left < 0 || a.request.Context().Err() != nil && x.Status == 0 {
		x.HungUp = true // the client or the target hung up before the end of the response
	}
	_ = a.FlushError()
	a.body.end(a.proxy.api, x)
	if x.Status != 0 && x.Stream == nil {
		a.proxy.sessions.noteResponse(a.in, a.request, x, a.described, a.Header(), a.document.Bytes())
		if rewritten != nil {
			a.proxy.sessions.recordRewritten(a.in, x, a.effect, rewritten)
		}
		if p := a.earlier; p != nil {
			x.Status, x.RetryAfter, x.ETag, x.Location, x.Final = p.status, wire.RetryAfter(p.header["Retry-After"], time.Now()), "", "", nil
			wire.Show(x, x.Job, false)
		}
	}
	if a.left >= 0 && a.effect != nil && a.effect.Close == fault.CloseStall {
		x.HungUp = !wait(a.request.Context(), fault.MaxDelay)
	}
	x.End = time.Now().UTC()
	if !a.body.broken.Load() || x.Status != 0 { // skip a request with an incomplete body and no response: the target never got it
		a.proxy.sessions.record(a.in, x)
	}
	if panicked != nil && panicked != http.ErrAbortHandler { //nolint:errorlint // compares the panic value itself
		panic(panicked)
	}
	if cut {
		if c := connectionOf(a.request); c != nil && a.effect != nil && a.effect.Reset {
			wire.Reset(c.Conn)
		}
		panic(http.ErrAbortHandler)
	}
	if len(a.last) > 0 {
		_, _ = a.ResponseWriter.Write(a.last)
	}
}
