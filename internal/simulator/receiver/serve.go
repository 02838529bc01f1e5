package receiver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
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

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Answer is a receiver's response to a message. Status 0 means 204.
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
		handshake(w, req)
		return
	}
	m := message{at: time.Now().UTC(), to: to, url: r.URL(to.tenant, to.name), method: req.Method, header: req.Header}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(readTimeout))
	var err error
	m.body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	_ = conn.SetReadDeadline(time.Time{}) // no deadline while the response is delayed
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
		r.respond(w, req, m, Answer{Status: http.StatusServiceUnavailable}, err.Error())
	default:
		r.respond(w, req, m, draw(r.options.Names[to.name], r.options.Seed, m.subject(), r.count(m.id())), "")
	}
}

// handshake lets every origin send any number of messages ("HTTP 1.1 Web Hooks for Event Delivery", section 4).
func handshake(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Allow", "POST, OPTIONS")
	if origin := req.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.WriteHeader(http.StatusNoContent)
}

// find returns the tenant and the name in the last two path segments of a URL. It ignores other segments, because a proxy may have removed
// them.
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

// draw chooses a response. The choice depends only on the arguments, so runs with the same seed get the same responses.
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
	at := sum * scenario.Share(binary.BigEndian.Uint64(hash[:])>>11) / (1 << 53) // a number in [0, sum), derived from the hash
	for _, a := range answers {
		if at -= a.Share; at < 0 {
			return a
		}
	}
	return answers[len(answers)-1] // only reached if all shares are 0, or after a rounding error
}

// respond waits for the delay of the response, records the message, and then sends the response.
func (r *Receiver) respond(w http.ResponseWriter, req *http.Request, m message, a Answer, note string) {
	status := cmp.Or(a.Status, http.StatusNoContent)
	if a.Hang || a.Reset {
		status = 0
	}
	switch r.hold(req.Context(), a.After); {
	case r.closed.Err() != nil:
		status, note = 0, "the receiver was closed before it responded"
	case req.Context().Err() != nil:
		status, note = 0, "the sender gave up before it got a response"
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
			_ = conn.(*net.TCPConn).SetLinger(0) // makes Close send a TCP reset
			_ = conn.Close()
		}
	default:
		if a.Hang {
			r.hold(req.Context(), math.MaxInt64)
		}
		panic(http.ErrAbortHandler) // ends the connection without a response
	}
}

func (r *Receiver) hold(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-r.closed.Done():
	}
}

type message struct {
	at     time.Time
	to     address
	url    string // registered URL of the receiver
	method string
	header http.Header
	body   []byte

	// verify sets these fields. After a failed check, some of them may be empty.
	webhook string // id of the webhook; "" for a callback
	event   client.WebhookMessage
	data    client.Outcome // the event's data, read as an outcome
}

// verify returns the reason to reject the message, or "" if it is valid. If the service's public keys cannot be read, verify returns an
// error.
func (r *Receiver) verify(ctx context.Context, m *message) (forbidden string, err error) {
	id, secret := r.registered(ctx, m.to)
	m.webhook = id
	if err := m.read(); err != nil { // m keeps the fields that could be read, for the history
		return fmt.Sprintf("a message that cannot be read: %s", clip(err.Error())), nil
	}
	check := func(v client.Verifier) error {
		_, err := v.Verify(&http.Request{Method: m.method, Header: m.header, Body: io.NopCloser(bytes.NewReader(m.body))})
		return err
	}
	if id != "" {
		if err := check(client.Verifier{Secret: secret}); err != nil {
			return fmt.Sprintf("a message without a valid signature by the webhook's secret: %s", clip(err.Error())), nil
		}
	}
	switch err := check(client.Verifier{Keys: r.options.Keys, URL: m.url}); {
	case errors.Is(err, client.ErrSignature):
		return fmt.Sprintf("a message without a valid signature by a published key: %s", clip(err.Error())), nil
	case err != nil:
		return "", fmt.Errorf("not verified: %w", err)
	}
	// The body and the CloudEvents subject must name the same job or batch.
	if id := m.subjectID("jobs") + m.subjectID("batches"); id != m.data.JobID {
		return fmt.Sprintf("a message of job %s with the subject %s", orNone(m.data.JobID), orNone(m.event.Subject)), nil
	}
	return "", nil
}

func (m *message) read() error {
	event, err := client.ParseDelivery(m.header, m.body)
	if err != nil {
		return err
	}
	m.event = *event
	return json.Unmarshal(event.Data, &m.data)
}

func (m *message) id() string { return m.header.Get("Webhook-Id") }

func (m *message) subjectID(kind string) string {
	if is, id, _ := strings.Cut(m.event.Subject, "/"); is == kind {
		return id
	}
	return ""
}

// ticket returns the number in a correlation id of the form "{run}.{number}", or 0.
func (m *message) ticket() int64 {
	_, number, _ := strings.Cut(m.data.CorrelationID, ".")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// subject identifies the message for draw. It prefers the ticket to the message id, because runs with the same seed have the same tickets
// but different message ids.
func (m *message) subject() string {
	if n := m.ticket(); n > 0 {
		return fmt.Sprintf("%s/%d/%s/%d", m.to.name, n, m.event.Name, m.event.Sequence)
	}
	return m.id()
}

// The status 0 means that the receiver did not respond.
func (m *message) fact(kind history.Kind, status int, note string) history.Fact {
	e := m.event
	scenario := history.ScenarioOf(m.data.Scenario)
	scenario.WorkKind, scenario.ExpectedOutcome = clip(scenario.WorkKind), clip(scenario.ExpectedOutcome)
	digest := sha256.Sum256(m.body)
	return history.Fact{
		At: m.at, Kind: kind, Tenant: m.to.tenant, Ticket: m.ticket(), Job: clip(m.subjectID("jobs")), Note: note,
		Delivery: &history.Delivery{
			ID: clip(m.id()), Webhook: m.webhook, Receiver: m.to.name, URL: m.url,
			EventID: clip(e.EventID), EventName: clip(e.Name), Seq: e.Sequence, Status: status, Body: hex.EncodeToString(digest[:]),
			JobStatus: clip(m.data.JobStatus), Emitted: clip(history.EmissionOf(m.data.Emitted)), Scenario: scenario, WorkKind: clip(e.WorkKind),
		},
	}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return fmt.Sprintf("%q", clip(s))
}
