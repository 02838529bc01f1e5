package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// capture makes Submit keep the request.
func (w *world) capture() *job.Request {
	var got job.Request
	w.jobs.submit = func(_ context.Context, r job.Request) (job.Receipt, error) {
		got = r
		return job.Receipt{JobID: jobID, State: job.Created, CreatedAt: now, Replayed: r.IdempotencyKey == "again"}, nil
	}
	return &got
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.capture()
	const id = "0190AAAA-0000-7000-8000-00000000000C"
	a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE","params":{"a":1}}`, "X-Request-Id", id)
	require.Equal(t, 202, a.StatusCode)
	require.JSONEq(t, `{"job_id":"01890000-0000-7000-8000-000000000001","state":"CREATED","created_at":"2030-01-31T12:00:00.123456Z",
		"warnings":[{"pointer":"/params/a",
			"detail":"The work kind ignores this: it is stored and shown with the job, and changes nothing."}]}`, a.text)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, "/v1/jobs/"+jobID.String(), a.Header.Get("Location"))
	require.Equal(t, "</v1/jobs/"+jobID.String()+`>; rel="status"`, a.Header.Get("Link"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	require.Equal(t, strings.ToLower(id), a.Header.Get("X-Request-Id"))
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
	require.Empty(t, a.Header.Get("Preference-Applied"))
	require.Equal(t, `"minute";q=6000;w=60`, a.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"minute";r=5999;t=1`, a.Header.Get("RateLimit"))

	require.Equal(t, clientA, got.ClientID)
	require.Equal(t, strings.ToLower(id), got.RequestID)
	require.Equal(t, now, got.ReceivedAt)
	require.Equal(t, "en", got.Language)
	require.Zero(t, got.Hash)
}

func TestSubmitReceivedAtIsWhatStorageCanKeep(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("x", 3600)
	w := newWorld(t, func(_ *Config, d *Deps) {
		d.Clock = func() time.Time { return time.Date(2030, 1, 1, 1, 0, 0, 123456789, zone) }
	})
	got := w.capture()
	w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`)
	require.Equal(t, time.Date(2030, 1, 1, 0, 0, 0, 123456000, time.UTC), got.ReceivedAt)
}

func TestSubmitPreferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.await = func(context.Context, func(*job.Job) bool) (*job.Job, error) {
		return &job.Job{ID: jobID, State: job.Running}, nil
	}
	for prefer, applied := range map[string]string{
		"respond-async": "respond-async", "wait=5, Respond-Async": "respond-async, wait=5", "respond-async; x=1": "respond-async",
		"wait=5": "wait=5", "wait=0": "wait=0", "wait=x": "", "respond-async=1": "", "xrespond-async": "", "": "",
	} {
		a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Prefer", prefer)
		require.Equal(t, 202, a.StatusCode)
		require.Equal(t, applied, a.Header.Get("Preference-Applied"), prefer)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	tests := []struct {
		name, header, body string // "-" for no header
		want               string
	}{
		{"none", "-", "", ""},
		{"body", "-", "xyz", "xyz"},
		{"bare header", "xyz", "", "xyz"},
		{"quoted header", `"xyz"`, "", "xyz"},
		{"escapes", `"a\"b\\c"`, "", `a"b\c`},
		{"quotes inside a bare one", `a"b`, "", `a"b`},
		{"same in both", `"xyz"`, "xyz", "xyz"},
		{"longest", long, long, long},
		{"uuid", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
	}
	for _, test := range tests {
		w := newWorld(t)
		got := w.capture()
		body := `{"type":"EXECUTE"}`
		if test.body != "" {
			body = `{"type":"EXECUTE","idempotency_key":"` + test.body + `"}`
		}
		a := w.send("POST", "/v1/jobs", body, "Idempotency-Key", test.header)
		require.Equal(t, 202, a.StatusCode, test.name+a.text)
		require.Equal(t, test.want, got.IdempotencyKey, test.name)
		require.Empty(t, got.Violations, test.name)
		require.Equal(t, test.want != "", got.Hash != [32]byte{}, test.name)
		require.NotContains(t, w.log.String(), "xyz")
	}
}

func TestBadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, header := range []string{"", `""`, `"`, `"abc`, `"abc" ` + "x", `"abc";a=1`, `"a\bc"`, `"abc\`, "a b", `"a b"`, "ä",
		strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`} {
		w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Idempotency-Key", header).requireProblem(t, job.CodeMalformed)
	}
	p := w.send("POST", "/v1/jobs", `{"type":"EXECUTE","idempotency_key":"a"}`, "Idempotency-Key", "b").requireProblem(t,
		job.CodeValidationFailed)
	require.Equal(t, "/idempotency_key", p.Violations[0].Pointer)

	r, err := http.NewRequest("POST", "http://forgerun.test/v1/jobs", strings.NewReader(`{"type":"EXECUTE"}`))
	require.NoError(t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + goodKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {"a", "a"}}
	w.do(r).requireProblem(t, job.CodeMalformed)
}

func TestReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.capture()
	a := w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Idempotency-Key", "again")
	require.Equal(t, 202, a.StatusCode)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
}

// A client could not find its job by a part of its id.
func TestLongCorrelationIDIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("h", 257)
	for path, body := range map[string]string{"/v1/jobs": `{"type":"EXECUTE"}`, "/v1/jobs/batch": `{"jobs":[{"type":"EXECUTE"}]}`} {
		for _, id := range []string{long, strings.Repeat("ü ", 200)} {
			for _, trace := range []string{"-", traceparent} {
				a := w.send("POST", path, body, "X-Correlation-ID", id, "Traceparent", trace)
				a.requireProblem(t, job.CodeValidationFailed)
				require.Contains(t, a.text, "X-Correlation-ID")
			}
		}
	}
	w.send("POST", "/v1/jobs", `{"type":"EXECUTE","correlation_id":"`+long+`"}`).requireProblem(t, job.CodeValidationFailed)
}

func TestCorrelation(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	tests := []struct {
		name, trace, header, body string
		want                      string
		traced                    bool
	}{
		{"none", "-", "-", "", "", false},
		{"body", "-", "-", "b", "b", false},
		{"header over body", "-", "h", "b", "h", false},
		{"trace over all", traceparent, "h", "b", trace, true},
		{"later version", "01" + traceparent[2:] + "-more", "-", "", trace, true},
		{"bad header", "-", "h h", "b", "b", false},
		{"longest header", "-", strings.Repeat("h", 256), "b", strings.Repeat("h", 256), false},
		{"upper-case trace", strings.ToUpper(traceparent), "h", "", "h", false},
		{"version ff", "ff" + traceparent[2:], "h", "", "h", false},
		{"longer version 00", traceparent + "-more", "h", "", "h", false},
		{"shorter", traceparent[:54], "h", "", "h", false},
		{"zero trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "h", "", "h", false},
		{"zero parent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "h", "", "h", false},
		{"no hex", strings.Replace(traceparent, "4bf9", "4bfg", 1), "h", "", "h", false},
		{"no hyphens", strings.ReplaceAll(traceparent, "-", "0"), "h", "", "h", false},
		{"endless", "01" + traceparent[2:] + "-" + strings.Repeat("x", 1000), "h", "", "h", false},
	}
	for _, test := range tests {
		w := newWorld(t)
		got := w.capture()
		body := `{"type":"EXECUTE"}`
		if test.body != "" {
			body = `{"type":"EXECUTE","correlation_id":"` + test.body + `"}`
		}
		a := w.send("POST", "/v1/jobs", body, "Traceparent", test.trace, "X-Correlation-ID", test.header)
		require.Equal(t, 202, a.StatusCode, test.name)
		require.Equal(t, test.want, got.CorrelationID, test.name)
		require.Equal(t, test.traced, got.TraceParent != "", test.name)
		require.Equal(t, strings.HasPrefix(test.name, "bad"),
			strings.Contains(w.log.String(), "correlation id ignored"), test.name)
		require.Equal(t, test.trace != "-" && !test.traced, strings.Contains(w.log.String(), "traceparent ignored"), test.name)
		require.NotContains(t, w.log.String(), strings.Repeat("x", 600), test.name)
	}
}

func TestLanguage(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": "en", "de": "de", "fr-CA": "fr", "en-GB,de;q=0.9": "en", "zh, ja;q=0.9": "en", "zh;q=0.9, de;q=0.1": "de",
		"de;q=0.5, fr;q=0.8": "fr", "DE-at": "de", "*": "en", ";;;": "en", "xx-": "en",
		strings.Repeat("de,", 500): "en", "\x01": "en",
	} {
		require.Equal(t, want, header.Language(accept), accept)
	}
	w := newWorld(t)
	got := w.capture()
	w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`, "Accept-Language", "de-CH, en;q=0.5")
	require.Equal(t, "de", got.Language)
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"type":"EXECUTE"}`
	for _, good := range []string{"application/json", "Application/JSON", "application/json; charset=utf-8",
		`application/json;charset="UTF-8"`} {
		require.Equal(t, 202, w.send("POST", "/v1/jobs", body, "Content-Type", good).StatusCode, good)
	}
	for _, bad := range []string{"-", "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/json; charset=latin1",
		"application/json; x=y", "application/json; charset=utf-8; x=y", "application/problem+json", "application/jsonx", "json",
		"application/json, text/plain", ";"} {
		w.send("POST", "/v1/jobs", body, "Content-Type", bad).requireProblem(t, job.CodeUnsupportedMediaType)
		w.send("POST", jobPath(jobID)+"/cancel", "{}", "Content-Type", bad).requireProblem(t, job.CodeUnsupportedMediaType)
	}
	for _, bad := range []string{"gzip", "deflate", "br", "identity, gzip", "x"} {
		w.send("POST", "/v1/jobs", body, "Content-Encoding", bad).requireProblem(t, job.CodeUnsupportedMediaType)
	}
	require.Equal(t, 202, w.send("POST", "/v1/jobs", body, "Content-Encoding", "Identity").StatusCode)
	w.send("POST", "/v1/jobs", "").requireProblem(t, job.CodeMalformed)
	w.send("POST", "/v1/jobs", "", "Content-Type", "text/plain").requireProblem(t, job.CodeMalformed)
}

// acceptable is what routes that produce JSON ask.
func acceptable(accept string) bool {
	return header.Accepts(accept, "application/json") || header.Accepts(accept, mimeProblem)
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"", "*/*", "application/json", "application/problem+json", "application/*", "APPLICATION/JSON", "text/html, application/json;q=0.1",
		"application/json;q=0, */*;q=0.1", "application/json;q=0, application/problem+json", "text/html,*/*;q=0.8",
		"application/json; charset=utf-8", ",", " , application/json",
		"application/json;q=0.001", "application/json;q=x", "application/*;q=0, application/json",
	} {
		require.True(t, acceptable(good), good)
	}
	for _, bad := range []string{
		"text/html", "text/*", "application/xml", "application/json;q=0", "application/json;q=0.000, application/problem+json; q=0", "*/*;q=0",
		"application/*;q=0, */*", "*/*, application/*; q=0.0", "json", "application/jsonx",
		"application/json;q=0,application/problem+json;Q=0,*/*",
	} {
		require.False(t, acceptable(bad), bad)
	}
	w := newWorld(t)
	w.full()
	for _, rt := range w.server.routes() {
		a := w.send(rt.method, examplePath(rt), exampleBody(rt), "Accept", "text/csv")
		if rt.access == public {
			require.Equal(t, 200, a.StatusCode)
		} else {
			a.requireProblem(t, job.CodeNotAcceptable)
		}
	}
	r, err := http.NewRequest("GET", "http://forgerun.test"+jobPath(jobID), nil)
	require.NoError(t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + goodKey}, "Accept": {"text/csv", "application/json"}}
	require.Equal(t, 200, w.do(r).StatusCode)
}

func TestReceiptIsAsEncoded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answer := w.send(http.MethodPost, "/v1/jobs", shortBody)
	want, err := json.Marshal(receiptView{jobID, job.Queued, job.Time(now), nil})
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", answer.text)
	require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
}
