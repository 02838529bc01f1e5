package apptest

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func Percent(n int) *job.Progress { return &job.Progress{Percentage: n} }

// fixed is work that takes no time.
func Fixed(result *job.Result, err error) RunnerFunc {
	return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
}

// heldByTheDead is a job of a worker that does not exist any more.
func HeldByTheDead(s job.State, change ...func(*Row)) func(*Row) {
	return func(r *Row) {
		began := time.Now()
		r.State, r.Worker, r.Fence, r.StartedAt = s, app.NewID(), 3, &began
		for _, f := range change {
			f(r)
		}
	}
}

func FailedJob(r *Row) { r.State = job.Failed }

func Second[T any](_ T, err error) error { return err }

// traceparentOf is what goes on from a span.
func TraceparentOf(s tracetest.SpanStub) string {
	return telemetry.Traceparent(trace.ContextWithSpanContext(context.Background(), s.SpanContext))
}

// attributes of a span, by their names.
func Attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

const (
	LeaseTime = 30 * time.Second
	Heartbeat = 5 * time.Second
	Limit     = 120 * time.Second
)

var Backoff = job.Backoff{Base: time.Second, Max: time.Minute}

// bubble runs a test on a clock of its own, which moves on when every
// goroutine waits. It fails if goroutines are left over.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// pass lets time pass, and what it brings about come to rest. Only the test's
// own goroutine may call it.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// testWorld is everything around the use cases, in memory.
type World struct {
	T        testing.TB
	Store    *Store
	Queue    *Queue
	Registry *prometheus.Registry
	Metrics  *app.Metrics
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	Log      *LogBuffer
	Logger   *slog.Logger
	Listener *Listener
}

func NewWorld(t testing.TB) *World {
	w := &World{T: t, Store: NewStore(t), Queue: NewQueue(), Registry: prometheus.NewRegistry(), Log: &LogBuffer{}}
	w.Metrics = app.NewMetrics(w.Registry)
	w.spans = tracetest.NewInMemoryExporter()
	w.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	w.Logger = slog.New(slog.NewJSONHandler(w.Log, nil))
	w.Listener = &Listener{watched: map[job.ID]bool{}, Up: true}
	return w
}

var (
	ClientA = job.ID{0xa}
	ClientB = job.ID{0xb}
)

func DefinitionOf(k job.Kind) *job.Definition {
	d, err := job.Catalogue{Kinds: job.Kinds(), MaxRuntime: Limit}.Define(job.Execute, k, time.Unix(1, 0), nil)
	if err != nil {
		panic(err)
	}
	return &d
}

// runnerFunc is a Runner that reports no progress.
type RunnerFunc func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error)

func GoodResult(d job.Definition) *job.Result {
	body := make([]byte, d.PayloadSize)
	return &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
}

// takes is work that takes a while, and stops with its context.
func Takes(d time.Duration) RunnerFunc {
	return func(ctx context.Context, definition job.Definition, _ int) (*job.Result, error) {
		if !app.Sleep(ctx, d) {
			return nil, context.Cause(ctx)
		}
		return GoodResult(definition), nil
	}
}

// failure is the error of an attempt that fails by the catalogue.
type Failure struct{ Reason job.Reason }
