package handlers

import (
	"context"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// series are the values in a registry by name and label values; of histograms
// the number of observations.
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

func TestMetricsFromZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := map[string]float64{
		"http_requests_total 404 GET unmatched": 0, "http_request_duration_seconds 4xx unmatched": 0,
		"http_requests_total 204 OPTIONS preflight": 0, "http_request_duration_seconds 2xx preflight": 0,
		"http_requests_in_flight": 0, "streams_open job": 0, "streams_open client": 0, "stream_events_sent_total": 0,
		"auth_failures_total RFA_AUTH_INVALID_CREDENTIALS": 0, "auth_failures_total RFA_AUTH_TOKEN_EXPIRED": 0,
		"auth_attempts_failed_total": 0, "auth_attempts_refused_total address": 0, "auth_attempts_refused_total key": 0,
		"auth_failures_total RFA_AUTH_FORBIDDEN": 0, "auth_failures_total RFA_AUTH_API_KEY_DISABLED": 0,
	}
	for _, reason := range []string{"end", "client_gone", "stalled", "shutdown", "storage", "unauthorized", "internal"} {
		want["streams_closed_total "+reason] = 0
	}
	for _, reason := range []string{"overload", "queue_full", "rate_limit"} {
		want["submissions_refused_total "+reason] = 0
	}
	for _, rt := range w.server.Routes {
		want["http_requests_total "+strconv.Itoa(rt.Success)+" "+rt.Method+" "+rt.Path] = 0
		want["http_request_duration_seconds 2xx "+rt.Path] = 0
	}
	require.Equal(t, want, series(t, w.registry))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := series(t, w.registry)
	w.submit("")
	w.submit("")
	w.send("POST", "/v1/jobs", `{}`)
	w.send("GET", "/a", "")
	w.send("BREW", "/b", "")
	got := series(t, w.registry)
	for name, n := range zero {
		if got[name] == n {
			delete(got, name)
		}
	}
	require.Equal(t, map[string]float64{
		"http_requests_total 202 POST /v1/jobs":       2,
		"http_requests_total 400 POST /v1/jobs":       1,
		"http_requests_total 404 GET unmatched":       1,
		"http_requests_total 501 OTHER unmatched":     1,
		"http_request_duration_seconds 2xx /v1/jobs":  2,
		"http_request_duration_seconds 4xx /v1/jobs":  1,
		"http_request_duration_seconds 4xx unmatched": 1,
		"http_request_duration_seconds 5xx unmatched": 1,
	}, got)
}

func TestRequestsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inFlight := func() float64 { return series(t, w.registry)["http_requests_in_flight"] }
	var during float64
	for _, submit := range []func() (job.Receipt, error){
		func() (job.Receipt, error) { return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil },
		func() (job.Receipt, error) { return job.Receipt{}, job.Errorf(job.CodeStorageUnavailable, "away") },
		func() (job.Receipt, error) { panic("planted") },
	} {
		w.jobs.submit = func(context.Context, job.Request) (job.Receipt, error) {
			during = inFlight()
			return submit()
		}
		w.submit("")
		require.Equal(t, 1.0, during)
		require.Zero(t, inFlight())
	}
	w.submit("", "Authorization", "-")
	w.send("GET", "/nothing", "")
	require.Zero(t, inFlight())
	th := newStreamServer(t)
	th.open(clientStream)
	testkit.Eventually(t, "an open stream is not in flight", func() bool { return series(t, th.registry)["http_requests_in_flight"] == 0 })
}

func TestAuthenticationFailuresAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failures := func(code job.Code) float64 {
		return series(t, w.registry)["auth_failures_total "+string(code)]
	}
	for header, code := range map[string]job.Code{
		"-": job.CodeInvalidCredentials, "Bearer expired": job.CodeTokenExpired, "Bearer revoked": job.CodeKeyDisabled,
		"Bearer " + adminKey: job.CodeForbidden,
	} {
		w.send("GET", jobSelf, "", "Authorization", header).requireProblem(t, code)
		require.Equal(t, 1.0, failures(code))
	}
	w.clients.err = job.Errorf(job.CodeForbidden, "Registration is closed.")
	w.send("POST", "/v1/clients", "", "Authorization", "-").requireProblem(t, job.CodeForbidden)
	require.Equal(t, 2.0, failures(job.CodeForbidden), "what a use case refuses counts as well")
	w.send("GET", jobSelf, "").requireProblem(t, job.CodeJobNotFound)
	before := w.log.String()
	w.clients.down = job.Errorf(job.CodeStorageUnavailable, "Storage cannot be reached.")
	w.send("GET", jobSelf, "").requireProblem(t, job.CodeStorageUnavailable)
	require.NotContains(t, w.log.String()[len(before):], "authentication failed", "it is not the client's fault")
	require.Equal(t, []float64{1, 1, 1, 2}, []float64{failures(job.CodeInvalidCredentials), failures(job.CodeTokenExpired),
		failures(job.CodeKeyDisabled), failures(job.CodeForbidden)})
}

func TestDurationsHaveExemplars(t *testing.T) {
	t.Parallel()
	with, _ := traced(t)
	w := newWorld(t, with)
	w.submit("", "Traceparent", traceparent)
	families, err := w.registry.Gather()
	require.NoError(t, err)
	var ids []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); e != nil {
					ids = append(ids, f.GetName()+" "+e.GetLabel()[0].GetName()+" "+e.GetLabel()[0].GetValue())
				}
			}
		}
	}
	require.Equal(t, []string{"http_request_duration_seconds trace_id " + clientTrace}, ids)
}
