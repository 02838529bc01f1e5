package apptest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// background runs a loop until the test ends or stop is called, and lets it
// come to rest.
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

// add stores a waiting job that is due, and gives its task.
func (w *World) Add(change ...func(*Row)) job.Task {
	now := time.Now()
	r := &Row{Job: job.Job{
		ID: app.NewID(), ClientID: ClientA, Type: job.Execute, WorkKind: job.SuccessFast, Definition: DefinitionOf(job.SuccessFast),
		State: job.Queued, Attempt: 1, MaxAttempts: 4, CreatedAt: now, UpdatedAt: now, RunAt: now, RequestID: "request-1",
	}, History: []job.State{job.Created, job.Queued}}
	for _, f := range change {
		f(r)
	}
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	w.Store.Rows[r.ID] = r
	return TaskOf(r)
}

// addDeferred stores a CREATED job that is due after d.
func (w *World) AddDeferred(d time.Duration) job.Task {
	return w.Add(func(r *Row) {
		at := time.Now().Add(d)
		r.Type, r.State, r.ExecutionAt, r.RunAt, r.History = job.Deferred, job.Created, &at, at, []job.State{job.Created}
	})
}

// ended asserts that a job's only end so far is the given one.
func (w *World) Ended(t job.Task, s job.State) job.Finish {
	w.T.Helper()
	r := w.Store.RowOf(t.JobID)
	require.Len(w.T, r.Ends, 1, "history %v", r.History)
	require.Equal(w.T, s, r.Ends[0].State)
	return r.Ends[0]
}

// metric reads one counter or gauge.
func (w *World) Metric(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

func (w *World) Tracer() trace.Tracer { return w.provider.Tracer("test") }

// sum adds up a metric over its labels; of a histogram what it has observed.
func (w *World) Sum(name string) float64 {
	families, err := w.Registry.Gather()
	require.NoError(w.T, err)
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

func (f RunnerFunc) Run(ctx context.Context, d job.Definition, attempt int, _ func(job.Progress)) (*job.Result, error) {
	return f(ctx, d, attempt)
}

func (f Failure) Error() string { return string(f.Reason) }

func (f Failure) FailureReason() job.Reason { return f.Reason }

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buf.Write(p)
}

// lines gives the lines whose fields have the given values.
func (l *LogBuffer) Lines(t testing.TB, fields map[string]any) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.Buf.String()) {
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
