package handlers

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

const traceparent = "00-" + clientTrace + "-" + clientSpan + "-01"

func (w *world) submit(members string, headers ...string) *reply {
	w.t.Helper()
	return w.send("POST", "/v1/jobs", `{"type":"EXECUTE"`+members+`}`, headers...)
}

func (w *world) made(a *reply) *job.Job {
	w.t.Helper()
	require.Equal(w.t, 202, a.StatusCode, a.text)
	id, err := job.ParseID(a.field(w.t, "job_id"))
	require.NoError(w.t, err)
	j, err := w.Store.Job(w.t.Context(), backend.ClientA, id)
	require.NoError(w.t, err)
	return j
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const id = "0190AAAA-0000-7000-8000-00000000000C"
	a := w.submit(`,"params":{"a":1}`, "X-Request-Id", id, "Accept-Language", "de-CH, en;q=0.5")
	j := w.made(a)
	self := "/v1/jobs/" + j.ID.String()
	made := j.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z")
	require.JSONEq(t, `{"job_id":"`+j.ID.String()+`","state":"QUEUED","created_at":"`+made+`",
		"warnings":[{"pointer":"/params/a",
			"detail":"The work kind ignores this member: it is stored and shown with the job, but has no effect."}]}`, a.text)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Location": self, "Link": "<" + self + `>; rel="status"`, "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff", "X-Request-Id": strings.ToLower(id), "Idempotency-Replayed": "", "Preference-Applied": "",
		"RateLimit-Policy": `"minute";q=6000;w=60`, "RateLimit": `"minute";r=5999;t=1`,
	} {
		require.Equal(t, value, a.Header.Get(name), name)
	}
	require.Equal(t, []any{backend.ClientA, "de"}, []any{j.ClientID, j.Language})
	require.Equal(t, []string{strings.ToLower(id)},
		repotest.All[string](t, w.URL(), `SELECT request_id FROM jobs WHERE job_id = $1`, j.ID.String()))
}

// Promise: patterns Submission
func TestSubmitPreferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for prefer, applied := range map[string]string{
		"respond-async": "respond-async", "wait=1, Respond-Async": "respond-async, wait=1", "respond-async; x=1": "respond-async",
		"wait=1": "wait=1", "wait=0": "wait=0", "wait=x": "", "respond-async=1": "", "xrespond-async": "", "": "",
	} {
		a := w.submit("", "Prefer", prefer).requireStatus(t, 202)
		require.Equal(t, applied, a.Header.Get("Preference-Applied"), prefer)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("k", 255)
	for _, test := range []struct{ header, body, want string }{ // "-" for no header
		{"-", "", ""}, {"-", "xyz", "xyz"}, {"xyz", "", "xyz"}, {`"xyz"`, "", "xyz"}, {`"a\"b\\c"`, "", `a"b\c`}, {`a"b`, "", `a"b`},
		{`"xyz"`, "xyz", "xyz"}, {long, long, long},
	} {
		w.Exec(`DELETE FROM idempotency_keys`)
		members := ""
		if test.body != "" {
			members = `,"idempotency_key":"` + test.body + `"`
		}
		for i := range 2 {
			a := w.submit(members, "Idempotency-Key", test.header).requireStatus(t, 202)
			require.Equal(t, test.want != "" && i == 1, a.Header.Get("Idempotency-Replayed") == "true")
		}
		keys := repotest.All[string](t, w.URL(), `SELECT key FROM idempotency_keys`)
		require.Equal(t, test.want, strings.Join(keys, " "), test)
	}
	require.NotContains(t, w.log.String(), "xyz")
}

// Promise: contract 7, 8
func TestBadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, header := range []string{"", `""`, `"`, `"abc`, `"abc" ` + "x", `"abc";a=1`, `"a\bc"`, `"abc\`, "a b", `"a b"`, "ä",
		strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`} {
		w.submit("", "Idempotency-Key", header).requireProblem(t, job.CodeMalformed)
	}
	w.submit("", "Idempotency-Key", "a", "Idempotency-Key", "a").requireProblem(t, job.CodeMalformed)
	for path, body := range map[string]string{"/v1/jobs": `{"type":"EXECUTE"`, "/v1/jobs/batch": `{"jobs":[{"type":"EXECUTE"}]`,
		"/v1/webhooks": `{"url":"https://example.com","events":["*"]`} {
		p := w.send("POST", path, body+`,"idempotency_key":"a"}`, "Idempotency-Key", "b").requireProblem(t, job.CodeValidationFailed)
		require.Equal(t, "/idempotency_key", p.Violations[0].Pointer)
	}
}

// A job with a truncated correlation id could not be found by the original id.
// Promise: draft 3.9, 9.2
func TestLongCorrelationIDIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, body := range map[string]string{"/v1/jobs": `{"type":"EXECUTE"}`, "/v1/jobs/batch": `{"jobs":[{"type":"EXECUTE"}]}`} {
		for _, id := range []string{strings.Repeat("h", 257), strings.Repeat("ü ", 200)} {
			for _, trace := range []string{"-", traceparent} {
				a := w.send("POST", path, body, "X-Correlation-ID", id, "Traceparent", trace)
				a.requireProblem(t, job.CodeValidationFailed)
				require.Contains(t, a.text, "X-Correlation-ID")
			}
		}
	}
}

// Promise: draft 3.9, 9.2
func TestCorrelation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct{ trace, header, body, want string }{
		"none":             {"-", "-", "", ""},
		"body":             {"-", "-", "b", "b"},
		"header over body": {"-", "h", "b", "h"},
		"trace over both":  {traceparent, "h", "b", clientTrace},
		"invalid header":   {"-", "h h", "b", "b"},
		"longest header":   {"-", strings.Repeat("h", 256), "b", strings.Repeat("h", 256)},
		"invalid trace":    {strings.ToUpper(traceparent), "h", "", "h"},
		"overlong trace":   {"01" + traceparent[2:] + "-" + strings.Repeat("x", 1000), "h", "", "h"},
	} {
		before := len(w.log.String())
		members := ""
		if test.body != "" {
			members = `,"correlation_id":"` + test.body + `"`
		}
		j := w.made(w.submit(members, "Traceparent", test.trace, "X-Correlation-ID", test.header))
		require.Equal(t, test.want, j.CorrelationID, name)
		require.Equal(t, test.trace == traceparent, j.TraceParent != "", name)
		log := w.log.String()[before:]
		require.Equal(t, name == "invalid header", strings.Contains(log, "correlation id ignored"), name)
		require.Equal(t, strings.HasSuffix(name, " trace"), strings.Contains(log, "traceparent ignored"), name)
		require.NotContains(t, log, strings.Repeat("x", 600), name)
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, good := range []string{"Application/JSON", "application/json;charset=utf-8", `application/json;charset=UTF-8`} {
		require.Equal(t, 202, w.submit("", "Content-Type", good).StatusCode, good)
		good = strings.Replace(strings.ToLower(good), "json", "merge-patch+json", 1)
		require.Equal(t, 200, w.send("PATCH", webhookSelf, `{"enabled":true}`, "Content-Type", good).StatusCode, good)
		w.submit("", "Content-Type", good).requireProblem(t, job.CodeUnsupportedMediaType)
	}
	for _, bad := range []string{"-", "", "application/json; charset=latin1", "application/json; x=y", "application/problem+json",
		"application/jsonx", "application/json, text/plain", ";", "application/json-patch+json"} {
		w.submit("", "Content-Type", bad).requireProblem(t, job.CodeUnsupportedMediaType)
		w.send("PATCH", webhookSelf, `{"enabled":true}`, "Content-Type", bad).requireProblem(t, job.CodeUnsupportedMediaType)
	}
	w.submit("", "Content-Encoding", "identity, gzip").requireProblem(t, job.CodeUnsupportedMediaType)
	require.Equal(t, 202, w.submit("", "Content-Encoding", "Identity").StatusCode)
	w.send("POST", "/v1/jobs", "", "Content-Type", "text/plain").requireProblem(t, job.CodeMalformed)
	w.send("PATCH", webhookSelf, "").requireProblem(t, job.CodeMalformed)
	require.Equal(t, 200, w.send("GET", jobSelf, "", "Accept", "text/csv", "Accept", "application/json").StatusCode, "lines are joined")
}

const longKey = "0123456789abcdef0123456789abcdef"

// Every POST replays its first response. Submissions and fixtures have tests of their own.
// Promise: contract 7, 8
func TestEveryPostTakesAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tried := 0
	for _, rt := range w.server.Routes {
		if rt.Method != httpkit.Post || slices.Contains([]string{"submit", "submit_batch", "make_fixtures"}, rt.Action) {
			continue
		}
		tried++
		first := w.try(rt, "Idempotency-Key", rt.Action+longKey)
		require.Equal(t, rt.Success, first.StatusCode, "%s: %s", rt.Path, first.text)
		require.Empty(t, first.Header.Get(httpkit.ReplayedHeader), rt.Path)
		again := w.send(rt.Method, examplePath(rt), exampleBody(rt), "Idempotency-Key", rt.Action+longKey)
		require.Equal(t, rt.Success, again.StatusCode, "%s: %s", rt.Path, again.text)
		require.Equal(t, "true", again.Header.Get(httpkit.ReplayedHeader), rt.Path)
		require.NotEqual(t, first.Header.Get("X-Request-Id"), again.Header.Get("X-Request-Id"), rt.Path)
		for _, name := range httpkit.KeptHeaders {
			require.Equal(t, first.Header.Values(name), again.Header.Values(name), "%s: %s", rt.Path, name)
		}
		if !strings.Contains(first.text, "secret\":\"") && !strings.Contains(first.text, `"api_key":"`) {
			require.Equal(t, first.text, again.text, rt.Path)
		}
		for _, kept := range repotest.All[[]byte](t, w.URL(), `SELECT coalesce(answer_body, '') FROM idempotency_keys`) {
			require.NotContains(t, string(kept), backend.Secret)
			require.NotContains(t, string(kept), "frk_")
		}
	}
	require.Equal(t, 25, tried)
}

// Promise: contract 7, 8
func TestRepetitionsShowNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rotated = `{"rotate":true}`
	require.Contains(t, w.send(httpkit.Post, clientPath("/keys"), rotated, "Idempotency-Key", "k").text, `"api_key":"frk_`)
	again := w.send(httpkit.Post, clientPath("/keys"), rotated, "Idempotency-Key", "k").requireStatus(t, 201)
	require.Contains(t, again.text, `{"api_key":null,"key_id":"`)
	rotate := webhookSelf + "/rotate-secret"
	require.Contains(t, w.send(httpkit.Post, rotate, "", "Idempotency-Key", "r").text, backend.Secret)
	require.Contains(t, w.send(httpkit.Post, rotate, "", "Idempotency-Key", "r").text, `"secret":null`)
}

func TestIdempotencyKeysCompareRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cancel := jobSelf + "/cancel"
	require.Equal(t, 200, w.send(httpkit.Post, cancel, "", "Idempotency-Key", "k").StatusCode)
	for _, body := range []string{"", "{}", " { } "} {
		require.Equal(t, "true", w.send(httpkit.Post, cancel, body, "Idempotency-Key", `"k"`).Header.Get(httpkit.ReplayedHeader))
	}
	for _, path := range []string{jobSelf + "/retry", failedSelf + "/cancel"} {
		w.send(httpkit.Post, path, "", "Idempotency-Key", "k").requireProblem(t, job.CodeIdempotencyConflict)
	}
	revoke := clientPath("/keys/revoke")
	require.Equal(t, 200, w.send(httpkit.Post, revoke, `{"key_id":"`+backend.SomeKey+`"}`, "Idempotency-Key", "r").StatusCode)
	w.send(httpkit.Post, revoke, `{"key_id":"b"}`, "Idempotency-Key", "r").requireProblem(t, job.CodeIdempotencyConflict)
	a := w.send(httpkit.Post, revoke, ` {"key_id":"\u0061`+backend.SomeKey[1:]+`"}`, "Idempotency-Key", "r")
	require.Equal(t, "true", a.Header.Get(httpkit.ReplayedHeader))
	foreign := "/v1/jobs/" + backend.ForeignJob.String() + "/cancel"
	other := w.send(httpkit.Post, foreign, "", "Idempotency-Key", "k", "Authorization", "Bearer "+otherKey).requireStatus(t, 200)
	require.Empty(t, other.Header.Get(httpkit.ReplayedHeader), "keys of other clients are separate")
}

func TestRefusalsLeaveTheKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	retry := failedSelf + "/retry"
	w.Exec(`UPDATE jobs SET max_attempts = 2 WHERE state = 'FAILED'`)
	w.send(httpkit.Post, retry, "", "Idempotency-Key", "k").requireProblem(t, job.CodeConflict)
	w.Exec(`UPDATE jobs SET max_attempts = 4`)
	accept := repotest.Refuse(t, w.URL(), "INSERT ON client_events")
	a := w.send(httpkit.Post, webhookSelf+"/test", "", "Idempotency-Key", "t")
	require.GreaterOrEqual(t, a.StatusCode, 500)
	require.Empty(t, a.Header.Get("Location"), "the rolled-back resource has no Location")
	accept()
	for path, key := range map[string]string{retry: "k", webhookSelf + "/test": "t"} {
		a = w.send(httpkit.Post, path, "", "Idempotency-Key", key)
		require.Less(t, a.StatusCode, 300, a.text)
		require.Empty(t, a.Header.Get(httpkit.ReplayedHeader))
	}
}

func TestKeysWithoutCredentialsAreLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1/clients", clientPath("/keys")} {
		short := w.send(httpkit.Post, path, "", "Authorization", "-", "Idempotency-Key", longKey[1:])
		short.requireProblem(t, job.CodeMalformed)
		require.Contains(t, short.text, "32")
		require.Equal(t, 201, w.send(httpkit.Post, path, "", "Idempotency-Key", path, "Authorization", "Bearer "+adminKey).StatusCode)
	}
	require.Equal(t, 201, w.send(httpkit.Post, "/v1/clients", "", "Authorization", "-", "Idempotency-Key", longKey).StatusCode)
	again := w.send(httpkit.Post, "/v1/clients", "", "Authorization", "-", "Idempotency-Key", longKey)
	require.Equal(t, "true", again.Header.Get(httpkit.ReplayedHeader))
	operators := w.send(httpkit.Post, "/v1/clients", "", "Idempotency-Key", longKey, "Authorization", "Bearer "+adminKey)
	require.Empty(t, operators.Header.Get(httpkit.ReplayedHeader), "operators have their own keys")
}
