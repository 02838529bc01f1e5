package handlers

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
	usual        map[string]usualAnswer // by a route's action
}

// usualAnswer is the good answer of a route, whose metrics need not be looked up
// each time.
type usualAnswer struct {
	method   string
	status   int
	requests prometheus.Counter
	duration prometheus.Observer
}

// newMetrics makes the metrics of the HTTP side, with the usual answer of each
// route from zero. Labels come from the route table, never from the client's
// text.
func newMetrics(f telemetry.Factory, routes []route) *metrics {
	m := &metrics{
		requests: f.Counters("http_requests_total",
			"HTTP requests answered, by route pattern, method and status.", []string{"route", "method", "code"}),
		duration: f.Histograms("http_request_duration_seconds",
			"Time from a request read to its answer made, without waits that the client asked for, by route pattern and status class.",
			telemetry.Quick, []string{"route", "code"}),
		inFlight: f.Gauge("http_requests_in_flight",
			"HTTP requests being answered now. A client that waits for its job is among them; an event stream is not, see streams_open."),
		authFailures: f.Counters("auth_failures_total",
			"Requests and streams refused for who asks, by error code.", []string{"error_code"}),
		refused: f.Counters("submissions_refused_total",
			"Submissions and retries refused for a while: too many wait for storage (overload), "+
				"the service holds as many jobs as it may (queue_full), the client sends too many (rate_limit).",
			[]string{"reason"}, "overload", "queue_full", "rate_limit"),
		usual: map[string]usualAnswer{},
	}
	for _, rt := range append(routes, *unmatchedRoute, *preflight) {
		m.usual[rt.action] = usualAnswer{
			rt.method, rt.success,
			m.requests.WithLabelValues(rt.path, rt.method, strconv.Itoa(rt.success)), m.duration.WithLabelValues(rt.path, class(rt.success)),
		}
	}
	for _, code := range authCodes {
		m.authFailures.WithLabelValues(string(code))
	}
	return m
}

func (m *metrics) observe(r *call, took time.Duration) {
	status := r.Response().StatusCode()
	if usual := m.usual[r.route.action]; usual.status == status && usual.method == r.Method() {
		usual.requests.Inc()
		telemetry.Observe(r.ctx, usual.duration, took)
		return
	}
	m.requests.WithLabelValues(r.route.path, r.Method(), strconv.Itoa(status)).Inc()
	telemetry.Observe(r.ctx, m.duration.WithLabelValues(r.route.path, class(status)), took)
}

// countRefused counts a submission that may come again later.
func (m *metrics) countRefused(r *call, code job.Code) {
	switch {
	case r.refused:
		m.refused.WithLabelValues("overload").Inc()
	case code == job.CodeQueueFull:
		m.refused.WithLabelValues("queue_full").Inc()
	case code == job.CodeRateLimited && r.route.submits():
		m.refused.WithLabelValues("rate_limit").Inc()
	}
}

// class gives the class of a status, such as 2xx.
func class(status int) string { return classes[min(status/100, len(classes)-1)] }

var classes = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}

// startSpan begins the span of a request after its authentication. The parent
// that an authenticated caller sends is continued; that of others is only linked,
// so that they do not decide what is recorded. Public routes are not traced:
// probes and documents are read all the time.
func (s *Server) startSpan(r *call) {
	if s.deps.Tracer == nil {
		return
	}
	method, path := r.Method(), r.route.path
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.start),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(path)),
	}
	_, parent := r.traceparent()
	base := r.base
	switch {
	case !parent.IsValid():
	case known(r.caller.ClientID) || r.caller.Admin:
		base = trace.ContextWithRemoteSpanContext(base, parent)
	default:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	r.base, r.span = s.deps.Tracer.Start(base, method+" "+path, options...)
	r.ctx = trace.ContextWithSpan(r.ctx, r.span)
}

// endSpan adds the answer to the request's span and ends it. That of an event
// stream ends when its answer begins: a span that is open for hours is not seen.
func (r *call) endSpan() {
	if !r.span.IsRecording() {
		return
	}
	status := r.Response().StatusCode()
	r.span.SetAttributes(semconv.HTTPResponseStatusCode(status), telemetry.RequestID.String(r.idText))
	r.setID(telemetry.ClientID, cmp.Or(r.caller.ClientID, r.client, r.claimed.ClientID))
	r.setID(telemetry.JobID, r.jobID)
	r.setID(telemetry.BatchID, r.batchID)
	r.setID(telemetry.WebhookID, r.webhook)
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

// setID adds an id to the span, if there is one.
func (r *call) setID(key attribute.Key, id job.ID) {
	if known(id) {
		r.span.SetAttributes(key.String(id.String()))
	}
}

// traceparent gives the client's header of that name and the span in it; "" and
// one that is not valid unless the header is there once and of the right form.
func (r *call) traceparent() (string, trace.SpanContext) {
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

// provenance is what the headers of a request say of where it comes from.
type provenance struct {
	language      string
	correlationID string // "" for none
	traceParent   string // of the span to go on from; "" for none
}

// errLongCorrelation refuses a correlation id over the limit, which a client could
// not find its job by (draft section 9.2).
var errLongCorrelation = job.Errorf(job.CodeValidationFailed, "The X-Correlation-ID header must be %s", decode.CorrelationForm)

// provenance reads the headers. The trace-id of traceparent wins over
// X-Correlation-ID (draft section 3.9). A correlation id that is too long is an
// error; other headers that are not of the right form are ignored.
func (s *Server) provenance(r *call) (provenance, error) {
	p := provenance{language: header.Language(r.list("Accept-Language"))}
	switch id := r.list("X-Correlation-ID"); {
	case len(id) > decode.MaxCorrelationBytes:
		return provenance{}, errLongCorrelation
	case decode.ValidCorrelation(id):
		p.correlationID = id
	case id != "":
		s.logIgnored(r, "correlation id ignored", id)
	}
	if parent, span := r.traceparent(); parent != "" {
		p.traceParent, p.correlationID = parent, span.TraceID().String()
	} else if sent := r.list("traceparent"); sent != "" {
		s.logIgnored(r, "traceparent ignored", sent)
	}
	// What is traced goes on from this request, not from the client.
	p.traceParent = cmp.Or(telemetry.Traceparent(r.ctx), p.traceParent)
	return p, nil
}

func (s *Server) logIgnored(r *call, message, value string) {
	s.log.LogAttrs(r.ctx, slog.LevelWarn, message,
		slog.String("request_id", r.idText), slog.String("client_id", idOrEmpty(r.caller.ClientID)),
		slog.String("action", r.route.action), slog.String("value", strconv.QuoteToASCII(header.Clip(value))))
}

// complete adds to req what does not come from its body. The correlation id of
// the headers wins over that of the body.
func (p provenance) complete(req *job.Request) {
	req.Language, req.TraceParent = p.language, p.traceParent
	if p.correlationID != "" {
		req.CorrelationID = p.correlationID
	}
}
