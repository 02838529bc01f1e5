package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

const (
	someTrace   = "4bf92f3577b34da6a3ce929d0e0e4736"
	someSpan    = "00f067aa0ba902b7"
	someParent  = "00-" + someTrace + "-" + someSpan + "-01"
	notRecorded = "00-" + someTrace + "-" + someSpan + "-00"
)

// connectTraced connects to Redis like a process with tracing.
func connectTraced(t *testing.T, url string) (*redisconn.Redis, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	r, err := redisconn.Connect(url, redisconn.Options{
		Registry: prometheus.NewRegistry(), Timeout: redistest.Within, Tracer: provider.Tracer(telemetry.Scope),
		Logger: redistest.Log(t),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, spans
}

func headerOf(t *testing.T, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	info := redistest.Must(r.Inspector.GetTaskInfo(redisconn.Jobs, queue.TaskName(task)))(t)
	require.Equal(t, queue.JobTask, info.Type)
	return info.Headers[queue.TraceHeader]
}

// process handles n tasks, each with the given result, and returns the handlers' contexts.
func process(t *testing.T, r *redisconn.Redis, n int, result error) (contexts []context.Context) {
	t.Helper()
	seen := make(chan context.Context, n)
	w := startWorkers(t, r, Config{}, func(ctx context.Context, _ job.Task) error {
		seen <- ctx
		return result
	})
	for range n {
		contexts = append(contexts, redistest.Receive(t, seen, "a task"))
	}
	requireStops(t, w)
	return contexts
}

func TestTraceGoesThroughTheQueue(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	api, sent := connectTraced(t, url)
	q := redistest.Start(t, queue.New(api, queue.Config{}))
	task := redistest.Task()
	task.Attempt, task.TraceParent = 3, someParent
	q.Enqueue(task)
	redistest.Eventually(t, func() bool { return len(sent.GetSpans()) == 1 })
	producer := sent.GetSpans()[0]
	require.Equal(t, telemetry.SpanEnqueue, producer.Name)
	require.Equal(t, trace.SpanKindProducer, producer.SpanKind)
	require.Equal(t, someTrace, producer.SpanContext.TraceID().String())
	require.Equal(t, someSpan, producer.Parent.SpanID().String())
	requireTaskAttributes(t, producer, task, "send")
	require.Equal(t, "00-"+someTrace+"-"+producer.SpanContext.SpanID().String()+"-01", headerOf(t, api, task))

	worker, got := connectTraced(t, url)
	ctx := process(t, worker, 1, &job.TaskFailed{Text: "RFA_INTERNAL: it broke"})[0]
	consumer := got.GetSpans()[0]
	require.Equal(t, telemetry.SpanProcess, consumer.Name)
	require.Equal(t, trace.SpanKindConsumer, consumer.SpanKind)
	require.Equal(t, producer.SpanContext.SpanID(), consumer.Parent.SpanID())
	require.True(t, consumer.Parent.IsRemote())
	require.Equal(t, consumer.SpanContext, trace.SpanContextFromContext(ctx))
	require.Equal(t, codes.Unset, consumer.Status.Code, "a failed attempt is not an error of the task")
	requireTaskAttributes(t, consumer, task, "process")
	require.Len(t, got.GetSpans(), 1)

	task.Attempt++
	q.Enqueue(task)
	process(t, worker, 1, errors.New("no database"))
	require.Equal(t, codes.Error, got.GetSpans()[1].Status.Code)
}

func requireTaskAttributes(t *testing.T, span tracetest.SpanStub, task job.Task, operation string) {
	t.Helper()
	got := map[string]any{}
	for _, a := range span.Attributes {
		got[string(a.Key)] = a.Value.AsInterface()
	}
	require.Equal(t, map[string]any{
		"messaging.system": "asynq", "messaging.destination.name": "jobs", "messaging.message.id": queue.TaskName(task),
		"messaging.operation.name": operation, "messaging.operation.type": operation,
		"forgerun.job_id": task.JobID.String(), "forgerun.attempt": int64(task.Attempt),
	}, got)
}

// A process without tracing passes the parent span on, so that the handler of another process can continue the trace.
func TestTraceContinuesThroughProcessesThatDoNotTrace(t *testing.T) {
	t.Parallel()
	url := redistest.MiniURL(t)
	r := redistest.Connect(t, url)
	q := queue.New(r, queue.Config{})
	for traceparent, want := range map[string]string{
		"": "", someParent: someParent, notRecorded: notRecorded, strings.Repeat("x", queue.MaxTraceparent+1): "", "\xff": "",
	} {
		task := redistest.Task()
		task.TraceParent = traceparent
		redistest.Ensure(t, q, task)
		require.Equal(t, want, headerOf(t, r, task))
	}
	for _, ctx := range process(t, r, 5, nil) {
		require.False(t, trace.SpanContextFromContext(ctx).IsValid(), "an unrecorded span is not in the context")
	}
}
