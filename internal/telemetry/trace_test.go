package telemetry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/internal/telemetry"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

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
			spans := tracetest.NewInMemoryExporter()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")
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
