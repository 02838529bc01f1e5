package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// For histograms, series returns the number of observations.
func series(t testing.TB, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestAuthenticationFailuresAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n, request := range [][]string{{"GET", jobSelf}, {"POST", clientPath("/keys")}} {
		w.send(request[0], request[1], "", "Authorization", "-").requireProblem(t, job.CodeInvalidCredentials)
		require.EqualValues(t, n+1, series(t, w.registry)["auth_failures_total "+string(job.CodeInvalidCredentials)],
			"refusals by a use case are counted")
	}
	before := w.log.String()
	w.Store.Close()
	require.GreaterOrEqual(t, w.send("GET", jobSelf, "").StatusCode, 500)
	require.NotContains(t, w.log.String()[len(before):], "authentication failed", "a storage failure is not a failed authentication")
}

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	unsampled   = "00-" + clientTrace + "-" + clientSpan + "-00"
)

func traced(t testing.TB) (with func(*Config, *Deps), spans func() tracetest.SpanStubs) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	return func(_ *Config, d *Deps) { d.Tracer = provider.Tracer(telemetry.Scope) }, func() tracetest.SpanStubs {
		defer exporter.Reset()
		return exporter.GetSpans()
	}
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func one(t testing.TB, spans tracetest.SpanStubs) tracetest.SpanStub {
	t.Helper()
	require.Len(t, spans, 1)
	return spans[0]
}

func TestEveryRouteHasItsSpan(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	for _, rt := range w.server.Routes {
		a := w.try(rt, "Traceparent", traceparent)
		if rt.Access == httpkit.Public {
			require.Empty(t, spans(), rt.Path)
			continue
		}
		all := spans() // the request's span ends last
		s := all[len(all)-1]
		require.Equal(t, []any{rt.Method + " " + rt.Path, trace.SpanKindServer, codes.Unset, clientTrace, clientSpan, true}, []any{
			s.Name, s.SpanKind, s.Status.Code, s.SpanContext.TraceID().String(), s.Parent.SpanID().String(), s.Parent.IsRemote()})
		got := attributesOf(s)
		for name, value := range map[string]string{
			"http.request.method": rt.Method, "http.route": rt.Path, "http.response.status_code": attribute.IntValue(rt.Success).String(),
			"forgerun.request_id": a.Header.Get("X-Request-Id"),
		} {
			require.Equal(t, value, got[name], "%s: %s", rt.Path, name)
		}
		for name, id := range got {
			if strings.HasSuffix(name, "_id") && name != "forgerun.request_id" {
				require.Contains(t, backend.ClientA.String()+examplePath(rt)+exampleBody(rt)+a.Header.Get("Location")+a.text, id)
			}
		}
		if resource, _, found := strings.Cut(rt.Path, "/:id"); found && rt.Access == httpkit.ClientKey && !strings.Contains(resource, "testbed") {
			require.Greater(t, len(got), 5, "%s: the id in the path", rt.Path)
		}
	}
	w.send("GET", "/v1/nothing", "", "Traceparent", traceparent)
	w.send("PUT", "/v1/jobs", "", "Traceparent", traceparent)
	require.Empty(t, spans(), "unmatched requests are not traced")

	// If an operator sends the request, the span still names the client in the path.
	for _, path := range []string{clientPath("/keys"), clientPath("/keys/renew")} {
		w.send("POST", path, "", "Authorization", "Bearer "+adminKey)
		require.Equal(t, backend.ClientA.String(), attributesOf(one(t, spans()))["forgerun.client_id"], path)
	}
	w.send("POST", clientPath("/keys/revoke"), `{"key_id":"`+goodKey+`"}`).requireProblem(t, job.CodeRequestNotFound)
	require.NotContains(t, attributesOf(one(t, spans())), "forgerun.key_id", "an unknown key id is not recorded")
}

func clientPath(rest string) string { return "/v1/clients/" + backend.ClientA.String() + rest }

// A valid traceparent decides which trace a request belongs to and whether it is sampled. The job's trace continues from the request's
// span.
func TestParentsOfSpans(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	for parent, trace := range map[string]string{ // traceparent and expected trace id; "": a new trace, "none": not recorded
		"-": "", traceparent: clientTrace, unsampled: "none", traceparent[:53] + "fd": clientTrace, traceparent[:53] + "fc": "none",
		"01" + traceparent[2:] + "-more": clientTrace, "": "", strings.ToUpper(traceparent): "",
		"01" + traceparent[2:] + "-" + strings.Repeat("x", 9000): "", "twice": "",
	} {
		headers := []string{"Traceparent", parent}
		if parent == "twice" {
			headers = []string{"Traceparent", traceparent, "Traceparent", traceparent}
		}
		j := w.made(w.submit("", headers...))
		if trace == "none" {
			require.Empty(t, spans())
			require.Equal(t, parent, j.TraceParent, "as the client sent it")
			continue
		}
		all := spans()
		s := all[len(all)-1] // the request's span ends last
		require.Equal(t, s.SpanContext.TraceID().String(), j.TraceParent[3:35])
		require.Equal(t, trace, j.CorrelationID, "a trace started by the server is no correlation id")
		require.Equal(t, trace != "", s.Parent.IsValid(), parent)
		require.Equal(t, trace == clientTrace, s.SpanContext.TraceID().String() == clientTrace)
		require.Equal(t, trace == clientTrace, s.Parent.SpanID().String() == clientSpan)
	}
	untraced := newWorldOn(t, w.Service, func(_ *Config, d *Deps) { d.Tracer = noop.Tracer{} })
	require.Equal(t, traceparent, untraced.made(untraced.submit("", "Traceparent", traceparent)).TraceParent)
}

func TestFailuresInSpans(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	var refusal func() error
	w := newKit(t, func(*httpkit.Request) error { return refusal() }, with)
	for _, test := range []struct {
		change func() error
		key    string
		code   job.Code
		says   string // text in the span's status; "": no error
	}{
		{func() error { return job.Errorf(job.CodeJobNotFound, "No.") }, goodKey, job.CodeJobNotFound, ""},
		{nil, "nonsense", job.CodeInvalidCredentials, ""},
		{func() error { return errors.New("odd") }, goodKey, job.CodeInternal, "odd"},
		{func() error { panic("planted") }, goodKey, job.CodeInternal, "panic: planted"},
	} {
		refusal = test.change
		w.submit("", "Authorization", "Bearer "+test.key).requireProblem(t, test.code)
		s := one(t, spans())
		got := attributesOf(s)
		require.Equal(t, string(test.code), got["forgerun.error_code"])
		require.Equal(t, attribute.IntValue(test.code.Spec().Status).String(), got["http.response.status_code"])
		if test.says == "" {
			require.Equal(t, codes.Unset, s.Status.Code)
			require.NotContains(t, got, "error.type")
			continue
		}
		require.Equal(t, codes.Error, s.Status.Code)
		require.Contains(t, s.Status.Description, test.says)
		require.Equal(t, string(test.code), got["error.type"])
		require.NotContains(t, s.Status.Description, "goroutine", "stacks are only logged")
	}
}

func TestUnauthenticatedCallersDoNotDecideSampling(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	for _, authorization := range []string{"Bearer " + backend.RevokedKey, "Bearer nonsense", "nonsense", ""} {
		require.GreaterOrEqual(t, w.send("GET", "/v1/jobs", "", "Traceparent", traceparent, "Authorization", authorization).StatusCode, 401)
		s := one(t, spans())
		require.False(t, s.Parent.IsValid(), authorization)
		require.NotEqual(t, clientTrace, s.SpanContext.TraceID().String())
		require.Len(t, s.Links, 1)
		require.Equal(t, clientTrace, s.Links[0].SpanContext.TraceID().String())
	}
}
