package receiver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// ServeHTTP receives one try.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	if r.closed.Err() != nil {
		r.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	r.active.Add(1)
	r.mu.Unlock()
	defer r.active.Done()
	to, ok := r.find(req.URL)
	if !ok {
		http.NotFound(w, req)
		return
	}
	if req.Method == http.MethodOptions {
		consent(w, req)
		return
	}
	m := message{at: time.Now().UTC(), to: to, url: r.URL(to.tenant, to.name), method: req.Method, header: req.Header}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(readTimeout))
	var err error
	m.body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	_ = conn.SetReadDeadline(time.Time{}) // the answer may take longer
	if err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			r.refuse(w, m, "a message of more than 4 MiB")
			return
		}
		panic(http.ErrAbortHandler) // the sender gave up, or was cut off
	}
	switch forbidden, err := r.verify(req.Context(), &m); {
	case err != nil:
		r.answer(w, req, m, Answer{Status: http.StatusServiceUnavailable}, err.Error())
	case forbidden != "":
		r.refuse(w, m, forbidden)
	default:
		r.answer(w, req, m, draw(r.options.Names[to.name], r.options.Seed, m.subject(), r.tries.add(m.id())), "")
	}
}

// consent answers the handshake of "HTTP 1.1 Web Hooks for Event Delivery"
// (section 4): every origin may send, at any rate. It is no message.
func consent(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Allow", "POST, OPTIONS")
	if origin := req.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusNoContent)
}

// find gives the receiver at an address. A proxy in front may have cut off the
// path of the public URL, or not: the last two segments count.
func (r *Receiver) find(u *url.URL) (address, bool) {
	segments := strings.Split(u.EscapedPath(), "/")
	if len(segments) < 3 {
		return address{}, false
	}
	last := segments[len(segments)-2:]
	tenant, err := strconv.Atoi(last[0])
	name, wrong := url.PathUnescape(last[1])
	_, known := r.options.Names[name]
	return address{tenant, name}, err == nil && wrong == nil && tenant >= 0 && known
}

// answer gives a message its answer, which is in the history before the sender has it.
func (r *Receiver) answer(w http.ResponseWriter, req *http.Request, m message, a Answer, note string) {
	status := shown(a)
	if why := r.hold(req.Context(), a.After); why != "" {
		status, note = 0, why
	}
	f := m.fact(history.Received, status, note)
	f.Delivery.After = a.After
	r.options.History.Add(f)
	if r.options.Delivered != nil {
		r.options.Delivered(status/100 == 2)
	}
	switch {
	case status > 0:
		w.WriteHeader(status)
	case a.Reset:
		reset(w)
	default:
		if a.Hang {
			r.hold(req.Context(), forever)
		}
		panic(http.ErrAbortHandler) // ends the connection without an answer
	}
}

// refuse keeps a message that must not be sent.
func (r *Receiver) refuse(w http.ResponseWriter, m message, what string) {
	r.options.History.Add(m.fact(history.Forbidden, http.StatusForbidden, what))
	w.WriteHeader(http.StatusForbidden)
}

const forever = 1<<63 - 1

// hold waits for d, and says why if the answer is of no use any more.
func (r *Receiver) hold(ctx context.Context, d time.Duration) (over string) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.closed.Done():
	}
	switch {
	case r.closed.Err() != nil:
		return "the receiver was closed before it answered"
	case ctx.Err() != nil:
		return "the sender gave up before it was answered"
	}
	return ""
}

// reset ends the connection so that the sender gets a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
