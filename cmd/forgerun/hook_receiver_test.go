package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
)

type receiver struct {
	t          *testing.T
	url        string
	documented *apitest.Document
	hook       subscription

	mu     sync.Mutex
	got    []received
	answer func(received, http.ResponseWriter, *http.Request)
	asked  []string // WebHook-Request-Origin headers of requests for consent
	opened int
}

type received struct {
	method, url string
	header      http.Header
	body        string
	nth         int // 1 for a new webhook-id, 2 for its first repetition
}

func (r received) request() *http.Request {
	return &http.Request{Method: r.method, Header: r.header, Body: io.NopCloser(strings.NewReader(r.body))}
}

func (r received) id() string    { return r.header.Get("Webhook-Id") }
func (r received) event() string { return r.header.Get("Ce-Type") }
func (r received) job() string   { return strings.TrimPrefix(r.header.Get("Ce-Subject"), "jobs/") }

func (r received) value(path string) any { return answer{body: r.body}.value(path) }

func (r received) captured() captured {
	return capture(&http.Request{Method: r.method, Header: r.header}, r.url, []byte(r.body))
}

func withStatus(status int) func(received, http.ResponseWriter, *http.Request) {
	return func(_ received, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// newReceiver starts a receiver. If `answer` is nil, the receiver responds with 204.
func newReceiver(t *testing.T, answer func(received, http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	if answer == nil {
		answer = withStatus(http.StatusNoContent)
	}
	r := &receiver{t: t, answer: answer, documented: documented(t)}
	server := httptest.NewUnstartedServer(r)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.mu.Lock()
			r.opened++
			r.mu.Unlock()
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodOptions {
		r.consent(w, request)
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender died, and will repeat the delivery
	}
	if !bytes.Contains(body, []byte(`"x_extension"`)) { // a fault profile adds x_extension, which the OpenAPI document forbids
		r.documented.CheckDelivery(r.t, request.Header, body)
	}
	d := received{method: request.Method, url: "http://" + request.Host + request.RequestURI, header: request.Header.Clone(),
		body: string(body), nth: 1}
	r.mu.Lock()
	for _, earlier := range r.got {
		if earlier.id() == d.id() {
			d.nth++
		}
	}
	r.got = append(r.got, d)
	answer := r.answer
	r.mu.Unlock()
	answer(d, w, request)
}

func (r *receiver) consent(w http.ResponseWriter, request *http.Request) {
	origin := request.Header.Get("WebHook-Request-Origin")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, origin)
	w.Header().Set("WebHook-Allowed-Origin", origin)
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) challenges() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

func (r *receiver) respondWith(answer func(received, http.ResponseWriter, *http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func (r *receiver) of(job string) []received {
	var found []received
	for _, d := range r.all() {
		if d.job() == job {
			found = append(found, d)
		}
	}
	return found
}

func (r *receiver) await(what string, like func(received) bool) (found received) {
	r.t.Helper()
	eventually(r.t, "delivery of "+what, func() bool {
		all := r.all()
		i := slices.IndexFunc(all, like)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// hold returns an `answer` for newReceiver. The `answer` waits until `release` is called or the sender gives up.
func hold() (answer func(received, http.ResponseWriter, *http.Request), release func()) {
	open := make(chan struct{})
	return func(_ received, w http.ResponseWriter, request *http.Request) {
		select {
		case <-open:
			w.WriteHeader(http.StatusNoContent)
		case <-request.Context().Done():
		}
	}, sync.OnceFunc(func() { close(open) })
}

// receive starts a receiver and subscribes it to `events`. An empty list means all events.
func (u *user) receive(api *proc, answer func(received, http.ResponseWriter, *http.Request), events ...string) *receiver {
	u.s.t.Helper()
	r := newReceiver(u.s.t, answer)
	r.hook = u.subscribe(api, r.url, events...)
	return r
}

type subscription struct{ id, secret string }

func (u *user) subscribe(api *proc, url string, events ...string) subscription {
	u.s.t.Helper()
	if len(events) == 0 {
		events = []string{"*"}
	}
	body, err := json.Marshal(map[string]any{"url": url, "events": events})
	require.NoError(u.s.t, err)
	a := u.expect(api, http.StatusCreated, "POST", "/v1/webhooks", string(body))
	w := subscription{a.text("webhook_id"), a.text("secret")}
	require.True(u.s.t, strings.HasPrefix(w.secret, "whsec_"), a.body)
	u.s.secret(w.secret, strings.TrimPrefix(w.secret, "whsec_"))
	return w
}

func (u *user) deliveries(api *proc, path, query string) []map[string]any {
	u.s.t.Helper()
	a := u.expect(api, http.StatusOK, "GET", path+"/deliveries"+query, "")
	return parsed[struct{ Data []map[string]any }](u.s.t, a.body).Data
}

func (s *stack) awaitDeliveries() {
	s.t.Helper()
	s.awaitCount("no delivery is pending", 0, `SELECT count(*) FROM deliveries WHERE state = 'PENDING'`)
}

func (s *stack) startDeliverer(environment ...env) *proc {
	s.t.Helper()
	p := s.start("deliverer", environment...)
	p.logged("delivering")
	return p
}

var hooks = env{
	"FORGERUN_WEBHOOK_BACKOFF_BASE": "50ms", "FORGERUN_WEBHOOK_BACKOFF_MAX": "400ms", "FORGERUN_WEBHOOK_MAX_RETRIES": "3",
	"FORGERUN_WEBHOOK_TIMEOUT": "5s",
}
