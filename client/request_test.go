package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]client.Config{
		"no scheme": {URL: "localhost:8080"}, "other scheme": {URL: "ftp://example.com"}, "no host": {URL: "http://"},
		"user": {URL: "http://me:secret@example.com"}, "query": {URL: "http://example.com?x=1"}, "malformed": {URL: "http://[::1"},
		"key with newline": {URL: "http://example.com", Key: "a\nb"}, "negative tries": {URL: "http://example.com", MaxTries: -1},
	} {
		_, err := client.New(cfg)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "secret", name)
	}
	for suffix, want := range map[string]string{"": "/v1/jobs/j", "/": "/v1/jobs/j", "/v1": "/v1/jobs/j", "/v1/": "/v1/jobs/j",
		"/behind/proxy": "/behind/proxy/v1/jobs/j"} {
		s := serve(t, anything)
		c := must(client.New(client.Config{URL: s.url + suffix}))(t)
		require.NoError(t, second(c.Job(t.Context(), "j")))
		require.Equal(t, want, s.requests()[0].path, suffix)
	}
}

// async-problem-details, section 3.2: ids are opaque. The client escapes ids, so that none changes the path.
// Promise: clients 3.2
func TestIDsAreOpaque(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"x/1": "/v1/jobs/x%2F1", "a b?c#d": "/v1/jobs/a%20b%3Fc%23d", "..": "/v1/jobs/%2E%2E",
		"%2f": "/v1/jobs/%252f"} {
		s := serve(t, ok(`{"job_id":`+strconv.Quote(id)+`}`))
		require.NoError(t, second(s.c.Job(t.Context(), id)))
		require.Equal(t, want, s.requests()[0].path, id)
	}
	s := serve(t, anything)
	require.Error(t, second(s.c.Job(t.Context(), "")), "an empty id would address the list")
	require.Empty(t, s.requests())
}

func TestRetriedRequests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	once := map[string]bool{"CreateKey": true, "Rotate": true}
	for callName, call := range map[string]func(c *client.Client) error{
		"Submit":    func(c *client.Client) error { return second(c.Submit(ctx, client.JobRequest{Type: "EXECUTE"})) },
		"Job":       func(c *client.Client) error { return second(c.Job(ctx, "j")) },
		"Retry":     func(c *client.Client) error { return second(c.Retry(ctx, "j")) },
		"Delete":    func(c *client.Client) error { return c.Delete(ctx, "j") },
		"RevokeKey": func(c *client.Client) error { return c.RevokeKey(ctx, "c", "k") },
		"CreateKey": func(c *client.Client) error { return second(c.CreateKey(ctx, "c", false)) },
		"Rotate":    func(c *client.Client) error { return second(c.RotateSecret(ctx, "w")) },
	} {
		for answerName, answer := range map[string]struct {
			reply reply
			again bool
		}{
			"lost response": {reply{cut: true}, true}, "429": {problem(429, "RFA_REQUEST_RATE_LIMITED"), true},
			"502 of a proxy": {reply{status: 502, kind: "text/html", body: "<html>"}, true},
			"503":            {problem(503, "RFA_STORAGE_UNAVAILABLE"), true}, "504": {problem(504, "RFA_EXEC_TIMEOUT"), true},
			"503 of a wrong configuration": {problem(503, "RFA_CONFIG_INVALID"), false}, "500": {problem(500, "RFA_INTERNAL"), false},
			"400": {problem(400, "RFA_JOB_VALIDATION_FAILED"), false}, "409": {problem(409, "RFA_JOB_CONFLICT"), false},
			"404 with Retry-After": {problem(404, "RFA_JOB_NOT_FINISHED").with("Retry-After", "7"), false},
		} {
			s := serve(t, answer.reply, anything)
			err := call(s.c)
			if !answer.again || once[callName] {
				require.Error(t, err, callName+answerName)
				require.Len(t, s.requests(), 1, callName+answerName)
				continue
			}
			require.NoError(t, err, callName+answerName)
			sent := s.requests()
			require.Len(t, sent, 2, callName+answerName)
			key := sent[0].header.Get("Idempotency-Key")
			require.Equal(t, []string{key, sent[0].body}, []string{sent[1].header.Get("Idempotency-Key"), sent[1].body})
			require.True(t, len(key) >= 32 || callName != "Submit" && callName != "Retry", "retries have the same key")
			require.Len(t, s.clock.slept(), 1, "it waits before the retry")
		}
	}
}

// async-problem-details, section 6.7: the Retry-After of a 429 says when to repeat the request.
// Promise: clients 6.7
func TestRetryAfterOfARequest(t *testing.T) {
	t.Parallel()
	date := newClock().now.Add(7 * time.Second).Format(http.TimeFormat)
	for value, want := range map[string]time.Duration{"3": 3 * time.Second, "61": 61 * time.Second, date: 7 * time.Second,
		"0": 100 * time.Millisecond, "soon": 100 * time.Millisecond, "-1": 100 * time.Millisecond} {
		s := serve(t, problem(429, "RFA_REQUEST_RATE_LIMITED").with("Retry-After", value), ok(`{"job_id":"j"}`))
		job := must(s.c.Job(t.Context(), "j"))(t)
		require.Equal(t, []time.Duration{want}, s.clock.slept(), value)
		require.Zero(t, job.RetryAfter, "Retry-After was about the request")
	}
	for _, value := range []string{"3600", "99999999999", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		s := serve(t, problem(429, "RFA_REQUEST_RATE_LIMITED").with("Retry-After", value))
		var p *client.Problem
		require.ErrorAs(t, second(s.c.Job(t.Context(), "j")), &p)
		require.GreaterOrEqual(t, p.RetryAfter, time.Hour, value)
		require.Len(t, s.requests(), 1, "the caller decides about long waits")
	}
}

func TestTriesAreLimitedAndSpread(t *testing.T) {
	t.Parallel()
	s := serve(t, reply{cut: true})
	_, err := s.c.Submit(t.Context(), client.JobRequest{})
	var lost *client.NoAnswerError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, 5, lost.Tries)
	require.Len(t, s.requests(), 5)
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms}, s.clock.slept(), "the least of each: the jitter is 0")

	s = serveWith(t, client.Config{MaxTries: 1}, acceptedReply(), reply{cut: true}, acceptedReply())
	require.NoError(t, second(s.c.Submit(t.Context(), client.JobRequest{})))
	_, err = s.c.Submit(t.Context(), client.JobRequest{})
	require.ErrorAs(t, err, &lost, "net/http does not retry a submission on a reused connection")
	require.Len(t, s.requests(), 2)
}

func TestContexts(t *testing.T) {
	t.Parallel()
	busy := problem(503, "RFA_STORAGE_UNAVAILABLE").with("Retry-After", "30")
	s := serve(t, busy)
	ctx, cancel := context.WithDeadline(t.Context(), s.clock.Now().Add(10*time.Second))
	var p *client.Problem
	require.ErrorAs(t, second(s.c.Job(ctx, "j")), &p, "the refusal says more than a deadline error")
	require.Empty(t, s.clock.slept())
	cancel()
	require.ErrorIs(t, second(s.c.Submit(ctx, client.JobRequest{})), context.Canceled)
	require.Len(t, s.requests(), 1)

	ctx, cancel = context.WithCancel(t.Context())
	sleep := func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	_, err := must(client.New(client.Config{URL: s.url, Sleep: sleep}))(t).Job(ctx, "j")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorAs(t, err, &p, "the error has the reason for the wait")

	ctx, cancel = context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	_, err = must(client.New(client.Config{URL: server.URL}))(t).Cancel(ctx, "j")
	var lost *client.NoAnswerError
	require.ErrorAs(t, err, &lost, "the request may have had its effect")
	require.ErrorIs(t, err, context.Canceled)
}

// Promise: clients 11.1
func TestStatusBeforeBody(t *testing.T) {
	t.Parallel()
	s := serve(t, reply{status: 200, kind: problemType, body: `{"jobId":"j","jobStatus":"FAILED","status":500,"retryable":true}`})
	job, err := s.c.Job(t.Context(), "j")
	require.NoError(t, err, "a problem document in a 200 describes the job")
	require.Equal(t, client.Failed, job.State)
	require.True(t, job.Failure.Retryable())

	s = serve(t, reply{status: 404, kind: problemType, body: `{"status":200,"code":"RFA_JOB_NOT_FOUND"}`})
	_, err = s.c.Job(t.Context(), "j")
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, 404, p.Status)

	s = serve(t, reply{status: 404, kind: jsonType, body: `{"job_id":"j","state":"SUCCEEDED"}`})
	require.ErrorAs(t, second(s.c.Job(t.Context(), "j")), &p, "whatever the body says")
}

func TestProblem(t *testing.T) {
	t.Parallel()
	s := serve(t, reply{status: 400, kind: problemType + "; charset=utf-8", header: map[string]string{"X-Request-Id": "r1"},
		body: `{"type":"https://x/p","title":"Bad\u001b[31m","detail":"Two. limit: too much","instance":"urn:uuid:1","code":"RFA_X",
			"violations":[{"pointer":"/type","detail":"no"},{"parameter":"limit","detail":"too much"}],"expired_at":"2030-01-01T00:00:00Z"}`})
	err := second(s.c.Job(t.Context(), "j"))
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, []client.Violation{{Pointer: "/type", Detail: "no"}, {Parameter: "limit", Detail: "too much"}}, p.Violations)
	require.Equal(t, []any{"r1", "urn:uuid:1", 2030}, []any{p.RequestID, p.Instance, p.ExpiredAt.Year()})
	require.Contains(t, err.Error(), ": RFA_X")
	require.Contains(t, err.Error(), "/type no")
	require.Equal(t, 1, strings.Count(err.Error(), "too much"), "the detail already has this violation")
	require.NotContains(t, err.Error(), "\x1b", "control characters are removed")

	// Members of the wrong type are ignored (RFC 9457, section 3.1).
	s = serve(t, reply{status: 400, kind: problemType, body: `{"title":7,"detail":"kept","violations":{}}`})
	require.ErrorAs(t, second(s.c.Job(t.Context(), "j")), &p)
	require.Equal(t, []any{"kept", "", false}, []any{p.Detail, p.Title, p.Retryable()})
	for _, r := range []reply{{status: 404, kind: "text/html", body: "<html>"}, {status: 400, kind: problemType, body: `[]`}} {
		var unexpected *client.UnexpectedError
		require.ErrorAs(t, second(serve(t, r).c.Job(t.Context(), "j")), &unexpected)
		require.Equal(t, r.status, unexpected.Status)
	}

	s = serveWith(t, client.Config{MaxTries: 1}, problem(503, "RFA_STORAGE_UNAVAILABLE"), problem(503, "RFA_CONFIG_INVALID"))
	for _, retryable := range []bool{true, false} {
		require.ErrorAs(t, second(s.c.Job(t.Context(), "j")), &p)
		require.Equal(t, retryable, p.Retryable(), p.Code)
	}
}

func moved(status int, to string) reply {
	return reply{status: status, header: map[string]string{"Location": to}}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	s := serve(t, moved(307, "/v1/here"), moved(308, "/v1/there?a=1"), ok(`{"job_id":"j"}`))
	require.Equal(t, "j", must(s.c.Submit(t.Context(), client.JobRequest{Type: client.Execute}))(t).JobID)
	all := s.requests()
	require.Len(t, all, 3)
	require.Equal(t, "/v1/there a=1", all[2].path+" "+all[2].query)
	require.Equal(t, all[0].body, all[2].body)
	for _, name := range []string{"Authorization", "Idempotency-Key"} {
		require.Equal(t, all[0].header.Get(name), all[2].header.Get(name))
	}

	elsewhere := serve(t, anything)
	for _, status := range []int{302, 303, 308} {
		s = serveWith(t, client.Config{MaxTries: 1}, moved(status, elsewhere.url+"/v1/jobs/j"))
		require.ErrorContains(t, second(s.c.Job(t.Context(), "j")), "another origin")
		for _, err := range s.c.Stream(t.Context(), client.StreamOptions{}) {
			require.ErrorContains(t, err, "another origin")
			break
		}
	}
	require.Empty(t, elsewhere.requests(), "another origin must not get the key")

	circle := slices.Repeat([]reply{moved(307, "/v1/jobs/j")}, 11)
	s = serve(t, append(circle, ok(`{"job_id":"j"}`))...)
	require.Equal(t, "j", must(s.c.Job(t.Context(), "j"))(t).JobID)
	require.Len(t, s.requests(), 12)
}

func TestRefusalsThatPass(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]reply{
		"401": problem(401, "RFA_AUTH_TOKEN_EXPIRED"), "403": problem(403, "RFA_AUTH_FORBIDDEN").with("Retry-After", "2"),
	} {
		s := serve(t, first, ok(`{"job_id":"j"}`))
		require.Equal(t, "j", must(s.c.Job(t.Context(), "j"))(t).JobID, name)
	}
	missing := problem(404, "RFA_JOB_NOT_FOUND")
	s := serve(t, missing, missing, missing, ok(`{"job_id":"j","state":"SUCCEEDED"}`))
	require.Equal(t, client.Succeeded, must(s.c.Wait(t.Context(), "j"))(t).State)
	for code, tries := range map[string]int{"RFA_AUTH_TOKEN_EXPIRED": 2, "RFA_JOB_NOT_FOUND": 4} {
		status := map[bool]int{true: 401, false: 404}[tries == 2]
		s = serve(t, slices.Repeat([]reply{problem(status, code)}, 9)...)
		var p *client.Problem
		require.ErrorAs(t, second(s.c.Wait(t.Context(), "j")), &p)
		require.Equal(t, code, p.Code)
		require.Len(t, s.requests(), tries)
	}
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, ok(`{"job_id":`).with("Content-Length", "1000"), ok(`{"job_id":"j"}`))
	require.Equal(t, "j", must(s.c.Job(t.Context(), "j"))(t).JobID, "a truncated response is retried")
	s = serve(t, reply{cut: true}, problem(404, "RFA_WEBHOOK_NOT_FOUND"))
	require.NoError(t, s.c.DeleteWebhook(t.Context(), "w"), "the first request deleted it")
	s = serve(t, problem(404, "RFA_WEBHOOK_NOT_FOUND"))
	require.Error(t, s.c.DeleteWebhook(t.Context(), "w"), "the webhook never existed")
}

func TestHeadersAndKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, anything)
	ctx := t.Context()
	require.NoError(t, second(s.c.Submit(ctx, client.JobRequest{Type: "DEFERRED", ExecutionAt: s.clock.Now(), Params: map[string]int{"a": 1},
		CorrelationID: "body"},
		client.CorrelationID("c-1"), client.Header("traceparent", "00-x"), client.PreferWait(90*time.Second))))
	got := s.requests()[0]
	require.JSONEq(t, `{"type":"DEFERRED","execution_at":"2030-01-31T12:00:00Z","params":{"a":1},"correlation_id":"body"}`, got.body)
	for name, want := range map[string]string{
		"Authorization": "Bearer frk_id_secret", "Content-Type": jsonType, "Accept": jsonType, "User-Agent": "forgerun-go",
		"X-Correlation-Id": "c-1", "Traceparent": "00-x", "Prefer": "wait=30", "Accept-Encoding": "identity", "ForgeRun-Session": "",
	} {
		require.Equal(t, want, got.header.Get(name), name)
	}
	bad := s.c.WithKey("frk_id_secret\n")
	for i, c := range []*client.Client{bad.WithKey("other"), s.c.WithKey(""), s.c.WithSession("a test")} {
		require.NoError(t, second(c.Job(ctx, "j")))
		h := s.requests()[i+1].header
		require.Equal(t, [][]string{{"Bearer other", ""}, {"", ""}, {"Bearer frk_id_secret", "a test"}}[i],
			[]string{h.Get("Authorization"), h.Get("ForgeRun-Session")})
	}

	require.ErrorContains(t, second(bad.Job(ctx, "j")), "the key has characters")
	require.ErrorContains(t, second(watch(ctx, bad, client.StreamOptions{JobID: "j"})), "the key has characters")
	require.ErrorContains(t, second(s.c.WithSession("a\r\nX: y").WithKey("other").Job(ctx, "j")), "the session has characters")
	for name, option := range map[string]client.Option{
		"header injection": client.CorrelationID("a\r\nX: y"), "authorization": client.Header("authorization", "x"),
		"empty key": client.IdempotencyKey(""), "a space": client.Header("bad name", "x"), "no name": client.Header("", "x"),
		"not ASCII": client.Header("n\u00e4me", "x"),
	} {
		require.Error(t, second(s.c.Submit(ctx, client.JobRequest{}, option)), name)
	}
	require.Error(t, second(s.c.Submit(ctx, client.JobRequest{Params: func() {}})), "JSON cannot encode it")
	require.Len(t, s.requests(), 4)
}

func TestErrorsNameTheRequest(t *testing.T) {
	t.Parallel()
	s := serveWith(t, client.Config{MaxTries: 1}, problem(404, client.CodeJobNotFound),
		reply{status: 200, kind: "text/html", body: "<p>"}, reply{cut: true})
	for _, expected := range []string{"404", "it is not JSON"} {
		_, err := s.c.Job(t.Context(), "j 1")
		require.ErrorContains(t, err, "GET "+s.url+"/v1/jobs/j%201")
		require.ErrorContains(t, err, expected)
	}
	var lost *client.NoAnswerError
	for _, err := range s.c.Jobs(t.Context(), client.JobFilter{WorkKind: "SECRET"}) {
		require.ErrorAs(t, err, &lost)
		require.Equal(t, s.url+"/v1/jobs", lost.URL)
		require.NotContains(t, err.Error(), "SECRET")
	}
	require.NotNil(t, lost)
	for _, err := range s.c.Stream(t.Context(), client.StreamOptions{JobID: "j"}) {
		require.ErrorContains(t, err, "GET "+s.url+"/v1/jobs/j/events")
	}
}
