package apptest

import (
	"context"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Logged asserts that a transition was logged once, and returns the log line.
func (w *World) Logged(task job.Task, action, from, to string) map[string]any {
	w.T.Helper()
	lines := w.Log.Lines(w.T, map[string]any{
		"msg": "job transition", "action": action, "job_id": task.JobID.String(), "current_state": from, "next_state": to,
	})
	require.Len(w.T, lines, 1)
	require.Equal(w.T, "request-1", lines[0]["request_id"])
	require.Equal(w.T, ClientA.String(), lines[0]["client_id"])
	for _, field := range []string{"work_kind", "duration_ms", "expected_outcome"} {
		require.Contains(w.T, lines[0], field)
	}
	return lines[0]
}

// Tracer returns a tracer. Span and SpansNamed return its ended spans.
func (w *World) Tracer() trace.Tracer { return w.provider.Tracer("test") }

// Traced runs f inside a server span, and returns the span's traceparent.
func (w *World) Traced(f func(ctx context.Context)) (traceparent string) {
	ctx, span := w.Tracer().Start(context.Background(), "request", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	f(ctx)
	return telemetry.Traceparent(ctx)
}

// Traceparent returns the traceparent of a new, ended span.
func (w *World) Traceparent() string { return w.Traced(func(context.Context) {}) }

// Span returns the ended span with the given name. There must be exactly one.
func (w *World) Span(name string) tracetest.SpanStub {
	w.T.Helper()
	named := w.SpansNamed(name)
	require.Len(w.T, named, 1, name)
	return named[0]
}

// SpansNamed returns the ended spans with the given name.
func (w *World) SpansNamed(name string) (named []tracetest.SpanStub) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			named = append(named, s)
		}
	}
	return named
}

// Attributes returns a span's attributes as a map from name to value.
func Attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}
