package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/job"
)

const (
	testLease     = 30 * time.Second
	testHeartbeat = 5 * time.Second
	testLimit     = 120 * time.Second
)

var testBackoff = job.Backoff{Base: time.Second, Max: time.Minute}

// bubble runs a test on a clock of its own, which moves on when every
// goroutine waits. It fails if goroutines are left over.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// pass lets time pass, and what it brings about come to rest. Only the test's
// own goroutine may call it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// testWorld is everything around the use cases, in memory.
type testWorld struct {
	t        testing.TB
	store    *fakeStore
	queue    *fakeQueue
	registry *prometheus.Registry
	metrics  *Metrics
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	log      *logBuffer
	logger   *slog.Logger
	listener *fakeListener
}

func newTestWorld(t testing.TB) *testWorld {
	w := &testWorld{t: t, store: newFakeStore(t), queue: newFakeQueue(), registry: prometheus.NewRegistry(), log: &logBuffer{}}
	w.metrics = NewMetrics(w.registry)
	w.spans = tracetest.NewInMemoryExporter()
	w.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.logger = slog.New(slog.NewJSONHandler(w.log, nil))
	w.listener = &fakeListener{watched: map[job.ID]bool{}, connected: true}
	return w
}

// world is the use cases with everything around them.
type world struct {
	*testWorld
	runner  runnerFunc
	hub     *Hub
	reader  *EventReader
	settler *BatchCompleter
	worker  *Worker
}

func newWorld(t testing.TB, change ...func(*WorkerConfig)) *world {
	w := &world{testWorld: newTestWorld(t)}
	w.hub = NewHub(w.store, w.listener, w.metrics, w.logger)
	w.reader = NewEventReader(w.store, w.hub)
	w.settler = NewBatchCompleter(w.store, w.queue, w.metrics, w.logger)
	w.worker = w.newWorker(change...)
	return w
}

func (w *world) newWorker(change ...func(*WorkerConfig)) *Worker {
	cfg := WorkerConfig{
		Name: "test", Concurrency: 4, Lease: testLease, Heartbeat: testHeartbeat, Limit: testLimit, Backoff: testBackoff,
	}
	for _, f := range change {
		f(&cfg)
	}
	run := runnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		if w.runner != nil {
			return w.runner(ctx, d, attempt)
		}
		return goodResult(d), nil
	})
	return NewWorker(cfg, w.store, w.store, w.queue, w.settler, run, w.metrics, w.logger)
}

// start runs the worker until the test ends or stop is called.
func (w *world) start() (stop func()) { return w.background(w.worker.Run) }

// background runs a loop until the test ends or stop is called, and lets it
// come to rest.
func (w *testWorld) background(loop func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { loop(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// add stores a waiting job that is due, and gives its task.
func (w *testWorld) add(change ...func(*row)) job.Task {
	now := time.Now()
	r := &row{Job: job.Job{
		ID: newID(), ClientID: clientA, Type: job.Execute, WorkKind: job.SuccessFast, Definition: definitionOf(job.SuccessFast),
		State: job.Queued, Attempt: 1, MaxAttempts: 4, CreatedAt: now, UpdatedAt: now, RunAt: now, RequestID: "request-1",
	}, history: []job.State{job.Created, job.Queued}}
	for _, f := range change {
		f(r)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.jobs[r.ID] = r
	return taskOf(r)
}

// addDeferred stores a CREATED job that is due after d.
func (w *testWorld) addDeferred(d time.Duration) job.Task {
	return w.add(func(r *row) {
		at := time.Now().Add(d)
		r.Type, r.State, r.ExecutionAt, r.RunAt, r.history = job.Deferred, job.Created, &at, at, []job.State{job.Created}
	})
}

// handle hands a task to the worker as the queue would.
func (w *world) handle(t job.Task) error { return w.worker.Handle(context.Background(), t) }

// handling hands a task over in the background; the channel gives the answer.
func (w *world) handling(t job.Task) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.handle(t) }()
	synctest.Wait()
	return answer
}

// ended asserts that a job's only end so far is the given one.
func (w *testWorld) ended(t job.Task, s job.State) job.Finish {
	w.t.Helper()
	r := w.store.job(t.JobID)
	require.Len(w.t, r.ends, 1, "history %v", r.history)
	require.Equal(w.t, s, r.ends[0].State)
	return r.ends[0]
}

// metric reads one counter or gauge.
func (w *testWorld) metric(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

func (w *testWorld) tracer() trace.Tracer { return w.provider.Tracer("test") }

// sum adds up a metric over its labels; of a histogram what it has observed.
func (w *testWorld) sum(name string) float64 {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

var (
	clientA = job.ID{0xa}
	clientB = job.ID{0xb}
)

func definitionOf(k job.Kind) *job.Definition {
	d, err := job.Catalogue{Kinds: job.Kinds(), MaxRuntime: testLimit}.Define(job.Execute, k, time.Unix(1, 0), nil)
	if err != nil {
		panic(err)
	}
	return &d
}

// runnerFunc is a Runner that reports no progress.
type runnerFunc func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error)

func (f runnerFunc) Run(ctx context.Context, d job.Definition, attempt int, _ func(job.Progress)) (*job.Result, error) {
	return f(ctx, d, attempt)
}

func goodResult(d job.Definition) *job.Result {
	body := make([]byte, d.PayloadSize)
	return &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
}

// takes is work that takes a while, and stops with its context.
func takes(d time.Duration) runnerFunc {
	return func(ctx context.Context, definition job.Definition, _ int) (*job.Result, error) {
		if !sleep(ctx, d) {
			return nil, context.Cause(ctx)
		}
		return goodResult(definition), nil
	}
}

// failure is the error of an attempt that fails by the catalogue.
type failure struct{ reason job.Reason }

func (f failure) Error() string             { return string(f.reason) }
func (f failure) FailureReason() job.Reason { return f.reason }

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

// lines gives the lines whose fields have the given values.
func (l *logBuffer) lines(t testing.TB, fields map[string]any) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.buf.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		matches := true
		for k, v := range fields {
			matches = matches && entry[k] == v
		}
		if matches {
			found = append(found, entry)
		}
	}
	return found
}
