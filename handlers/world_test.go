package handlers

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

const publicURL = "https://forgerun.example"

// Names of the test bed on the wire.
const (
	headerFault   = "ForgeRun-Fault"
	headerSession = "ForgeRun-Session"
	sessionsPath  = "/v1/testbed/sessions"
	faultsPath    = "/v1/testbed/faults"
	clockPath     = "/v1/testbed/clock"
)

// world is a server with its fakes.
type world struct {
	t         testing.TB
	server    *Server
	lookups   *lookups
	jobs      *fakeJobs
	batches   *fakeBatches
	events    *fakeEvents
	clients   *fakeClients
	webhooks  *fakeWebhooks
	bulk      *fakeBulk
	schedules *fakeSchedules
	testbed   *fakeTestbed
	once      *fakeOnce
	log       *testkit.Output
	document  *apitest.Document // that answers are held against
	registry  *prometheus.Registry

	url    string     // once started
	served chan error // what Serve returned, and then nothing more

	// madeUp says that the fakes do what no use case does, so that answers are
	// not held against the OpenAPI document.
	madeUp bool
}

// allowed is what a client gets that asks for little.
var allowed = job.Allowance{OK: true, Policy: "minute", Limit: 6000, Remaining: 5999, Reset: 10 * time.Millisecond}

func newWorld(t testing.TB, change ...func(*Config, *Deps)) *world {
	t.Helper()
	l := &lookups{}
	w := &world{
		t: t, lookups: l, jobs: &fakeJobs{lookups: l, changed: make(chan chan struct{})}, batches: &fakeBatches{lookups: l},
		clients: &fakeClients{}, log: &testkit.Output{}, registry: prometheus.NewRegistry(), bulk: &fakeBulk{lookups: l},
		schedules: &fakeSchedules{lookups: l}, testbed: &fakeTestbed{}, once: &fakeOnce{known: map[onceKey]onceAnswer{}},
		document: apitest.New(t, docs.OpenAPI),
	}
	w.webhooks, w.events = &fakeWebhooks{lookups: l, jobs: w.jobs}, &fakeEvents{jobs: w.jobs}
	cfg := Config{PublicURL: publicURL}
	deps := Deps{
		Deps: httpkit.Deps{
			Idempotency: w.once, Limiter: fakeLimiter{answer: allowed},
			CursorKey: func(context.Context) ([]byte, error) { return []byte("a secret of 32 bytes for cursors"), nil },
			Logger:    slog.New(slog.NewJSONHandler(w.log, nil)), Registry: w.registry, Clock: func() time.Time { return now },
		},
		Jobs: w.jobs, Reader: w.jobs, Batches: w.batches, Events: w.events, Clients: w.clients, Webhooks: w.webhooks,
		Proofs: w.webhooks, Bulk: w.bulk, Schedules: w.schedules, Testbed: w.testbed, Deliveries: w.webhooks,
		Directory: func(context.Context) ([]byte, error) { return []byte(keyDirectory), nil },
		Health:    fakeHealth{site.Readiness{OK: true, Status: "ok", Checks: map[string]string{"postgres": "ok"}}},
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	w.server = New(cfg, deps)
	return w
}

// full makes everything exist that routes ask for.
func (w *world) full() *world {
	w.jobs.job, w.jobs.report, w.jobs.attempts, w.jobs.result = finishedJob, finishedReport, finishedAttempts, storedResult
	w.jobs.remove = func(context.Context, job.ID, job.ID) (struct{}, error) { return struct{}{}, nil }
	w.jobs.change = func(_ context.Context, _, id job.ID) (job.Change, error) {
		return job.Change{JobID: id, State: job.Canceled, Attempt: 1, UpdatedAt: now}, nil
	}
	w.batches.batch, w.bulk.bulk, w.testbed.known, w.schedules.find, w.webhooks.find = openBatch, aBulk, jobID, aSchedule, anyWebhook
	w.jobs.list = func(ctx context.Context, client job.ID, _ job.Query) (job.Page, error) {
		j, err := finishedJob(ctx, client, jobID)
		return job.Page{Jobs: []*job.Job{j}, Next: nextID}, err
	}
	w.events.feed = []job.Occurrence{{
		Event: job.Event{ID: eventID, JobID: jobID, Seq: 1, Name: job.EventCreated, Next: job.Created, Attempt: 1, At: now,
			Data: []byte(`{}`)},
		Position: job.Position{Tx: 5, ID: eventID},
	}}
	w.webhooks.page = job.DeliveryPage{Deliveries: []job.Delivery{*aDelivery(), aCallback}, Next: nextID}
	w.webhooks.attempts = deliveryAttempts
	return w
}

// start serves on a loopback port until the test ends.
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

// shutdown may come twice.
func (w *world) shutdown() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	require.NoError(w.t, w.server.Shutdown(ctx))
}

// answer is a response that was read.
type answer struct {
	*http.Response
	text string
}

// json reads the body into a value.
func (a *answer) json(t testing.TB, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.text), into), a.text)
}

func (a *answer) problem(t testing.TB) (p problem.Document) {
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

// requireProblem checks that the answer is the problem of the code.
func (a *answer) requireProblem(t testing.TB, code job.Code) problem.Document {
	t.Helper()
	p := a.problem(t)
	require.Equal(t, code, p.Code, a.text)
	require.Equal(t, code.Spec().Status, p.Status, a.text)
	require.Equal(t, publicURL+"/problems/"+code.Spec().Slug, p.Type)
	return p
}

// operatorsPath is how the paths end that take the operator's token alone.
const operatorsPath = "/jobs/cancel"

// send sends a request without a network. headers are name, value, ...; by
// default a good key, or where only that is taken the operator's token, and, with a body, its media type are sent; "-" as a value
// takes a header away, and a name that comes again gets one more line.
func (w *world) send(method, path, body string, headers ...string) *answer {
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
	return &answer{res, string(text)}
}

// inBackground sends a request and gives its answer later.
func (w *world) inBackground(method, path, body string, headers ...string) chan *answer {
	answers := make(chan *answer, 1)
	go func() { answers <- w.send(method, path, body, headers...) }()
	return answers
}

// within receives, and gives up on what does not come.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testkit.Patience):
		require.FailNow(t, "it did not come in time")
		panic("unreachable")
	}
}
