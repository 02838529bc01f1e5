// Package apptest has helpers that the tests of several packages below app share. Helpers for the tests of one package stay in that
// package.
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

// World contains test doubles for the queue, metrics, spans and log of use cases.
type World struct {
	T        testing.TB
	Queue    *Queue
	Registry *prometheus.Registry
	Metrics  *app.Metrics
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	Log      *testkit.Output
	Logger   *slog.Logger
}

// NewWorld returns an empty world.
func NewWorld(t testing.TB) *World {
	w := &World{T: t, Queue: NewQueue(), Registry: prometheus.NewRegistry(), Log: &testkit.Output{}}
	w.Metrics = app.NewMetrics(w.Registry)
	w.spans = tracetest.NewInMemoryExporter()
	w.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.Logger = slog.New(slog.NewJSONHandler(w.Log, nil))
	t.Cleanup(w.requireSoundLines)
	return w
}

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

// Bubble runs a test with synctest: time advances when all goroutines wait. The test fails if goroutines still run at its end.
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

// Pass sleeps for d and waits until every goroutine is idle. Call it from the test's goroutine.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Background starts a loop, and waits until the loop blocks. The loop runs until the test ends or stop is called.
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

// Metric returns the value of a counter or gauge.
func (w *World) Metric(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

// Sum returns the sum of a metric over all its labels. For a histogram, Sum adds the observed values.
func (w *World) Sum(name string) (sum float64) {
	for _, m := range w.Gather(name) {
		sum += m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// Executions returns the count and the sum of job_execution_seconds for an outcome.
func (w *World) Executions(outcome job.State) (n uint64, sum float64) {
	for _, m := range w.Gather("job_execution_seconds") {
		if m.GetLabel()[0].GetValue() == string(outcome) {
			n += m.GetHistogram().GetSampleCount()
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return n, sum
}

// Gather returns all series of a metric.
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
