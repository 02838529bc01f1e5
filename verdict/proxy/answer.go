package proxy

import (
	"bytes"
	"errors"
	"io"
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

// errEnded says that a fault has ended an answer.
var errEnded = errors.New("a fault has ended the answer")

// answer is an answer on its way to the client. It is disturbed, and looked into: JSON documents up to maxDocument, and event streams.
type answer struct {
	http.ResponseWriter
	proxy     *Proxy
	in        *session
	request   *http.Request
	exchange  *verdict.Exchange
	effect    *fault.Effect // nil: none
	described bool          // its operation is

	status   int
	document bytes.Buffer // what has come of a JSON document
	isJSON   bool         // it says so, or may be one: many servers do not say
	held     bool         // the document is sent at the end, rewritten
	lost     bool         // nothing is sent
	left     int          // bytes to send until the connection is cut; -1: all
	ended    bool         // what comes of connections is settled: see disconnect
	stream   *wire.Stream
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader takes the head of the answer.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK { // informational ones pass
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.disconnect()
	a.status = status
	h := a.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	said := kind == "application/json" || strings.HasSuffix(kind, "+json")
	a.isJSON = said || kind == "" || kind == "text/plain"
	a.exchange.Status, a.exchange.ETag, a.exchange.RetryAfter = status, redact.Keep(h.Get("ETag")), retryAfter(h, time.Now())
	e := a.effect
	if kind == eventStream && status == http.StatusOK && a.request.Method != http.MethodHead {
		a.begin()
	} else if e != nil {
		a.disturb(e, h, said)
	}
	if e != nil && e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	}
	if !a.lost && !a.held {
		a.ResponseWriter.WriteHeader(status)
	}
}

// disconnect does what the effect wants of new connections, before anything of the answer is sent.
func (a *answer) disconnect() {
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

// disturb decides what becomes of an answer that is no event stream.
func (a *answer) disturb(e *fault.Effect, h http.Header, isJSON bool) {
	switch {
	case e.Close == fault.AfterCommit:
		a.lost = true
	case e.Close == fault.CloseMidBody:
		a.left = 1
		if length, err := strconv.Atoi(h.Get("Content-Length")); err == nil {
			a.left = length / 2
		}
		a.lost = a.left == 0 || a.request.Method == http.MethodHead // an answer without a body has no middle
	}
	if isJSON && e.Rewrites() && !a.lost {
		a.held = true
		h.Del("Content-Length")
		h.Del("ETag") // it is another representation
		a.exchange.ETag = ""
	}
}

// begin begins an event stream: the record has its beginning, since it may last.
func (a *answer) begin() {
	x := a.exchange
	e := a.effect
	if e != nil {
		e = e.OnStream()
		x.Fault = e
		if !e.OfStreams() && !e.Rewrites() && e.SlowBytes == 0 {
			e = nil
		}
	}
	begun := *x
	begun.Stream, begun.End = &verdict.Part{Open: true}, time.Now().UTC()
	a.proxy.sessions.record(a.in, &begun)
	a.stream = &wire.Stream{
		To: flushing{a.ResponseWriter}, Effect: e, Resumed: x.LastEventID != "", Closed: a.request.Context().Done(),
		Note: func(data []byte) { a.proxy.sessions.heard(a.in, x, data) },
	}
}

// flushing sends what is written at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

// Write takes a part of the body.
func (a *answer) Write(b []byte) (int, error) {
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
	} else if a.isJSON { // too large to look into, or to rewrite
		a.isJSON = false
		if a.held {
			a.held = false
			a.ResponseWriter.WriteHeader(a.status)
			if err := a.send(a.document.Bytes()); err != nil {
				return 0, err
			}
		}
		a.document = bytes.Buffer{}
	}
	if a.lost || a.held {
		return len(b), nil
	}
	return len(b), a.send(b)
}

// send sends bytes of the body, slowly or until the cut if the effect says so.
func (a *answer) send(b []byte) error {
	if a.left >= 0 {
		b = b[:min(len(b), a.left)]
		a.left -= len(b)
	}
	slow := 0
	var to io.Writer = a.ResponseWriter
	if a.effect != nil && a.effect.SlowBytes > 0 {
		slow, to = a.effect.SlowBytes, flushing{a.ResponseWriter}
	}
	return wire.Slowly(to, b, slow)
}

// finish sends what was held, records the exchange, and cuts the connection if a fault says so or the answer was ended already.
func (a *answer) finish(panicked any) {
	a.disconnect()
	x := a.exchange
	cut := panicked != nil || a.lost || a.left >= 0
	if a.held && !cut {
		document := wire.Rewrite(a.effect, a.document.Bytes())
		a.ResponseWriter.WriteHeader(a.status)
		_ = a.send(document)
	}
	if a.stream != nil {
		if panicked == nil {
			_ = a.stream.Flush()
		}
		x.Stream = a.stream.Part()
		cut = cut || x.Stream.Cut
	} else if panicked != nil && !a.lost && a.left < 0 || a.request.Context().Err() != nil && x.Status == 0 {
		x.HungUp = true // or the target did: the client has not got the answer as a whole
	}
	x.End = time.Now().UTC()
	if x.Status != 0 && a.stream == nil {
		a.proxy.sessions.answered(a.in, a.request, x, a.described, a.Header(), api.Decode(a.document.Bytes()))
	}
	a.proxy.sessions.record(a.in, x)
	if panicked != nil && panicked != http.ErrAbortHandler { //nolint:errorlint // a value that was panicked with
		panic(panicked)
	}
	if cut {
		if !a.lost && (a.left >= 0 || x.Stream != nil) {
			_ = http.NewResponseController(a.ResponseWriter).Flush()
		}
		if c, ok := a.request.Context().Value(connKey{}).(*connection); ok && a.effect != nil && a.effect.Reset {
			wire.Reset(c.Conn)
		}
		panic(http.ErrAbortHandler)
	}
}

// heard notes what an event says of jobs.
func (s *sessions) heard(in *session, x *verdict.Exchange, data []byte) {
	document := api.Decode(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.open(in)
	if n == nil || document == nil {
		return
	}
	s.show(n, document, x)
	if state := s.api.StateOf(document); x.Job != "" && state.Known {
		wire.Show(x, x.Job, state.Final)
	}
	for _, job := range x.Final {
		if j := n.jobs[job]; j != nil {
			j.became(api.State{Known: true, Final: true, Name: "final"}, time.Now())
		}
	}
}

// readUpTo reads at most so many bytes; what cannot be read is as if it were not there.
func readUpTo(r io.Reader, most int64) []byte {
	b, _ := io.ReadAll(io.LimitReader(r, most))
	return b
}

func itoa(n int) string { return strconv.Itoa(n) }
