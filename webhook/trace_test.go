package webhook

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/internal/telemetry"
)

const (
	ofTheEvent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampled  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestTraceparentOfDeliveries(t *testing.T) {
	t.Parallel()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewInMemoryExporter()))
	ctx, span := telemetry.Continue(t.Context(), provider.Tracer(telemetry.Scope), ofTheEvent, telemetry.SpanDeliver)
	defer span.End()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	for name, test := range map[string]struct {
		ctx    context.Context
		stored string
		want   []string
	}{
		"none":                {t.Context(), "", nil},
		"of the attempt":      {ctx, ofTheEvent, []string{telemetry.Traceparent(ctx)}},
		"of the event":        {t.Context(), ofTheEvent, []string{ofTheEvent}},
		"not sampled":         {t.Context(), unsampled, []string{unsampled}},
		"of a later version":  {t.Context(), "01" + ofTheEvent[2:] + "-more", []string{ofTheEvent}},
		"malformed":           {t.Context(), "x" + ofTheEvent, nil},
		"with another header": {t.Context(), "01" + ofTheEvent[2:] + "\r\nX-Planted: 1", nil},
		"zero":                {t.Context(), "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01", nil},
		"endless":             {t.Context(), "01" + strings.Repeat("-", 1<<20), nil},
	} {
		p := sampleParcel(t)
		p.Target.URL, p.TraceParent = r.URL, test.stored
		require.Empty(t, s.Send(test.ctx, p).Attempt.Error, name)
		all := r.all()
		c := all[len(all)-1]
		require.Equal(t, test.want, c.header["Traceparent"], name)
		require.NotContains(t, c.header, "Tracestate", name)
		require.NotContains(t, c.header, "X-Planted", name)
		names, err := c.verify(publicKey(t, s), time.Now())
		require.NoError(t, err, name)
		require.NotContains(t, names, "traceparent", name)
	}
	require.NotEqual(t, ofTheEvent, telemetry.Traceparent(ctx), "it is a span of its own")
	require.True(t, strings.HasPrefix(telemetry.Traceparent(ctx), ofTheEvent[:35]))
}
