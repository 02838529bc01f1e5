package handlers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

const traceparent = "00-" + clientTrace + "-" + clientSpan + "-01"

// capture makes Submit keep the request.
func (w *world) capture() *job.Request {
	var got job.Request
	w.jobs.submit = func(_ context.Context, r job.Request) (job.Receipt, error) {
		got = r
		return job.Receipt{JobID: jobID, State: job.Created, CreatedAt: now, Replayed: r.IdempotencyKey == "again"}, nil
	}
	return &got
}

// submit sends a submission with some more members.
func (w *world) submit(members string, headers ...string) *answer {
	w.t.Helper()
	return w.send("POST", "/v1/jobs", `{"type":"EXECUTE"`+members+`}`, headers...)
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	clock := now.Add(789).In(time.FixedZone("x", 3600)) // storage keeps microseconds, in UTC
	w := newWorld(t, func(_ *Config, d *Deps) { d.Clock = func() time.Time { return clock } })
	got := w.capture()
	const id = "0190AAAA-0000-7000-8000-00000000000C"
	a := w.submit(`,"params":{"a":1}`, "X-Request-Id", id, "Accept-Language", "de-CH, en;q=0.5")
	require.Equal(t, 202, a.StatusCode)
	require.JSONEq(t, `{"job_id":"01890000-0000-7000-8000-000000000001","state":"CREATED","created_at":"2030-01-31T12:00:00.123456Z",
		"warnings":[{"pointer":"/params/a",
			"detail":"The work kind ignores this: it is stored and shown with the job, and changes nothing."}]}`, a.text)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Location": jobSelf, "Link": "<" + jobSelf + `>; rel="status"`, "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff", "X-Request-Id": strings.ToLower(id), "Idempotency-Replayed": "", "Preference-Applied": "",
		"RateLimit-Policy": `"minute";q=6000;w=60`, "RateLimit": `"minute";r=5999;t=1`,
	} {
		require.Equal(t, value, a.Header.Get(name), name)
	}
	require.Equal(t, []any{clientA, strings.ToLower(id), now, "de", [32]byte{}},
		[]any{got.ClientID, got.RequestID, got.ReceivedAt, got.Language, got.Hash})

	want, err := json.Marshal(view.Receipt{JobID: jobID, State: job.Created, CreatedAt: job.Time(now)})
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", w.submit("").text, "a plain receipt is written by hand")
}

// Promise: patterns Submission
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
		a := w.submit("", "Prefer", prefer)
		require.Equal(t, 202, a.StatusCode)
		require.Equal(t, applied, a.Header.Get("Preference-Applied"), prefer)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.capture()
	long := strings.Repeat("k", 255)
	for _, test := range []struct{ header, body, want string }{ // "-" for no header
		{"-", "", ""}, {"-", "xyz", "xyz"}, {"xyz", "", "xyz"}, {`"xyz"`, "", "xyz"}, {`"a\"b\\c"`, "", `a"b\c`}, {`a"b`, "", `a"b`},
		{`"xyz"`, "xyz", "xyz"}, {long, long, long}, {"again", "", "again"},
	} {
		members := ""
		if test.body != "" {
			members = `,"idempotency_key":"` + test.body + `"`
		}
		a := w.submit(members, "Idempotency-Key", test.header)
		require.Equal(t, 202, a.StatusCode, a.text)
		require.Equal(t, test.want, got.IdempotencyKey)
		require.Empty(t, got.Violations, test)
		require.Equal(t, test.want != "", got.Hash != [32]byte{}, test)
		require.Equal(t, test.want == "again", a.Header.Get("Idempotency-Replayed") == "true")
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

// A client could not find its job by a part of its id.
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
	for name, test := range map[string]struct{ trace, header, body, want string }{
		"none":             {"-", "-", "", ""},
		"body":             {"-", "-", "b", "b"},
		"header over body": {"-", "h", "b", "h"},
		"trace over all":   {traceparent, "h", "b", clientTrace},
		"bad header":       {"-", "h h", "b", "b"},
		"longest header":   {"-", strings.Repeat("h", 256), "b", strings.Repeat("h", 256)},
		"bad trace":        {strings.ToUpper(traceparent), "h", "", "h"},
		"endless trace":    {"01" + traceparent[2:] + "-" + strings.Repeat("x", 1000), "h", "", "h"},
	} {
		w := newWorld(t)
		got := w.capture()
		members := ""
		if test.body != "" {
			members = `,"correlation_id":"` + test.body + `"`
		}
		a := w.submit(members, "Traceparent", test.trace, "X-Correlation-ID", test.header)
		require.Equal(t, 202, a.StatusCode, name)
		require.Equal(t, test.want, got.CorrelationID, name)
		require.Equal(t, test.trace == traceparent, got.TraceParent != "", name)
		require.Equal(t, name == "bad header", strings.Contains(w.log.String(), "correlation id ignored"), name)
		require.Equal(t, strings.HasSuffix(name, " trace"), strings.Contains(w.log.String(), "traceparent ignored"), name)
		require.NotContains(t, w.log.String(), strings.Repeat("x", 600), name)
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
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
	require.Equal(t, 200, w.send("GET", jobSelf, "", "Accept", "text/csv", "Accept", "application/json").StatusCode, "lines are one list")
}

type onceKey struct {
	client     job.ID
	scope, key string
}

type onceAnswer struct {
	job.Answer
	hash [32]byte
}

// fakeOnce remembers answers.
type fakeOnce struct {
	mu    sync.Mutex
	known map[onceKey]onceAnswer
	err   error // of the commit
}

func (f *fakeOnce) Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (job.Answer, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := onceKey{key.ClientID, key.Scope, key.Key}
	if known, ok := f.known[k]; ok {
		if known.hash != key.Hash {
			return job.Answer{}, false, job.Errorf(job.CodeIdempotencyConflict, "The key was used for another request.")
		}
		return known.Answer, true, nil
	}
	a, err := do(ctx)
	if err == nil {
		err = f.err
	}
	if err != nil {
		return job.Answer{}, false, err
	}
	f.known[k] = onceAnswer{a, key.Hash}
	return a, false, nil
}

const longKey = "0123456789abcdef0123456789abcdef"

// Every POST gives a repetition its first answer; submissions of jobs and batches
// have a way of their own, and fixtures are submissions.
// Promise: contract 7, 8
func TestEveryPostTakesAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	tried := 0
	for _, rt := range w.server.Routes {
		if rt.Method != httpkit.Post || slices.Contains([]string{"submit", "submit_batch", "make_fixtures"}, rt.Action) {
			continue
		}
		tried++
		first := w.try(rt, "Idempotency-Key", rt.Action+longKey)
		require.Equal(t, rt.Success, first.StatusCode, "%s: %s", rt.Path, first.text)
		require.Empty(t, first.Header.Get(httpkit.ReplayedHeader), rt.Path)
		again := w.try(rt, "Idempotency-Key", rt.Action+longKey)
		require.Equal(t, rt.Success, again.StatusCode, rt.Path)
		require.Equal(t, "true", again.Header.Get(httpkit.ReplayedHeader), rt.Path)
		require.NotEqual(t, first.Header.Get("X-Request-Id"), again.Header.Get("X-Request-Id"), rt.Path)
		for _, name := range httpkit.KeptHeaders {
			require.Equal(t, first.Header.Values(name), again.Header.Values(name), "%s: %s", rt.Path, name)
		}
		if !strings.Contains(first.text, "secret\":\"") && !strings.Contains(first.text, `"api_key":"`) {
			require.Equal(t, first.text, again.text, rt.Path)
		}
	}
	require.Equal(t, 25, tried)
	for _, known := range w.once.known {
		require.NotContains(t, string(known.Body), testSecret)
		require.NotContains(t, string(known.Body), "frk_secret")
	}
}

// Promise: contract 7, 8
func TestRepetitionsShowNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	require.Contains(t, w.send(httpkit.Post, clientPath("/keys"), "", "Idempotency-Key", "k").text, `"api_key":"frk_secret"`)
	again := w.send(httpkit.Post, clientPath("/keys"), "{}", "Idempotency-Key", "k")
	require.Equal(t, 201, again.StatusCode)
	require.Contains(t, again.text, `{"api_key":null,"key_id":"abc",`)
	rotate := webhookSelf + "/rotate-secret"
	require.Contains(t, w.send(httpkit.Post, rotate, "", "Idempotency-Key", "r").text, testSecret)
	require.Contains(t, w.send(httpkit.Post, rotate, "", "Idempotency-Key", "r").text, `"secret":null`)
}

func TestWhatAKeyIsComparedBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	cancel := views.JobPath(jobID) + "/cancel"
	require.Equal(t, 200, w.send(httpkit.Post, cancel, "", "Idempotency-Key", "k").StatusCode)
	for _, body := range []string{"", "{}", " { } "} {
		require.Equal(t, "true", w.send(httpkit.Post, cancel, body, "Idempotency-Key", `"k"`).Header.Get(httpkit.ReplayedHeader))
	}
	for _, path := range []string{views.JobPath(jobID) + "/retry", views.JobPath(webhookID) + "/cancel"} {
		w.send(httpkit.Post, path, "", "Idempotency-Key", "k").requireProblem(t, job.CodeIdempotencyConflict)
	}
	revoke := clientPath("/keys/revoke")
	require.Equal(t, 200, w.send(httpkit.Post, revoke, `{"key_id":"a"}`, "Idempotency-Key", "r").StatusCode)
	w.send(httpkit.Post, revoke, `{"key_id":"b"}`, "Idempotency-Key", "r").requireProblem(t, job.CodeIdempotencyConflict)
	require.Equal(t, "true", w.send(httpkit.Post, revoke, ` {"key_id":"\u0061"}`, "Idempotency-Key", "r").Header.Get(httpkit.ReplayedHeader))

	for _, key := range []string{"", "a b", "ä", strings.Repeat("k", 256), `"open`} {
		w.send(httpkit.Post, cancel, "", "Idempotency-Key", key).requireProblem(t, job.CodeMalformed)
	}
	other := w.send(httpkit.Post, cancel, "", "Idempotency-Key", "k", "Authorization", "Bearer "+otherKey)
	require.Empty(t, other.Header.Get(httpkit.ReplayedHeader), "another client's key is another one")
}

func TestRefusalsLeaveTheKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	retry := views.JobPath(jobID) + "/retry"
	change := w.jobs.change
	w.jobs.change = func(context.Context, job.ID, job.ID) (job.Change, error) {
		return job.Change{}, job.Errorf(job.CodeConflict, "No.")
	}
	w.send(httpkit.Post, retry, "", "Idempotency-Key", "k").requireProblem(t, job.CodeConflict)
	w.jobs.change = change
	w.once.err = job.Errorf(job.CodeStorageUnavailable, "The outcome is unknown.")
	a := w.send(httpkit.Post, webhookSelf+"/test", "", "Idempotency-Key", "t")
	a.requireProblem(t, job.CodeStorageUnavailable)
	require.Empty(t, a.Header.Get("Location"), "of an answer that was not committed")
	w.once.err = nil
	a = w.send(httpkit.Post, retry, "", "Idempotency-Key", "k")
	require.Equal(t, 200, a.StatusCode)
	require.Empty(t, a.Header.Get(httpkit.ReplayedHeader))
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
	require.Empty(t, operators.Header.Get(httpkit.ReplayedHeader), "the operator's keys are apart")
}

func TestWhatExpiredKeysAreGoodFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	keys := clientPath("/keys")
	require.Equal(t, 200, w.send(httpkit.Post, keys+"/renew", "", "Authorization", "Bearer renewable").StatusCode)
	require.True(t, w.clients.caller.Expired)
	for _, rt := range w.server.Routes {
		switch a := w.try(rt, "Authorization", "Bearer renewable"); {
		case rt.Access == httpkit.Public, rt.Access == httpkit.Renewal, strings.HasPrefix(rt.Path, sessionsPath), rt.Path == clockPath:
			require.Less(t, a.StatusCode, 300, "%s: %s", rt.Path, a.text)
		default:
			a.requireProblem(t, job.CodeTokenExpired)
		}
	}
	w.send(httpkit.Post, keys+"/renew", "", "Authorization", "Bearer expired").requireProblem(t, job.CodeTokenExpired)
}
