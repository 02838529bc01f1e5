package handlers

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

const (
	publicURL = "https://forgerun.example"
	goodKey   = backend.GoodKey
	otherKey  = backend.OtherKey
	adminKey  = backend.AdminToken
)

const (
	headerFault   = "ForgeRun-Fault"
	headerSession = "ForgeRun-Session"
	sessionsPath  = "/v1/testbed/sessions"
	faultsPath    = "/v1/testbed/faults"
	clockPath     = "/v1/testbed/clock"
)

var (
	jobSelf      = backend.Path("/v1/jobs/:id")
	batchSelf    = backend.Path("/v1/batches/:id")
	webhookSelf  = backend.Path("/v1/webhooks/:id")
	scheduleSelf = backend.Path("/v1/schedules/:id")
	failedSelf   = "/v1/jobs/" + backend.FailedJob.String()
	queuedSelf   = "/v1/jobs/" + backend.QueuedJob.String()
	nobodysSelf  = "/v1/jobs/01890000-0000-7000-8000-0000000000ff"
)

// now is the time of requests, and of the rows that package backend creates.
var now = time.Date(2030, 1, 31, 12, 0, 0, 123456000, time.UTC)

func at(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }

type world struct {
	t testing.TB
	*backend.Service
	server   *Server
	limits   *fakeLimiter
	log      *testkit.Output // log of the server; Service.Log is the log of the use cases
	document *apitest.Document
	registry *prometheus.Registry
	dirty    bool // true after requests that may have changed the database

	url    string     // set by start
	served chan error // receives the result of Serve, and is then closed

	// madeUp disables the check against the OpenAPI document. Tests set it before responses that the document does not describe.
	madeUp bool
}

var allowed = job.Allowance{OK: true, Policy: "minute", Limit: 6000, Remaining: 5999, Reset: 10 * time.Millisecond}

func newWorld(t testing.TB, change ...func(*Config, *Deps)) *world {
	t.Helper()
	return newWorldOn(t, backend.New(t), change...)
}

func newWorldOn(t testing.TB, s *backend.Service, change ...func(*Config, *Deps)) *world {
	t.Helper()
	s.Seed()
	w := &world{
		t: t, Service: s, limits: &fakeLimiter{answer: allowed}, log: &testkit.Output{}, registry: prometheus.NewRegistry(),
		document: apitest.New(t, docs.OpenAPI),
	}
	cfg, deps := w.settings(change...)
	w.server = New(cfg, deps)
	return w
}

func (w *world) settings(change ...func(*Config, *Deps)) (Config, Deps) {
	cfg := Config{PublicURL: publicURL}
	deps := Deps{
		Deps: httpkit.Deps{
			Keys: w.Clients, Idempotency: w.Once, Limiter: w.limits, Named: w.Clients.Named,
			CursorKey: func(context.Context) ([]byte, error) { return []byte("a secret of 32 bytes for cursors"), nil },
			Logger:    slog.New(slog.NewJSONHandler(w.log, nil)), Registry: w.registry, Clock: func() time.Time { return now },
		},
		Jobs: w.Jobs, Events: w.Hub, Webhooks: w.Webhooks, Bulk: w.Bulk, Schedules: w.Schedules, Testbed: w.Testbed,
		Directory: func(context.Context) ([]byte, error) { return []byte(keyDirectory), nil },
		Health: func(context.Context) site.Readiness {
			return site.Readiness{OK: true, Status: "ok", Checks: map[string]string{"postgres": "ok"}}
		},
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	return cfg, deps
}

func newKit(t testing.TB, do httpkit.Handler, change ...func(*Config, *Deps)) *world {
	t.Helper()
	w := newWorld(t)
	w.madeUp, w.registry = true, prometheus.NewRegistry()
	cfg, deps := w.settings(change...)
	kit := httpkit.New(cfg, deps.Deps)
	kit.Register([]httpkit.Route{
		httpkit.Row(httpkit.Post, "/v1/jobs", httpkit.ClientKey, "submit", 202, do),
		httpkit.Row(httpkit.Get, "/v1/jobs/:id", httpkit.ClientKey, "get", 200, do),
	})
	w.server = &Server{Kit: kit}
	return w
}

type fakeLimiter struct {
	answer   job.Allowance
	maxItems int
}

func (f *fakeLimiter) Allow(context.Context, job.ID) job.Allowance { return f.answer }

func (f *fakeLimiter) AllowItems(_ context.Context, _ job.ID, items int) job.Allowance {
	if f.maxItems > 0 && items > f.maxItems {
		return job.Allowance{Policy: "minute", Limit: f.maxItems, RetryAfter: 90 * time.Second}
	}
	return job.Allowance{OK: true}
}

const keyDirectory = `{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig",` +
	`"kid":"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`

func (w *world) start() *world {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.url, w.served = "http://"+l.Addr().String(), make(chan error, 1)
	go func() {
		w.served <- w.server.Serve(l)
		close(w.served)
	}()
	w.t.Cleanup(func() {
		w.shutdown()
		require.NoError(w.t, <-w.served)
	})
	return w
}

func (w *world) shutdown() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	require.NoError(w.t, w.server.Shutdown(ctx))
}

type reply struct {
	*http.Response
	text string
}

func (a *reply) json(t testing.TB, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), into), a.text)
}

func (a *reply) field(t testing.TB, name string) string {
	t.Helper()
	var all map[string]any
	a.json(t, &all)
	text, ok := all[name].(string)
	require.True(t, ok, a.text)
	return text
}

func (a *reply) problem(t testing.TB) (p problem.Document) {
	t.Helper()
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), a.text)
	a.json(t, &p)
	require.Equal(t, a.StatusCode, p.Status)
	require.Equal(t, "urn:uuid:"+a.Header.Get("X-Request-Id"), p.Instance)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.Title)
	require.True(t, strings.HasPrefix(p.Type, publicURL+"/problems/"), p.Type)
	return p
}

func (a *reply) requireStatus(t testing.TB, status int) *reply {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.text)
	return a
}

func (a *reply) requireProblem(t testing.TB, code job.Code) problem.Document {
	t.Helper()
	p := a.problem(t)
	require.Equal(t, code, p.Code, a.text)
	require.Equal(t, code.Spec().Status, p.Status, a.text)
	require.Equal(t, publicURL+"/problems/"+code.Spec().Slug, p.Type)
	return p
}

// operatorsPath is the suffix of paths that only accept the operator's token.
const operatorsPath = "/jobs/cancel"

// send handles a request without a network. `headers` alternates names and values. By default it sends a valid key, and application/json as
// the type of a body. For operatorsPath it sends the operator's token. The value "-" removes a header. A repeated name adds another header
// line.
func (w *world) send(method, path, body string, headers ...string) *reply {
	w.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://forgerun.test"+path, reader)
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+goodKey)
	if strings.HasSuffix(r.URL.Path, operatorsPath) {
		r.Header.Set("Authorization", "Bearer "+adminKey)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	given := map[string]bool{}
	for i := 0; i < len(headers); i += 2 {
		if !given[headers[i]] {
			r.Header.Del(headers[i])
		}
		if given[headers[i]] = true; headers[i+1] != "-" {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	res, err := w.server.Test(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	if !w.madeUp {
		w.document.Check(w.t, r, res, text)
	}
	if res.StatusCode < 300 && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions {
		w.dirty = true
	}
	return &reply{res, string(text)}
}

func (w *world) freshen() {
	w.t.Helper()
	if w.dirty {
		w.Seed()
		w.dirty = false
	}
}

func (w *world) inBackground(method, path, body string, headers ...string) chan *reply {
	answers := make(chan *reply, 1)
	go func() { answers <- w.send(method, path, body, headers...) }()
	return answers
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testkit.Patience):
		require.FailNow(t, "timed out")
		panic("unreachable")
	}
}
