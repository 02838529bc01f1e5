package httpkit

import (
	"cmp"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	inFlight     prometheus.Gauge
	authFailures *prometheus.CounterVec
	refused      *prometheus.CounterVec
}

// The metrics for each route's usual status exist from the start, with the value 0. Labels come from the route table, never from client
// input.
func newMetrics(f telemetry.Factory, routes []Route) *metrics {
	m := &metrics{
		requests: f.Counters("http_requests_total",
			"HTTP requests with a response, by route pattern, method and status.", []string{"route", "method", "code"}),
		duration: f.Histograms("http_request_duration_seconds",
			"Time from reading a request to its response, without waits that the client asked for, by route pattern and status class.",
			telemetry.Quick, []string{"route", "code"}),
		inFlight: f.Gauge("http_requests_in_flight",
			"HTTP requests in progress, including clients that wait for a job. Event streams are counted in streams_open instead."),
		authFailures: f.Counters("auth_failures_total",
			"Requests and streams refused because of their credentials, by error code.", []string{"error_code"}),
		refused: f.Counters("submissions_refused_total",
			"Submissions and retries refused temporarily, by reason: overload (too many wait for storage), "+
				"queue_full (the service holds its maximum number of jobs), rate_limit (the client sends too many).",
			[]string{"reason"}, "overload", "queue_full", "rate_limit"),
	}
	for _, rt := range append(routes, *unmatchedRoute, *preflight) {
		m.requests.WithLabelValues(rt.Path, rt.Method, strconv.Itoa(rt.Success))
		m.duration.WithLabelValues(rt.Path, class(rt.Success))
	}
	for _, code := range authCodes {
		m.authFailures.WithLabelValues(string(code))
	}
	return m
}

func (m *metrics) observe(r *Request, took time.Duration) {
	status := r.Response().StatusCode()
	m.requests.WithLabelValues(r.Route.Path, r.Method(), strconv.Itoa(status)).Inc()
	telemetry.Observe(r.Ctx, m.duration.WithLabelValues(r.Route.Path, class(status)), took)
}

func (m *metrics) countRefused(r *Request, code job.Code) {
	switch {
	case r.refused == overloaded:
		m.refused.WithLabelValues("overload").Inc()
	case code == job.CodeQueueFull:
		m.refused.WithLabelValues("queue_full").Inc()
	case code == job.CodeRateLimited && r.Route.submits():
		m.refused.WithLabelValues("rate_limit").Inc()
	}
}

func class(status int) string { return classes[min(status/100, len(classes)-1)] }

var classes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}

// startSpan starts the span of a request after its authentication. For an authenticated caller, the span continues the caller's trace.
// Otherwise the span only links to that trace, so a stranger cannot decide what is sampled. Public routes are not traced because probes
// call them all the time.
func (s *Kit) startSpan(r *Request) {
	if s.Tracer == nil {
		return
	}
	method, path := r.Method(), r.Route.Path
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Start),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path)),
	}
	_, parent := r.Traceparent()
	base := r.Base
	switch {
	case !parent.IsValid():
	case Known(r.Caller.ClientID) || r.Caller.Admin:
		base = trace.ContextWithRemoteSpanContext(base, parent)
	default:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	r.Base, r.Span = s.Tracer.Start(base, method+" "+path, options...)
	r.Ctx = trace.ContextWithSpan(r.Ctx, r.Span)
}

// endSpan adds the response to the request's span and ends it. The span of an event stream ends when the response begins, because spans are
// exported only at their end.
func (r *Request) endSpan() {
	if !r.Span.IsRecording() {
		return
	}
	status := r.Response().StatusCode()
	r.Span.SetAttributes(semconv.HTTPResponseStatusCode(status), telemetry.RequestID.String(r.ID))
	if id := cmp.Or(r.Caller.ClientID, r.Claimed.ClientID); Known(id) {
		r.Span.SetAttributes(telemetry.ClientID.String(id.String()))
	}
	for _, s := range r.subjects {
		r.Span.SetAttributes(attribute.String("forgerun."+s.name, s.id.String()))
	}
	if r.Failed != nil {
		code := string(r.Failed.Code)
		r.Span.SetAttributes(telemetry.ErrorCode.String(code))
		if status >= 500 {
			r.Span.SetAttributes(semconv.ErrorTypeKey.String(code))
		}
	}
	r.Span.End()
}

// Traceparent returns the client's traceparent header and its span. If there is not exactly one valid header, it returns "" and an invalid
// span.
func (r *Request) Traceparent() (string, trace.SpanContext) {
	lines := r.Request().Header.PeekAll("traceparent")
	if len(lines) != 1 {
		return "", trace.SpanContext{}
	}
	value := string(lines[0])
	span := header.Traceparent(value)
	if !span.IsValid() {
		return "", span
	}
	return value, span
}

// Provenance has the language and tracing data of a request's headers.
type Provenance struct {
	Language      string
	CorrelationID string // may be ""
	TraceParent   string // traceparent of the span to continue; may be ""
}

// Long correlation ids are refused and not truncated: the client could not find its job by a truncated id
// (async-problem-details, section 9.2).
var errLongCorrelation = job.Errorf(job.CodeValidationFailed, "The X-Correlation-ID header must be %s", decode.CorrelationForm)

// Provenance parses the headers. The trace-id of traceparent has priority over X-Correlation-ID (async-problem-details, section 3.9). A
// correlation id that is too long is an error; other malformed headers are ignored.
func (r *Request) Provenance() (Provenance, error) {
	p := Provenance{Language: header.Language(r.List("Accept-Language"))}
	switch id := r.List("X-Correlation-ID"); {
	case len(id) > decode.MaxCorrelationBytes:
		return Provenance{}, errLongCorrelation
	case decode.ValidCorrelation(id):
		p.CorrelationID = id
	case id != "":
		r.logIgnored("correlation id ignored", id)
	}
	if parent, span := r.Traceparent(); parent != "" {
		p.TraceParent, p.CorrelationID = parent, span.TraceID().String()
	} else if sent := r.List("traceparent"); sent != "" {
		r.logIgnored("traceparent ignored", sent)
	}
	// The job's trace continues from the span of this request, not from the client's span.
	p.TraceParent = cmp.Or(telemetry.Traceparent(r.Ctx), p.TraceParent)
	return p, nil
}

func (r *Request) logIgnored(message, value string) {
	r.Kit.Logger.LogAttrs(r.Ctx, slog.LevelWarn, message,
		slog.String("request_id", r.ID), slog.String("client_id", idOrEmpty(r.Caller.ClientID)),
		slog.String("action", r.Route.Action), slog.String("value", strconv.QuoteToASCII(header.Clip(value))))
}

// Complete copies the language and tracing data to req. A correlation id from the headers has priority over one from the body.
func (p Provenance) Complete(req *job.Request) {
	req.Language, req.TraceParent = p.Language, p.TraceParent
	if p.CorrelationID != "" {
		req.CorrelationID = p.CorrelationID
	}
}
