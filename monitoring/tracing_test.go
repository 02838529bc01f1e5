package monitoring

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/forgerun/forgerun/internal/testkit"
)

// Tests that set environment variables of OpenTelemetry are not parallel, since all tests of the process share them.

type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu     sync.Mutex
	traces []*tracepb.ResourceSpans
}

func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces = append(r.traces, request.GetResourceSpans()...)
	return &collector.ExportTraceServiceResponse{}, nil
}

func listenGRPC(t *testing.T, r *receiver) (url string) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

func startTracing(
	t *testing.T, url, protocol string, registry prometheus.Registerer,
) (trace.Tracer, func(context.Context) error, *testkit.Output) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	var out testkit.Output
	log, err := NewLogger(&out, slog.LevelInfo, "text")
	require.NoError(t, err)
	provider, shutdown, err := NewTracing(t.Context(), Tracing{
		Protocol: protocol, Role: "worker", Version: "v1", Log: log, Registry: registry,
	})
	require.NoError(t, err)
	return provider.Tracer("test"), shutdown, &out
}

// cmd/forgerun tests spans over http/protobuf.
func TestSpansArriveOverGRPC(t *testing.T) {
	var r receiver
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=v0")
	registry := prometheus.NewRegistry()
	tracer, shutdown, out := startTracing(t, listenGRPC(t, &r), "grpc", registry)
	ctx, parent := tracer.Start(t.Context(), "parent")
	_, child := tracer.Start(ctx, "child")
	child.End()
	parent.End()
	require.NoError(t, shutdown(t.Context()))
	require.NoError(t, shutdown(t.Context()), "a second shutdown")
	require.Empty(t, out.String())

	names := map[string]string{}
	for _, spans := range r.traces {
		resource := map[string]string{}
		for _, a := range spans.GetResource().GetAttributes() {
			resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		require.Equal(t, "forgerun", resource["service.name"])
		require.Equal(t, "worker", resource["forgerun.role"])
		require.Equal(t, "test", resource["deployment.environment.name"])
		require.Equal(t, "v0", resource["service.version"], "the environment takes precedence")
		require.Len(t, resource["service.instance.id"], 36)
		for _, span := range spans.GetScopeSpans()[0].GetSpans() {
			names[span.GetName()] = string(span.GetParentSpanId())
		}
	}
	id := parent.SpanContext().SpanID()
	require.Equal(t, map[string]string{"parent": "", "child": string(id[:])}, names)

	counts := map[string]float64{}
	families := must(registry.Gather())(t)
	for _, f := range families {
		counts[f.GetName()] = f.Metric[0].GetCounter().GetValue()
	}
	require.Equal(t, map[string]float64{"trace_spans_ended_total": 2, "trace_spans_sent_total": 2, "trace_spans_failed_total": 0}, counts)
}

func deadCollectors(t *testing.T) map[string]string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	away := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, away.Close())
	return map[string]string{"hangs": "http://" + l.Addr().String(), "is down": "http://" + away.Addr().String()}
}

func TestDeadCollectorDelaysNothing(t *testing.T) {
	for name, url := range deadCollectors(t) {
		for _, protocol := range []string{"http/protobuf", "grpc"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				tracer, shutdown, out := startTracing(t, url, protocol, nil)
				for range 10_000 { // more than the buffer holds
					_, span := tracer.Start(t.Context(), "span")
					span.End()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				_ = shutdown(ctx) // returns when its context ends
				require.LessOrEqual(t, strings.Count(out.String(), "\n"), 1)
			})
		}
	}
}

type refusing struct{ sdktrace.SpanExporter }

func (refusing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("not today\nlevel=ERROR msg=forged")
}

func TestLostSpansAreCountedAndLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	log, line := newLog(t, "text")
	r := reporter{
		SpanExporter: refusing{}, log: log, lines: rate.Sometimes{Interval: time.Minute},
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "failed"}),
	}
	for range 5 {
		require.NoError(t, r.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 3)))
	}
	require.Equal(t, 15., testutil.ToFloat64(r.failed))
	require.Regexp(t, `^[^\n]*level=WARN msg="spans could not be sent" action=trace spans=3 error_message="not today.*\n$`, line())
}

func TestOtelLogContainsNoSecrets(t *testing.T) {
	t.Parallel()
	log, line := newLog(t, "text")
	otel := logr.FromSlogHandler(otelLog{log.Handler()})
	otel.Error(errors.New(`parse "http://user:secret@"`), "parse url", "input", "secret")
	require.Regexp(t, `level=ERROR msg="parse url"\n$`, line())
	otel.Error(errors.New("no such file"), "read tls ca cert file", "file", "/etc/ca.pem")
	require.Contains(t, line(), "file=/etc/ca.pem")
	otel.WithValues("input", "secret").WithName("secret").V(1).Info("a warning", "value", "secret")
	require.Regexp(t, `level=WARN msg="a warning"\n$`, line())
	otel.V(4).Info("information for developers")
	otel.V(8).Info("and more of it")
	require.Empty(t, line())
}

func TestRedirectsOfACollectorAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	t.Cleanup(elsewhere.Close)
	redirecting := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/v1/traces", http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")
	tracer, shutdown, out := startTracing(t, redirecting.URL, "http/protobuf", nil)
	_, span := tracer.Start(t.Context(), "secret")
	span.End()
	require.NoError(t, shutdown(t.Context()))
	require.Contains(t, out.String(), "spans could not be sent")
	require.Contains(t, out.String(), "redirect")
	require.False(t, followed.Load())
}

func TestCollectorConnectionIgnoresProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	r := must(http.NewRequest(http.MethodPost, "http://collector.example:4318/v1/traces", nil))(t)
	proxy := must(proxyForCollector(r))(t)
	require.Nil(t, proxy)
}
