package handlers

import (
	"cmp"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// startSpan begins the span of a request whose sender was looked at. It goes on
// from the span that a caller tells of who is known. Others do not decide what
// is recorded: their requests only point to it. What is public is not traced:
// probes and documents are asked for all the time, and by everybody.
func (s *Server) startSpan(r *call) {
	if s.deps.Tracer == nil {
		return
	}
	method, path := r.Method(), r.route.path
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.start),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path)),
	}
	parent, _ := r.traceparent()
	base := s.base
	switch above := spanOf(parent); {
	case !above.IsValid():
	case known(r.caller.ClientID) || r.caller.Admin:
		base = trace.ContextWithRemoteSpanContext(base, above)
	default:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: above}))
	}
	r.base, r.span = s.deps.Tracer.Start(base, method+" "+path, options...)
	r.ctx = trace.ContextWithSpan(r.ctx, r.span)
}

// endSpan tells in the request's span how it was answered, and ends it. That of
// an event stream ends here too, when its answer begins: nobody would see a span
// that is open for hours.
func (r *call) endSpan() {
	if !r.span.IsRecording() {
		return
	}
	status := r.Response().StatusCode()
	r.span.SetAttributes(semconv.HTTPResponseStatusCode(status), telemetry.RequestID.String(r.idText))
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

// spanOf is the span that a valid traceparent tells of; "" stands for none.
// Flags that are not defined are left out, as the standard asks.
func spanOf(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	traceID, _ := trace.TraceIDFromHex(traceparent[3:35])
	spanID, _ := trace.SpanIDFromHex(traceparent[36:52])
	flags, _ := strconv.ParseUint(traceparent[53:55], 16, 8)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & (trace.FlagsSampled | trace.FlagsRandom), Remote: true,
	})
}
