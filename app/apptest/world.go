// Package apptest has the fakes that the tests of several packages below app
// share: the rows of jobs, the queue, and a world with metrics, spans and a log.
// What one package's tests need alone is in that package.
package apptest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// World is everything around the use cases, in memory.
type World struct {
	T        testing.TB
	Store    *Store
	Queue    *Queue
	Registry *prometheus.Registry
	Metrics  *app.Metrics
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	Log      *testkit.Output
	Logger   *slog.Logger
}

// NewWorld makes an empty world.
func NewWorld(t testing.TB) *World {
	w := &World{T: t, Store: NewStore(), Queue: NewQueue(), Registry: prometheus.NewRegistry(), Log: &testkit.Output{}}
	w.Metrics = app.NewMetrics(w.Registry)
	w.spans = tracetest.NewInMemoryExporter()
	w.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.Logger = slog.New(slog.NewJSONHandler(w.Log, nil))
	t.Cleanup(w.requireSoundLines)
	return w
}

// requireSoundLines asserts of all lines about failures that they have an action and an error code (section 16).
func (w *World) requireSoundLines() {
	for line := range strings.Lines(w.Log.String()) {
		if !strings.Contains(line, `"level":"INFO"`) {
			require.Contains(w.T, line, `"action":"`)
		}
		if strings.Contains(line, `"error_message":`) {
			require.Contains(w.T, line, `"error_code":"`)
		}
	}
}

// Bubble runs a test on a clock of its own, which advances when every goroutine
// waits. It fails if goroutines are left over.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// Run runs a subtest in a bubble.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Bubble(t, f) })
}

// Pass sleeps for d and waits until every goroutine is idle. Only the test's own
// goroutine may call it.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Background runs a loop until the test ends or stop is called, and waits until
// it is idle.
func (w *World) Background(loop func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { loop(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.T.Cleanup(stop)
	synctest.Wait()
	return stop
}

// Add stores a waiting job that is due, and gives its task.
func (w *World) Add(change ...func(*Row)) job.Task {
	now := time.Now()
	r := &Row{Job: job.Job{
		ID: app.NewID(), ClientID: ClientA, Type: job.Execute, WorkKind: job.SuccessFast, Definition: DefinitionOf(job.SuccessFast),
		State: job.Queued, Attempt: 1, MaxAttempts: 4, CreatedAt: now, UpdatedAt: now, RunAt: now, RequestID: "request-1",
	}, QueuedAt: now, History: []job.State{job.Created, job.Queued}}
	for _, f := range change {
		f(r)
	}
	w.Store.Update(func() { w.Store.Rows[r.ID] = r })
	return TaskOf(r)
}

// AddDeferred stores a CREATED job that is due after d.
func (w *World) AddDeferred(d time.Duration) job.Task {
	return w.Add(func(r *Row) {
		at := time.Now().Add(d)
		r.Type, r.State, r.ExecutionAt, r.RunAt, r.History = job.Deferred, job.Created, &at, at, []job.State{job.Created}
	})
}

// Happens changes a job without a notification.
func (w *World) Happens(t job.Task, to job.State) {
	w.Store.Change(t.JobID, func(r *Row) { w.Store.Move(r, to) })
}

// Orphans gives what is held by workers whose lease has ended.
func (w *World) Orphans() []job.Held {
	held, err := w.Store.Orphans(context.Background(), 1000)
	require.NoError(w.T, err)
	return held
}

// Ended asserts that a job's only end so far is the given one.
func (w *World) Ended(t job.Task, s job.State) job.Finish {
	w.T.Helper()
	r := w.Store.RowOf(t.JobID)
	require.Len(w.T, r.Ends, 1, "history %v", r.History)
	require.Equal(w.T, s, r.Ends[0].State)
	return r.Ends[0]
}

// Metric reads one counter or gauge.
func (w *World) Metric(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

// Sum adds up a metric over its labels; of a histogram what it has observed.
func (w *World) Sum(name string) (sum float64) {
	for _, m := range w.Gather(name) {
		sum += m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// Executions gives what job_execution_seconds has observed for an outcome: how often,
// and the sum.
func (w *World) Executions(outcome job.State) (n uint64, sum float64) {
	for _, m := range w.Gather("job_execution_seconds") {
		if m.GetLabel()[0].GetValue() == string(outcome) {
			n += m.GetHistogram().GetSampleCount()
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return n, sum
}

// Exemplars gives the traces that a histogram names.
func (w *World) Exemplars(name string) (traces []string) {
	for _, m := range w.Gather(name) {
		for _, b := range m.GetHistogram().GetBucket() {
			if e := b.GetExemplar(); e != nil {
				traces = append(traces, e.GetLabel()[0].GetValue())
			}
		}
	}
	return traces
}

// Gather gives a metric with all its labels.
func (w *World) Gather(name string) []*dto.Metric {
	families, err := w.Registry.Gather()
	require.NoError(w.T, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}
