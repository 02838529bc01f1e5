package consumer

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

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
		info := redistest.Must(r.Inspector.GetTaskInfo(redisconn.Jobs, queue.TaskName(task)))(t)
		require.Equal(t, want, info.Headers[queue.TraceHeader])
	}
	seen := make(chan context.Context, 5)
	startWorkers(t, r, Config{}, func(ctx context.Context, _ job.Task) error { seen <- ctx; return nil })
	for range 5 {
		ctx := redistest.Receive(t, seen, "a task")
		require.False(t, trace.SpanContextFromContext(ctx).IsValid(), "an unrecorded span is not in the context")
	}
}
