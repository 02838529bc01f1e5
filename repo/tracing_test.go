package repo_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/repo"
)

type traces struct {
	*tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newTraces() traces {
	kept := tracetest.NewInMemoryExporter()
	return traces{kept, sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))}
}

func (s traces) store(c *repo.Config) { c.TracerProvider = s.provider }

func (s traces) request(ctx context.Context, name string) (context.Context, trace.Span) {
	return s.provider.Tracer("test").Start(ctx, name)
}

func (s traces) below(parent trace.SpanContext) (found tracetest.SpanStubs) {
	for _, span := range s.GetSpans() {
		if span.Parent.SpanID() == parent.SpanID() && span.Parent.TraceID() == parent.TraceID() {
			found = append(found, span)
		}
	}
	return found
}

// only returns the span with the name directly below the parent; there must be exactly one.
func (s traces) only(t *testing.T, parent trace.SpanContext, name string) tracetest.SpanStub {
	found := slices.DeleteFunc(s.below(parent), func(span tracetest.SpanStub) bool { return span.Name != name })
	require.Len(t, found, 1, name)
	return found[0]
}

func attributes(span tracetest.SpanStub) map[attribute.Key]any {
	found := map[attribute.Key]any{}
	for _, a := range span.Attributes {
		found[a.Key] = a.Value.AsInterface()
	}
	return found
}

// Callers that share a statement each have a span. The statement's span is a child of the first one; the others link to it. Untraced
// callers have no span.
func TestSpansOfASharedStatement(t *testing.T) {
	spans := newTraces()
	f := setup(t, patient, spans.store)
	release := f.occupyInserts()
	spans.Reset()
	var requests []trace.Span
	var inserts []<-chan error
	for _, traced := range []bool{false, true, true, true, false} {
		ctx := f.ctx()
		if traced {
			var span trace.Span
			ctx, span = spans.request(ctx, "request")
			requests = append(requests, span)
		}
		inserts = append(inserts, begin(func() error { return errOf(f.store.InsertJob(ctx, f.submission())) }))
		f.awaitQueued("insert", len(inserts))
	}
	release()
	for _, inserted := range inserts {
		require.NoError(t, <-inserted)
	}

	first := spans.only(t, requests[0].SpanContext(), "commit insert")
	require.EqualValues(t, 5, attributes(first)[telemetry.BatchSize], "untraced callers count too")
	require.Empty(t, first.Links)
	require.Equal(t, trace.SpanKindClient, spans.only(t, first.SpanContext, "query INSERT").SpanKind)
	for _, request := range requests[1:] {
		other := spans.only(t, request.SpanContext(), "commit insert")
		require.EqualValues(t, 5, attributes(other)[telemetry.BatchSize])
		require.Empty(t, spans.below(other.SpanContext))
		require.Len(t, other.Links, 1)
		require.True(t, other.Links[0].SpanContext.Equal(first.SpanContext))
	}
	commits := 0
	for _, span := range spans.GetSpans() {
		require.True(t, span.Parent.IsValid(), "%s: no trace begins here", span.Name)
		if strings.HasPrefix(span.Name, telemetry.SpanCommit) {
			commits++
		}
	}
	require.Equal(t, len(requests), commits)
}
