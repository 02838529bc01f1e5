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
	"google.golang.org/grpc"
)

// Tracing configures the export of spans. Their destination and sampling are
// read by the OpenTelemetry SDK from its standard variables.
type Tracing struct {
	Protocol string // "http/protobuf" or "grpc"
	// Role and Version of the process, for the resource.
	Role, Version string
	Log           *slog.Logger          // nil for none
	Registry      prometheus.Registerer // gets counts of spans: nil for none
}

// NewTracing makes the process' tracer provider and its shutdown, which sends
// the last spans within its context. A collector that is down or hangs costs
// spans, never time: they are sent in the background from a buffer, and dropped
// when that is full.
func NewTracing(ctx context.Context, cfg Tracing) (trace.TracerProvider, func(context.Context) error, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	routeOtelLog(cfg.Log)
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithService(), // an id of this process
		resource.WithAttributes(
			semconv.ServiceName("forgerun"), semconv.ServiceVersion(cfg.Version), attribute.String("forgerun.role", cfg.Role),
		),
		resource.WithFromEnv(), // has the last word
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
		SpanExporter: exporter, log: cfg.Log, lines: throttle{every: time.Minute},
		sent:   counter("trace_spans_sent_total", "Spans that the collector took."),
		failed: counter("trace_spans_failed_total", "Spans that could not be sent."),
	})
	all := counter("trace_spans_ended_total", "Recorded spans that have ended. Those that are neither sent nor failed wait, or were dropped.")
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended{batches, all}), sdktrace.WithResource(about))
	return provider, provider.Shutdown, nil
}

func newExporter(ctx context.Context, protocol string) (sdktrace.SpanExporter, error) {
	switch protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx, otlptracehttp.WithProxy(wayToCollector))
	case "grpc":
		return otlptracegrpc.New(ctx, otlptracegrpc.WithDialOption(grpc.WithNoProxy()))
	}
	return nil, fmt.Errorf("protocol %q: http/protobuf or grpc", protocol)
}

var errRedirect = errors.New("the collector answers with a redirect, which is not followed: set its own address")

// wayToCollector has a request of spans travel directly, whatever proxy the
// environment names: spans and their headers are for the collector alone. It is
// asked for each one, also for those that net/http makes of a redirect: these
// are refused. The exporter takes no other client without losing the
// certificates of its environment.
func wayToCollector(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errRedirect
	}
	return nil, nil
}

// reporter counts the spans that are sent, and logs and counts the others.
type reporter struct {
	sdktrace.SpanExporter
	log          *slog.Logger
	lines        throttle
	sent, failed prometheus.Counter
}

// ended counts spans as they end, including those that a full buffer drops.
type ended struct {
	sdktrace.SpanProcessor
	spans prometheus.Counter
}

// OnEnd counts a recorded span and passes it on.
func (e ended) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		e.spans.Inc()
	}
	e.SpanProcessor.OnEnd(s)
}

// ExportSpans makes reporter a span exporter.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		r.sent.Add(float64(len(spans)))
		return nil
	}
	r.failed.Add(float64(len(spans)))
	if lost, due := r.lines.add(len(spans), time.Now()); due {
		r.log.Warn("spans could not be sent", "action", "trace", "spans", lost, "error_message", clip(err.Error()))
	}
	return nil
}

// clip limits the length of a collector's answer in the log.
func clip(text string) string {
	const limit = 500
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

var otelOnce sync.Once

// routeOtelLog sets the logger and the error handler of OpenTelemetry, which the
// whole process shares: the first ones stay.
func routeOtelLog(log *slog.Logger) {
	otelOnce.Do(func() {
		log := log.With("component", "opentelemetry")
		otel.SetLogger(logr.FromSlogHandler(otelLog{log.Handler()}))
		lines := throttle{every: time.Minute}
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			if n, due := lines.add(1, time.Now()); due {
				log.Warn("OpenTelemetry reports errors", "action", "trace", "errors", n, "error_message", clip(err.Error()))
			}
		}))
	})
}

// otelLog keeps only the attribute "file": OpenTelemetry logs the values of its variables, passwords included.
type otelLog struct{ handler slog.Handler }

// otelLevel raises OpenTelemetry's warnings, which have level -1.
func otelLevel(level slog.Level) slog.Level {
	if level == -1 {
		return slog.LevelWarn
	}
	return level
}

// Enabled makes otelLog a slog.Handler.
func (l otelLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler.Enabled(ctx, otelLevel(level))
}

// Handle makes otelLog a slog.Handler.
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

// WithAttrs makes otelLog a slog.Handler.
func (l otelLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup makes otelLog a slog.Handler.
func (l otelLog) WithGroup(string) slog.Handler { return l }
