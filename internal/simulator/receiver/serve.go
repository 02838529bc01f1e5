package receiver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Answer is a receiver's answer to a message; 204 without a status.
type Answer = scenario.Answer

// ServeHTTP receives one message.
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
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); err != nil && !tooLong {
		panic(http.ErrAbortHandler) // the sender gave up, or was cut off
	}
	forbidden := "a message of more than 4 MiB"
	if err == nil {
		forbidden, err = r.verify(req.Context(), &m)
	}
	switch {
	case forbidden != "":
		r.options.History.Add(m.fact(history.Forbidden, http.StatusForbidden, forbidden))
		w.WriteHeader(http.StatusForbidden)
	case err != nil:
		r.answer(w, req, m, Answer{Status: http.StatusServiceUnavailable}, err.Error())
	default:
		r.answer(w, req, m, draw(r.options.Names[to.name], r.options.Seed, m.subject(), r.count(m.id())), "")
	}
}

// consent answers the handshake of "HTTP 1.1 Web Hooks for Event Delivery" (section 4): every origin may send, at any rate.
func consent(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Allow", "POST, OPTIONS")
	if origin := req.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusNoContent)
}

// find returns the receiver at an address. A proxy may have cut off the path of the public URL, so the last two segments count.
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

// draw picks an answer only by its arguments: a run with the same seed gets the same answers.
func draw(answers []Answer, seed uint64, subject string, try int) Answer {
	var sum scenario.Share
	for _, a := range answers {
		if try <= a.First {
			return a
		}
		sum += a.Share
	}
	if len(answers) == 0 {
		return Answer{}
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", seed, try, subject))
	at := sum * scenario.Share(binary.BigEndian.Uint64(hash[:])>>11) / (1 << 53) // from 0 to below sum
	for _, a := range answers {
		if at -= a.Share; at < 0 {
			return a
		}
	}
	return answers[len(answers)-1] // rounding, or no shares
}

// answer answers a message. It records the answer before sending it.
func (r *Receiver) answer(w http.ResponseWriter, req *http.Request, m message, a Answer, note string) {
	status := cmp.Or(a.Status, http.StatusNoContent)
	if a.Hang || a.Reset {
		status = 0 // the sender gets no answer
	}
	switch r.hold(req.Context(), a.After); {
	case r.closed.Err() != nil:
		status, note = 0, "the receiver was closed before it answered"
	case req.Context().Err() != nil:
		status, note = 0, "the sender gave up before it was answered"
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
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // a TCP reset
			_ = conn.Close()
		}
	default:
		if a.Hang {
			r.hold(req.Context(), math.MaxInt64)
		}
		panic(http.ErrAbortHandler) // ends the connection without an answer
	}
}

// hold waits for d, for the sender to give up, or for Close.
func (r *Receiver) hold(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-r.closed.Done():
	}
}
