package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

const (
	goodKey   = "frk_good_key"
	otherKey  = "frk_other_key"
	adminKey  = "admin-token"
	publicURL = "https://forgerun.example"
)

var (
	clientA    = mustID("00000000-0000-4000-8000-00000000000a")
	clientB    = mustID("00000000-0000-4000-8000-00000000000b")
	jobID      = mustID("01890000-0000-7000-8000-000000000001")
	batchID    = mustID("01890000-0000-7000-8000-0000000000ba")
	webhookID  = mustID("01890000-0000-7000-8000-0000000000c1")
	deliveryID = mustID("01890000-0000-7000-8000-0000000000d1")
	now        = time.Date(2030, 1, 31, 12, 0, 0, 123456000, time.UTC)
)

func mustID(s string) job.ID {
	id, err := job.ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// fakeJobs answers with what its functions say, as Jobs and as Reader; nil ones
// say "not found", except for submit and list.
type fakeJobs struct {
	submit   func(context.Context, job.Request) (job.Receipt, error)
	change   func(ctx context.Context, client, id job.ID) (job.Change, error) // cancel and retry
	remove   func(ctx context.Context, client, id job.ID) error
	job      func(ctx context.Context, client, id job.ID) (*job.Job, error)
	report   func(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)
	attempts func(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error)
	result   func(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
	list     func(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
	await    func(ctx context.Context, done func(*job.Job) bool) (*job.Job, error) // nil: reads job with each change
	changed  chan chan struct{}                                                    // by wake
}

var errNoJob = job.Errorf(job.CodeJobNotFound, "There is no such job.")

func (f *fakeJobs) Submit(ctx context.Context, r job.Request) (job.Receipt, error) {
	if f.submit != nil {
		return f.submit(ctx, r)
	}
	if len(r.Violations) > 0 {
		return job.Receipt{}, r.Refusal(r.Violations)
	}
	return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
}

func (f *fakeJobs) Cancel(ctx context.Context, client, id job.ID) (job.Change, error) {
	if f.change == nil {
		return job.Change{}, errNoJob
	}
	return f.change(ctx, client, id)
}

func (f *fakeJobs) Retry(ctx context.Context, client, id job.ID) (job.Change, error) {
	return f.Cancel(ctx, client, id)
}

func (f *fakeJobs) Delete(ctx context.Context, client, id job.ID) error {
	if f.remove == nil {
		return errNoJob
	}
	return f.remove(ctx, client, id)
}

func (f *fakeJobs) CancelClient(_ context.Context, client job.ID) (int, bool, error) {
	return 3, client == clientA, nil
}

func (f *fakeJobs) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	if f.job == nil {
		return nil, errNoJob
	}
	return f.job(ctx, client, id)
}

func (f *fakeJobs) Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	if f.await != nil {
		return f.await(ctx, done)
	}
	var looked chan struct{} // whom to tell that the job was read
	for {
		j, err := f.Job(ctx, client, id)
		ended := err != nil || done(j)
		if looked != nil {
			close(looked)
		}
		if ended {
			return j, err
		}
		select {
		case looked = <-f.changed:
		case <-ctx.Done():
			return j, nil
		}
	}
}

// wake makes whoever waits for a job read it again. It returns when that is
// done, or when nobody has waited for long.
func (f *fakeJobs) wake(t *testing.T) {
	t.Helper()
	looked := make(chan struct{})
	select {
	case f.changed <- looked:
		<-looked
	case <-time.After(streamPatience):
		require.FailNow(t, "nobody waits")
	}
}

func (f *fakeJobs) Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
	if f.report == nil {
		return nil, errNoJob
	}
	return f.report(ctx, client, id, attempt)
}

func (f *fakeJobs) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	if f.attempts == nil {
		return job.Origin{}, nil, errNoJob
	}
	return f.attempts(ctx, client, id)
}

func (f *fakeJobs) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	if f.result == nil {
		return nil, errNoJob
	}
	return f.result(ctx, client, id)
}

func (f *fakeJobs) List(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	if f.list == nil {
		return job.Page{}, nil
	}
	return f.list(ctx, client, q)
}

// fakeBatches answers with what its functions say; nil ones say "not found",
// except for submit.
type fakeBatches struct {
	submit func(context.Context, job.BatchRequest) (*job.Batch, bool, error)
	batch  func(ctx context.Context, client, id job.ID) (*job.Batch, error) // read and cancel
}

func (f *fakeBatches) SubmitBatch(ctx context.Context, r job.BatchRequest) (*job.Batch, bool, error) {
	if f.submit == nil {
		return &job.Batch{ID: batchID, ClientID: r.ClientID, CreatedAt: now}, false, nil
	}
	return f.submit(ctx, r)
}

func (f *fakeBatches) Batch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	if f.batch == nil {
		return nil, job.Errorf(job.CodeBatchNotFound, "There is no such batch.")
	}
	return f.batch(ctx, client, id)
}

func (f *fakeBatches) CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	return f.Batch(ctx, client, id)
}

// noEvents is a client whose jobs have no events.
type noEvents struct{ jobs *fakeJobs }

func (f noEvents) JobEvents(ctx context.Context, client, id job.ID, _, _ int) (job.Log, error) {
	_, err := f.jobs.Job(ctx, client, id)
	return job.Log{}, err
}

func (noEvents) ClientEvents(context.Context, job.ID, job.Position, int) (job.Feed, error) {
	return job.Feed{}, nil
}

func (noEvents) FeedEnd(context.Context) (job.Position, error) { return job.Position{Tx: 1}, nil }

func (noEvents) Watch(_, _ job.ID) (notifications <-chan job.Notification, stop func()) {
	return nil, func() {}
}

// fakeClients knows three credentials, and records what it was asked.
type fakeClients struct {
	err error // of everything but Authenticate, if set

	mu     sync.Mutex
	closed error // to who has no credentials
	caller job.Caller
	client job.ID
	rotate bool
	keyID  string
}

func (f *fakeClients) Authenticate(_ context.Context, bearer string) (job.Caller, error) {
	if len(bearer) > maxTokenBytes {
		return job.Caller{}, errors.New("nobody should look at this")
	}
	switch bearer {
	case "":
		return job.Caller{}, f.closed
	case goodKey:
		return job.Caller{ClientID: clientA, KeyID: "good", Scope: job.ScopeAll}, nil
	case "read", "submit":
		return job.Caller{ClientID: clientA, KeyID: bearer, Scope: job.Scope(bearer)}, nil
	case otherKey:
		return job.Caller{ClientID: clientB, KeyID: "other", Scope: job.ScopeAll}, nil
	case adminKey:
		return job.Caller{Admin: true, Operator: "ann"}, nil
	case "renewable":
		return job.Caller{ClientID: clientA, KeyID: "old", Scope: job.ScopeAll, Expired: true},
			job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case "expired":
		return job.Caller{}, job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case "revoked":
		return job.Caller{ClientID: clientB, KeyID: "revoked-key"}, job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
	}
	return job.Caller{}, job.Errorf(job.CodeInvalidCredentials, "The key is not known.")
}

func (f *fakeClients) note(caller job.Caller, client job.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller, f.client = caller, client
	if f.err == nil && client == nobody {
		return job.Errorf(job.CodeClientNotFound, "There is no such client.")
	}
	return f.err
}

func (f *fakeClients) CreateClient(_ context.Context, caller job.Caller) (job.Client, error) {
	return job.Client{ID: clientA, CreatedAt: now}, f.note(caller, job.ID{})
}

func (f *fakeClients) CreateKey(_ context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	f.mu.Lock()
	f.rotate = rotate
	f.mu.Unlock()
	key := issued("frk_secret")
	key.Scope = scope
	return key, f.note(caller, client)
}

func (f *fakeClients) RenewKey(_ context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	return issued(""), f.note(caller, client)
}

func (f *fakeClients) RevokeKey(_ context.Context, caller job.Caller, client job.ID, keyID string) error {
	f.mu.Lock()
	f.keyID = keyID
	f.mu.Unlock()
	return f.note(caller, client)
}

func issued(secret string) job.IssuedKey {
	return job.IssuedKey{
		APIKey: job.APIKey{ID: "abc", Scope: job.ScopeAll, ClientID: clientA, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}, Secret: secret,
	}
}

type fakeLimiter struct {
	answer   job.Allowance
	maxItems int // of a batch; 0: any number
}

func (f fakeLimiter) Allow(context.Context, job.ID) job.Allowance { return f.answer }

func (f fakeLimiter) AllowItems(_ context.Context, _ job.ID, items int) job.Allowance {
	if f.maxItems > 0 && items > f.maxItems {
		return job.Allowance{Policy: "minute", Limit: f.maxItems, RetryAfter: 90 * time.Second}
	}
	return job.Allowance{OK: true}
}

type fakeHealth struct{ answer Readiness }

func (f fakeHealth) Ready(context.Context) Readiness { return f.answer }

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// world is a server with its fakes.
type world struct {
	t         testing.TB
	server    *Server
	jobs      *fakeJobs
	batches   *fakeBatches
	clients   *fakeClients
	log       *logBuffer
	registry  *prometheus.Registry
	url       string // once started
	webhooks  *fakeWebhooks
	bulk      *fakeBulk
	schedules *fakeSchedules
	testbed   *fakeTestbed
	once      *fakeOnce

	// madeUp says that the fakes do what no use case does, so that answers are
	// not held against the OpenAPI document.
	madeUp bool
}

func newWorld(t testing.TB, change ...func(*Config, *Deps)) *world {
	t.Helper()
	w := &world{
		t: t, jobs: &fakeJobs{changed: make(chan chan struct{})}, batches: &fakeBatches{}, clients: &fakeClients{},
		log: &logBuffer{}, registry: prometheus.NewRegistry(), bulk: &fakeBulk{}, schedules: &fakeSchedules{}, testbed: &fakeTestbed{},
	}
	w.webhooks, w.once = &fakeWebhooks{jobs: w.jobs}, &fakeOnce{known: map[onceKey]onceAnswer{}}
	cfg := Config{PublicURL: publicURL}
	deps := Deps{
		Jobs: w.jobs, Reader: w.jobs, Batches: w.batches, Events: noEvents{w.jobs}, Clients: w.clients, Webhooks: w.webhooks,
		Proofs: w.webhooks, Bulk: w.bulk, Schedules: w.schedules, Testbed: w.testbed,
		Deliveries: w.webhooks, Idempotency: w.once,
		Directory: func(context.Context) ([]byte, error) { return []byte(keyDirectory), nil },
		CursorKey: func(context.Context) ([]byte, error) { return []byte("a secret of 32 bytes for cursors"), nil },
		Limiter:   fakeLimiter{answer: job.Allowance{OK: true, Policy: "minute", Limit: 6000, Remaining: 5999, Reset: 10 * time.Millisecond}},
		Health:    fakeHealth{Readiness{OK: true, Status: "ok", Checks: map[string]string{"postgres": "ok"}}},
		Logger:    slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registry:  w.registry, Clock: func() time.Time { return now },
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
	w.jobs.remove = func(context.Context, job.ID, job.ID) error { return nil }
	w.jobs.change = func(_ context.Context, _, id job.ID) (job.Change, error) {
		return job.Change{JobID: id, State: job.Canceled, Attempt: 1, UpdatedAt: now}, nil
	}
	w.batches.batch, w.bulk.bulk, w.testbed.known, w.schedules.find = openBatch, aBulk, jobID, aSchedule
	w.webhooks.find = func(_, _ job.ID) (*job.Webhook, error) { return aWebhook(), nil }
	return w
}

// start serves on a loopback port until the test ends.
func (w *world) start() *world {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.url = "http://" + l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(l) }()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(w.t, w.server.Shutdown(ctx))
		require.NoError(w.t, <-served)
	})
	return w
}

// answer is a response that was read.
type answer struct {
	*http.Response
	text string
}

func (a *answer) problem(t testing.TB) problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), a.text)
	var p problem
	require.NoError(t, json.Unmarshal([]byte(a.text), &p))
	require.Equal(t, a.StatusCode, p.Status)
	require.Equal(t, "urn:uuid:"+a.Header.Get("X-Request-Id"), p.Instance)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.Title)
	require.True(t, strings.HasPrefix(p.Type, publicURL+"/problems/"), p.Type)
	return p
}

// requireProblem checks that the answer is the problem of the code.
func (a *answer) requireProblem(t testing.TB, code job.Code) problem {
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
// takes a header away.
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
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Del(headers[i]); headers[i+1] != "-" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return w.do(r)
}

func (w *world) do(r *http.Request) *answer {
	w.t.Helper()
	res, err := w.server.Test(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	if !w.madeUp {
		apitest.New(w.t, docs.OpenAPI).Check(w.t, r, res, text)
	}
	return &answer{res, string(text)}
}

// discardInfo is a logger that formats every line and keeps none.
func discardInfo() *slog.Logger { return slog.New(slog.NewJSONHandler(io.Discard, nil)) }
