package handlers

import (
	"cmp"
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/telemetry"
)

// startSpan begins the span of a request, below the one that the client tells
// of. What is public is not traced: probes and documents are asked for all the
// time, and by everybody.
func (s *Server) startSpan(r *call) {
	r.base, r.span = s.base, noop.Span{}
	if s.deps.Tracer == nil || r.route.access == public {
		return
	}
	parent, _ := r.traceparent()
	method, path := r.Method(), r.route.path
	r.base, r.span = s.deps.Tracer.Start(withClientSpan(s.base, parent), method+" "+path, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path)))
}

// endSpan tells in the request's span how it was answered, and ends it. That of
// an event stream ends here too, when its answer begins: nobody would see a span
// that is open for hours.
func (r *call) endSpan() {
	if !r.span.IsRecording() {
		return
	}
	status := r.Response().StatusCode()
	r.span.SetAttributes(semconv.HTTPResponseStatusCode(status), telemetry.RequestID.String(r.id.String()))
	r.tellID(telemetry.ClientID, cmp.Or(r.caller.ClientID, r.client, r.claimed.ClientID))
	r.tellID(telemetry.JobID, r.jobID)
	r.tellID(telemetry.BatchID, r.batchID)
	r.tellID(telemetry.WebhookID, r.webhook)
	if r.keyID != "" {
		r.span.SetAttributes(telemetry.KeyID.String(r.keyID))
	}
	if r.failed != nil {
		code := string(r.failed.Code)
		r.span.SetAttributes(telemetry.ErrorCode.String(code))
		if status >= 500 {
			r.span.SetAttributes(semconv.ErrorTypeKey.String(code))
		}
	}
	r.span.End()
}

// tellID adds an id to the span, if there is one.
func (r *call) tellID(key attribute.Key, id job.ID) {
	if known(id) {
		r.span.SetAttributes(key.String(id.String()))
	}
}

// traceparent gives the client's header of that name (W3C Trace Context) and
// the trace-id in it. Both are "" unless the header is there once and of the
// right form.
func (r *call) traceparent() (parent, traceID string) {
	lines := r.Request().Header.PeekAll("traceparent")
	if len(lines) != 1 {
		return "", ""
	}
	parent = string(lines[0])
	traceID, ok := traceIDOf(parent)
	if !ok {
		return "", ""
	}
	return parent, traceID
}

// withClientSpan makes the span that a valid traceparent tells of the parent of
// what begins in the context. "" stands for none. Flags that are not defined are
// left out, as the standard asks.
func withClientSpan(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	traceID, _ := trace.TraceIDFromHex(traceparent[3:35])
	spanID, _ := trace.SpanIDFromHex(traceparent[36:52])
	flags, _ := strconv.ParseUint(traceparent[53:55], 16, 8)
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & (trace.FlagsSampled | trace.FlagsRandom),
	}))
}
