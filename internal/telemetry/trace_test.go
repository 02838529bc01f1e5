package telemetry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/internal/telemetry"
)

func tracing() (trace.Tracer, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test"), spans
}

func recorded(t *testing.T) (context.Context, trace.Span) {
	tracer, _ := tracing()
	ctx, span := tracer.Start(context.Background(), "parent")
	t.Cleanup(func() { span.End() })
	return ctx, span
}

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestStartAndEnd(t *testing.T) {
	t.Parallel()
	tracer, spans := tracing()
	ctx, parent := tracer.Start(context.Background(), "parent")
	inner, span := telemetry.Start(ctx, telemetry.SpanRun, trace.WithSpanKind(trace.SpanKindConsumer))
	require.True(t, span.IsRecording())
	require.Equal(t, span, trace.SpanFromContext(inner))
	telemetry.End(span, errors.New("the disk is full"))
	require.NotPanics(t, func() { telemetry.End(span, errors.New("again")) })
	require.Len(t, spans.GetSpans(), 1)
	got := spans.GetSpans()[0]
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "the disk is full"}, got.Status)
	require.Equal(t, "run job", got.Name)
	require.Equal(t, trace.SpanKindConsumer, got.SpanKind)
	require.Equal(t, parent.SpanContext(), got.Parent)
	require.Equal(t, telemetry.Scope, got.InstrumentationScope.Name)
}

func TestStartWithoutParentDoesNothing(t *testing.T) {
	t.Parallel()
	tracer, spans := tracing()
	ended, span := tracer.Start(context.Background(), "over")
	span.End()
	spans.Reset()
	remote := trace.ContextWithRemoteSpanContext(context.Background(), span.SpanContext())
	for name, ctx := range map[string]context.Context{"none": context.Background(), "ended": ended, "of another process": remote} {
		inner, child := telemetry.Start(ctx, telemetry.SpanRun)
		require.Equal(t, ctx, inner, name)
		require.False(t, child.IsRecording(), name)
		telemetry.End(child, errors.New("an error"))
	}
	require.Empty(t, spans.GetSpans())
}

func TestContinue(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		traceparent string
		recorded    bool
	}{
		"sampled":                     {sampled, true},
		"sampled, of a later version": {"cc" + sampled[2:] + "-more", true},
		"unsampled":                   {unsampled, false},
		"none":                        {"", false},
		"nonsense":                    {"nonsense", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, spans := tracing()
			ctx, span := telemetry.Continue(context.Background(), tracer, test.traceparent, telemetry.SpanProcess)
			require.Equal(t, test.recorded, span.IsRecording())
			telemetry.End(span, nil)
			if !test.recorded {
				require.Equal(t, context.Background(), ctx)
				require.Empty(t, spans.GetSpans())
				return
			}
			got := spans.GetSpans()[0]
			require.Equal(t, sdktrace.Status{}, got.Status)
			require.Equal(t, "process job", got.Name)
			require.Equal(t, "0af7651916cd43dd8448eb211c80319c", got.SpanContext.TraceID().String())
			require.Equal(t, "b7ad6b7169203331", got.Parent.SpanID().String())
			require.True(t, got.Parent.IsRemote())
		})
	}
}

// A process without tracing does not forward the trace of a caller.
func TestContinueWithoutTracing(t *testing.T) {
	t.Parallel()
	for _, tracer := range []trace.Tracer{nil, noop.Tracer{}} {
		ctx, span := telemetry.Continue(context.Background(), tracer, sampled, telemetry.SpanProcess)
		require.False(t, span.IsRecording())
		require.Empty(t, telemetry.Traceparent(ctx))
		_, child := telemetry.Start(ctx, telemetry.SpanRun)
		require.False(t, child.IsRecording())
	}
}

func TestTraceparentAndBack(t *testing.T) {
	t.Parallel()
	tracer, spans := tracing()
	ctx, first := tracer.Start(context.Background(), "first")
	require.Len(t, telemetry.Traceparent(ctx), len(sampled))
	_, second := telemetry.Continue(context.Background(), tracer, telemetry.Traceparent(ctx), "second")
	second.End()
	got := spans.GetSpans()[0]
	require.Equal(t, first.SpanContext().TraceID(), got.SpanContext.TraceID())
	require.Equal(t, first.SpanContext().SpanID(), got.Parent.SpanID())

	require.Empty(t, telemetry.Traceparent(context.Background()))
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test")
	ctx, span := never.Start(context.Background(), "dropped")
	defer span.End()
	require.True(t, span.SpanContext().IsValid())
	require.Empty(t, telemetry.Traceparent(ctx), "an unrecorded span")
}

func TestLink(t *testing.T) {
	t.Parallel()
	for traceparent, links := range map[string]int{sampled: 1, unsampled: 1, "": 0, "nonsense": 0} {
		tracer, spans := tracing()
		_, span := tracer.Start(context.Background(), "linked")
		telemetry.Link(span, traceparent)
		span.End()
		got := spans.GetSpans()[0].Links
		require.Len(t, got, links, traceparent)
		if links > 0 {
			require.Equal(t, "b7ad6b7169203331", got[0].SpanContext.SpanID().String())
		}
	}
	_, none := telemetry.Start(context.Background(), "none")
	require.NotPanics(t, func() { telemetry.Link(none, sampled) })
}
