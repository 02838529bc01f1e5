package apptest

import (
	"context"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// traced runs f as of a request that is traced, and gives its traceparent.
func (w *World) Traced(f func(ctx context.Context)) (traceparent string) {
	ctx, span := w.Tracer().Start(context.Background(), "request", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	f(ctx)
	return telemetry.Traceparent(ctx)
}

// traceparent is of a request that has ended.
func (w *World) Traceparent() string { return w.Traced(func(context.Context) {}) }

// span gives the only span of a name that has ended.
func (w *World) Span(name string) tracetest.SpanStub {
	w.T.Helper()
	named := w.SpansNamed(name)
	require.Len(w.T, named, 1, name)
	return named[0]
}

func (w *World) SpansNamed(name string) (named []tracetest.SpanStub) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			named = append(named, s)
		}
	}
	return named
}

// names gives the names of all spans that have ended.
func (w *World) Names() (names []string) {
	for _, s := range w.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

func (w *World) RequireBelow(child, parent tracetest.SpanStub) {
	w.T.Helper()
	require.Equal(w.T, parent.SpanContext.TraceID(), child.SpanContext.TraceID())
	require.Equal(w.T, parent.SpanContext.SpanID(), child.Parent.SpanID())
}
