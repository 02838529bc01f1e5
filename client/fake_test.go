package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
)

type clock struct {
	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, wait time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, wait)
	c.now = c.now.Add(wait)
	return ctx.Err()
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clock) slept() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Duration(nil), c.waits...)
}

// If cut is set, the connection closes before the end of the response.
type reply struct {
	status int
	kind   string
	header map[string]string
	body   string
	took   time.Duration
	cut    bool
}

func ok(body string) reply { return reply{status: http.StatusOK, kind: jsonType, body: body} }

var anything = ok(`{"job_id":"j","batch_id":"b","bulk_id":"u","schedule_id":"s","webhook_id":"w","delivery_id":"d","client_id":"c",
	"key_id":"k","session_id":"s",
	"state":"QUEUED","status":"ok","revoked":true,"deleted":true,"data":[],"keys":[]}`)

func problem(status int, code string) reply {
	return reply{status: status, kind: problemType, body: `{"type":"https://forgerun.example/problems/x","title":"T","detail":"D","status":` +
		"999" + `,"code":"` + code + `","more":[1]}`}
}

func (r reply) with(name, value string) reply {
	header := map[string]string{name: value}
	for n, v := range r.header {
		header[n] = v
	}
	r.header = header
	return r
}

type sent struct {
	method, path, query, body string
	header                    http.Header
}

type service struct {
	url   string
	clock *clock
	c     *client.Client

	mu      sync.Mutex
	replies []reply
	got     []sent
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got = append(s.got, sent{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header.Clone()})
	answer := s.replies[min(len(s.got), len(s.replies))-1]
	s.mu.Unlock()
	s.clock.pass(answer.took)
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	if answer.kind != "" {
		w.Header().Set("Content-Type", answer.kind)
	}
	if answer.cut {
		panic(http.ErrAbortHandler)
	}
	empty := strings.HasPrefix(r.URL.Path, "/v1/jobs/") || strings.HasPrefix(r.URL.Path, "/v1/schedules/")
	if r.Method == http.MethodDelete && empty && answer.status == http.StatusOK {
		answer.status = http.StatusNoContent // the service sends 204 only for these deletions
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write([]byte(answer.body))
}

func (s *service) requests() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.got...)
}

func serve(t *testing.T, replies ...reply) *service {
	t.Helper()
	return serveWith(t, client.Config{}, replies...)
}

func serveWith(t *testing.T, cfg client.Config, replies ...reply) *service {
	t.Helper()
	s := &service{replies: replies, clock: newClock()}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	cfg.URL, cfg.Key, cfg.Now, cfg.Sleep = server.URL, "frk_id_secret", s.clock.Now, s.clock.Sleep
	if cfg.HTTP == nil {
		cfg.HTTP = server.Client()
	}
	cfg.Rand = func() float64 { return 0 }
	c := must(client.New(cfg))(t)
	s.c = c
	return s
}

const accepted = `{"job_id":"j1","state":"QUEUED","created_at":"2030-01-31T12:00:00.000000Z"}`

func acceptedReply() reply { return reply{status: http.StatusAccepted, kind: jsonType, body: accepted} }

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
