// Package telemetry makes the metrics of other packages and starts, continues and ends their spans. The other packages decide what to
// count and trace. Package monitoring decides where the data goes.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/forgerun/forgerun"

// Span attributes specific to ForgeRun. Other attributes have the names of OpenTelemetry's semantic conventions.
const (
	JobID      = attribute.Key("forgerun.job_id")
	BatchID    = attribute.Key("forgerun.batch_id")
	ClientID   = attribute.Key("forgerun.client_id")
	KeyID      = attribute.Key("forgerun.key_id")
	RequestID  = attribute.Key("forgerun.request_id")
	WorkerID   = attribute.Key("forgerun.worker_id")
	WebhookID  = attribute.Key("forgerun.webhook_id")
	DeliveryID = attribute.Key("forgerun.delivery_id")
	EventName  = attribute.Key("forgerun.event_name")
	Attempt    = attribute.Key("forgerun.attempt")
	WorkKind   = attribute.Key("forgerun.work_kind")
	State      = attribute.Key("forgerun.state")
	BatchSize  = attribute.Key("forgerun.batch_size") // number of items in a group commit
	ErrorCode  = attribute.Key("forgerun.error_code")
)

// Names of spans. A request's span is named by its method and route.
const (
	SpanEnqueue = "enqueue job" // ends when the queue has responded
	SpanProcess = "process job" // a worker's handling of a task, from start to end
	SpanAssign  = "assign job"
	SpanRun     = "run job"
	SpanReport  = "report job"
	SpanRescue  = "rescue job" // a job is taken back from a dead worker
	SpanSubmit  = "submit job"
	SpanBatch   = "submit batch"
	SpanCancel  = "cancel job"
	SpanRetry   = "retry job"
	SpanDeliver = "deliver event" // one attempt of a delivery
	SpanCommit  = "commit "       // the name of the committed statement follows
)

// Start starts a child of ctx's span. If the span of ctx is not recorded, Start starts no span. The first span in a process comes from an
// HTTP request or from Continue.
func Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx, noop.Span{}
	}
	return span.TracerProvider().Tracer(Scope).Start(ctx, name, options...)
}

// Continue starts a child of the span that the traceparent names, even if another process started that span. It starts no span if the
// parent was not sampled, or if tracer is nil.
func Continue(
	ctx context.Context, tracer trace.Tracer, traceparent, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	parent := parse(traceparent)
	if tracer == nil || !parent.IsSampled() {
		return ctx, noop.Span{}
	}
	below, span := tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), name, options...)
	if !span.IsRecording() {
		return ctx, noop.Span{} // logs and exemplars must not name a trace that is not recorded
	}
	return below, span
}

// End ends a span. If err is not nil, the span gets the status Error.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Link links a span to the span that the traceparent names. Callers use it if they read the traceparent only after the start of the span.
func Link(span trace.Span, traceparent string) {
	if !span.IsRecording() {
		return
	}
	if to := parse(traceparent); to.IsValid() {
		span.AddLink(trace.Link{SpanContext: to})
	}
}

const header = "traceparent"

// Traceparent returns the span of ctx as a W3C traceparent, or "" if the span is not recorded.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

func parse(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: traceparent})
	return trace.SpanContextFromContext(ctx)
}
