package monitoring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

// Tracing configures the export of spans. The OpenTelemetry SDK reads their destination and sampling from its standard environment
// variables.
type Tracing struct {
	Protocol string // "http/protobuf" or "grpc"
	// Role and Version become resource attributes of the traces.
	Role, Version string
	Log           *slog.Logger          // nil: nothing is logged
	Registry      prometheus.Registerer // registry of the span counters; nil: spans are not counted
}

// NewTracing returns the tracer provider and a shutdown function. Shutdown sends the buffered spans, until its context ends. Spans are sent
// in the background from a buffer. When the buffer is full, spans are dropped. So if the collector is down or hangs, spans are lost, but
// the process is never delayed.
func NewTracing(ctx context.Context, cfg Tracing) (trace.TracerProvider, func(context.Context) error, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	routeOtelLog(cfg.Log)
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithService(), // adds the id of this process
		resource.WithAttributes(
			semconv.ServiceName("forgerun"), semconv.ServiceVersion(cfg.Version), attribute.String("forgerun.role", cfg.Role),
		),
		resource.WithFromEnv(), // the environment takes precedence over the attributes above
	)
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := newExporter(ctx, cfg.Protocol)
	if err != nil {
		return nil, nil, fmt.Errorf("sending traces by OTLP: %w", err)
	}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(cfg.Registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	batches := sdktrace.NewBatchSpanProcessor(&reporter{
		SpanExporter: exporter, log: cfg.Log, lines: rate.Sometimes{Interval: time.Minute},
		sent:   counter("trace_spans_sent_total", "Spans that the collector accepted."),
		failed: counter("trace_spans_failed_total", "Spans that could not be sent to the collector."),
	})
	all := counter("trace_spans_ended_total", "Recorded spans that have ended. Those neither sent nor failed are waiting or were dropped.")
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended{batches, all}), sdktrace.WithResource(about))
	return provider, provider.Shutdown, nil
}

func newExporter(ctx context.Context, protocol string) (sdktrace.SpanExporter, error) {
	switch protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx, otlptracehttp.WithProxy(proxyForCollector))
	case "grpc":
		return otlptracegrpc.New(ctx, otlptracegrpc.WithDialOption(grpc.WithNoProxy()))
	}
	return nil, fmt.Errorf("unsupported protocol %q: use http/protobuf or grpc", protocol)
}

var errRedirect = errors.New("the collector returns a redirect, which is not followed: set the collector's final address")

// proxyForCollector is the Proxy function of the exporter. It ignores the proxy of the environment, because only the collector may see the
// spans and the request's headers. net/http also calls proxyForCollector before it follows a redirect. proxyForCollector then returns an
// error, so redirects are not followed.
func proxyForCollector(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errRedirect
	}
	return nil, nil
}

type reporter struct {
	sdktrace.SpanExporter
	log          *slog.Logger
	lines        rate.Sometimes
	lost         atomic.Int64 // spans not sent since the last line in the log
	sent, failed prometheus.Counter
}

// ended counts all sampled spans that end, including spans that a full buffer drops.
type ended struct {
	sdktrace.SpanProcessor
	spans prometheus.Counter
}

func (e ended) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		e.spans.Inc()
	}
	e.SpanProcessor.OnEnd(s)
}

func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		r.sent.Add(float64(len(spans)))
		return nil
	}
	r.failed.Add(float64(len(spans)))
	r.lost.Add(int64(len(spans)))
	r.lines.Do(func() {
		r.log.Warn("spans could not be sent", "action", "trace", "spans", r.lost.Swap(0), "error_message", clip(err.Error()))
	})
	return nil
}

func clip(text string) string {
	const limit = 500
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

var otelOnce sync.Once

// routeOtelLog sets the logger and the error handler of OpenTelemetry. The whole process shares them, so only the first call has an
// effect.
func routeOtelLog(log *slog.Logger) {
	otelOnce.Do(func() {
		log := log.With("component", "opentelemetry")
		otel.SetLogger(logr.FromSlogHandler(otelLog{log.Handler()}))
		lines, errs := rate.Sometimes{Interval: time.Minute}, atomic.Int64{}
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			errs.Add(1)
			lines.Do(func() {
				log.Warn("the OpenTelemetry library reported errors", "action", "trace", "errors", errs.Swap(0), "error_message", clip(err.Error()))
			})
		}))
	})
}

// otelLog drops all attributes except "file", since OpenTelemetry logs the values of its environment variables, including passwords.
type otelLog struct{ handler slog.Handler }

// otelLevel maps level -1, which OpenTelemetry uses for warnings, to the level of warnings.
func otelLevel(level slog.Level) slog.Level {
	if level == -1 {
		return slog.LevelWarn
	}
	return level
}

func (l otelLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler.Enabled(ctx, otelLevel(level))
}

func (l otelLog) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, otelLevel(r.Level), r.Message, 0)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "file" {
			line.AddAttrs(a)
		}
		return true
	})
	return l.handler.Handle(ctx, line)
}

func (l otelLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l otelLog) WithGroup(string) slog.Handler { return l }
