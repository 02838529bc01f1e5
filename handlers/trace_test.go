package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	unsampled   = "00-" + clientTrace + "-" + clientSpan + "-00"
)

// traced gives a server a tracer, and what it has recorded.
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

// one is the only span there is.
func one(t testing.TB, spans tracetest.SpanStubs) tracetest.SpanStub {
	t.Helper()
	require.Len(t, spans, 1)
	return spans[0]
}

func TestEveryRouteHasItsSpan(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with).full()
	for _, rt := range w.server.Routes {
		a := w.try(rt, "Traceparent", traceparent)
		if rt.Access == httpkit.Public {
			require.Empty(t, spans(), rt.Path)
			continue
		}
		s := one(t, spans())
		require.Equal(t, rt.Method+" "+rt.Path, s.Name)
		require.Equal(t, trace.SpanKindServer, s.SpanKind)
		require.Equal(t, codes.Unset, s.Status.Code)
		require.Equal(t, clientTrace, s.SpanContext.TraceID().String())
		require.Equal(t, clientSpan, s.Parent.SpanID().String())
		require.True(t, s.Parent.IsRemote())
		want := map[string]string{
			"http.request.method": rt.Method, "http.route": rt.Path, "forgerun.client_id": clientA.String(),
			"http.response.status_code": attribute.IntValue(rt.Success).String(), "forgerun.request_id": a.Header.Get("X-Request-Id"),
		}
		switch {
		case rt.Path == "/v1/jobs/batch", strings.HasPrefix(rt.Path, "/v1/batches"):
			want["forgerun.batch_id"] = batchID.String()
		case rt.Path == "/v1/jobs" && rt.Method == "POST", strings.HasPrefix(rt.Path, "/v1/jobs/"),
			strings.HasSuffix(rt.Path, "/trigger"):
			want["forgerun.job_id"] = jobID.String()
		case rt.Path == "/v1/bulk" && rt.Method == "POST", strings.HasPrefix(rt.Path, "/v1/bulk/"):
			want["forgerun.bulk_id"] = bulkID.String()
		}
		if rt.Path == "/v1/schedules" && rt.Method == "POST" || strings.HasPrefix(rt.Path, "/v1/schedules/") {
			want["forgerun.schedule_id"] = scheduleID.String()
		}
		switch {
		case rt.Path == "/v1/webhooks" && rt.Method == "POST", strings.HasPrefix(rt.Path, "/v1/webhooks/"):
			want["forgerun.webhook_id"] = webhookID.String()
		case strings.Contains(rt.Path, "/keys"):
			want["forgerun.key_id"] = "abc"
		}
		require.Equal(t, want, attributesOf(s), rt.Path)
	}
	w.send("GET", "/v1/nothing", "", "Traceparent", traceparent)
	w.send("PUT", "/v1/jobs", "", "Traceparent", traceparent)
	require.Empty(t, spans(), "only the routes are traced")

	w.send("HEAD", jobSelf, "")
	require.Equal(t, "HEAD /v1/jobs/:id", one(t, spans()).Name)

	// Who is meant by a call to keys is said also where the caller is the operator.
	for path, body := range map[string]string{
		"/v1/clients": "", clientPath("/keys"): `{"rotate":true}`, clientPath("/keys/renew"): "", clientPath("/keys/revoke"): `{"key_id":"abc"}`,
	} {
		w.send("POST", path, body, "Authorization", "Bearer "+adminKey)
		require.Equal(t, clientA.String(), attributesOf(one(t, spans()))["forgerun.client_id"], path)
	}
	w.clients.err = job.Errorf(job.CodeForbidden, "No.")
	w.send("POST", clientPath("/keys/revoke"), `{"key_id":"`+goodKey+`"}`).requireProblem(t, job.CodeForbidden)
	require.NotContains(t, attributesOf(one(t, spans())), "forgerun.key_id", "it is the client's text only")
}

func clientPath(rest string) string { return "/v1/clients/" + clientA.String() + rest }

// A good traceparent decides what is recorded, and by which trace; the job goes on from the request.
func TestParentsOfSpans(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	got := w.capture()
	for parent, trace := range map[string]string{ // of clients; "": a new one, "none": nothing is recorded
		"-": "", traceparent: clientTrace, unsampled: "none", traceparent[:53] + "fd": clientTrace, traceparent[:53] + "fc": "none",
		"01" + traceparent[2:] + "-more": clientTrace, "": "", strings.ToUpper(traceparent): "",
		"01" + traceparent[2:] + "-" + strings.Repeat("x", 9000): "", "twice": "",
	} {
		headers := []string{"Traceparent", parent}
		if parent == "twice" {
			headers = []string{"Traceparent", traceparent, "Traceparent", traceparent}
		}
		require.Equal(t, 202, w.submit("", headers...).StatusCode)
		if trace == "none" {
			require.Empty(t, spans())
			require.Equal(t, parent, got.TraceParent, "as the client sent it")
			continue
		}
		s := one(t, spans())
		require.Equal(t, "00-"+s.SpanContext.TraceID().String()+"-"+s.SpanContext.SpanID().String()+"-01", got.TraceParent)
		require.Equal(t, trace, got.CorrelationID, "a trace of the server's own correlates nothing of the client's")
		require.Equal(t, trace != "", s.Parent.IsValid(), parent)
		require.Equal(t, trace == clientTrace, s.SpanContext.TraceID().String() == clientTrace)
		require.Equal(t, trace == clientTrace, s.Parent.SpanID().String() == clientSpan)
	}
	w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"EXECUTE"}]}`, "Traceparent", traceparent)
	s := one(t, spans())
	for _, item := range w.batches.got.Items {
		require.Equal(t, "00-"+clientTrace+"-"+s.SpanContext.SpanID().String()+"-01", item.Request.TraceParent)
	}

	untraced := newWorld(t, func(_ *Config, d *Deps) { d.Tracer = noop.Tracer{} })
	got = untraced.capture()
	untraced.submit("", "Traceparent", traceparent)
	require.Equal(t, traceparent, got.TraceParent)
}

func TestFailuresInSpans(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	for _, test := range []struct {
		change func() error
		key    string
		code   job.Code
		says   string // the span; "": it is no error
	}{
		{func() error { return errNoJob }, goodKey, job.CodeJobNotFound, ""},
		{nil, "nonsense", job.CodeInvalidCredentials, ""},
		{func() error { return job.Errorf(job.CodeStorageUnavailable, "It cannot be reached.") }, goodKey, job.CodeStorageUnavailable,
			"cannot be reached"},
		{func() error { return errors.New("odd") }, goodKey, job.CodeInternal, "odd"},
		{func() error { panic("planted") }, goodKey, job.CodeInternal, "panic: planted"},
	} {
		w.jobs.change = func(context.Context, job.ID, job.ID) (job.Change, error) { return job.Change{}, test.change() }
		w.send("POST", jobSelf+"/retry", "", "Authorization", "Bearer "+test.key).requireProblem(t, test.code)
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
		require.NotContains(t, s.Status.Description, "goroutine", "stacks are for the log")
	}
}

// The key is looked at before a wait and after it.
func TestTheSpanSurvivesAWait(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	var heard []trace.SpanContext
	w.clients.seen = func(ctx context.Context, _ string) { heard = append(heard, trace.SpanContextFromContext(ctx)) }
	waitFor(w, job.Succeeded)
	require.Equal(t, 200, w.submit("", "Prefer", "wait=5", "Traceparent", traceparent).StatusCode)
	s := one(t, spans())
	require.GreaterOrEqual(t, len(heard), 2)
	require.False(t, heard[0].IsValid(), "who it is decides whether the span goes on from the client's")
	require.Equal(t, s.SpanContext.SpanID(), heard[len(heard)-1].SpanID())
	require.Len(t, s.Events, 2)
	require.Equal(t, []string{"wait", "waited"}, []string{s.Events[0].Name, s.Events[1].Name})
}

// Whoever is not known does not decide what is recorded.
func TestUnauthenticatedCallersDoNotDecideWhatIsTraced(t *testing.T) {
	t.Parallel()
	with, spans := traced(t)
	w := newWorld(t, with)
	for _, authorization := range []string{"Bearer revoked", "Bearer nonsense", "nonsense", ""} {
		require.GreaterOrEqual(t, w.send("GET", "/v1/jobs", "", "Traceparent", traceparent, "Authorization", authorization).StatusCode, 401)
		s := one(t, spans())
		require.False(t, s.Parent.IsValid(), authorization)
		require.NotEqual(t, clientTrace, s.SpanContext.TraceID().String())
		require.Len(t, s.Links, 1)
		require.Equal(t, clientTrace, s.Links[0].SpanContext.TraceID().String())
	}
}
