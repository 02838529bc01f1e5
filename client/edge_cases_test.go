package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// What is asked for beyond all measure is not taken for nothing.
func TestRetryAfterBeyondAllNumbers(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"3600", "2147483648", "99999999999", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		s := serve(t, problem(503, "RFA_STORAGE_UNAVAILABLE").with("Retry-After", value), job("QUEUED", ""))
		_, err := s.c.Job(t.Context(), "j1")
		var p *client.Problem
		require.ErrorAs(t, err, &p, value)
		require.GreaterOrEqual(t, p.RetryAfter, time.Hour, value)
		require.Len(t, s.requests(), 1, value)
	}
	for _, value := range []string{"3601", "2147483648", "99999999999999999999", "1e300", "1e400"} {
		_, ok := parse(t, `{"jobStatus":"FAILED","retryable":true,"retryAfter":`+value+`}`).RetryDelay(time.Now(), 1)
		require.False(t, ok, value)
	}
	most := int(^uint(0) >> 1)
	outcome := parse(t, `{"jobStatus":"FAILED","retryable":true}`)
	outcome.RetryAfter = &most
	_, ok := outcome.RetryDelay(time.Now(), 1)
	require.False(t, ok)
}

// An outcome document is one whatever its type: the service sends that of a job that has not failed as application/json.
func TestJobsThatAreShownAsOutcomes(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]client.Job{
		"COMPLETED": {State: client.Succeeded, Outcome: "SUCCESS"},
		"CANCELLED": {State: client.Canceled, Outcome: "CANCELED"},
		"FAILED":    {State: client.Failed, Outcome: "FAILED"},
		"TIMED_OUT": {State: client.Failed, Outcome: "FAILED"},
	} {
		for _, kind := range []string{problemType, jsonType} {
			for _, id := range []string{`"jobId":"j1",`, ""} { // any member may be absent
				s := serve(t, reply{status: 200, kind: jsonType, body: `{"jobId":"j1","jobStatus":"PROCESSING"}`},
					reply{status: 200, kind: kind, body: `{` + id + `"jobStatus":"` + status + `","completedAt":"2030-01-31T11:00:00Z"}`})
				got, err := s.c.Wait(t.Context(), "j1", client.Header("Accept", problemType))
				require.NoError(t, err, status)
				require.Equal(t, "j1", got.JobID)
				require.Equal(t, want.State, got.State, status)
				require.Equal(t, want.Outcome, got.Outcome, status)
				require.Equal(t, want.State == client.Failed, got.Failure != nil, status)
				require.False(t, got.FinishedAt.IsZero())
				require.Len(t, s.requests(), 2)
			}
		}
	}
}

func TestASuccessHasToBeOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	portal := reply{status: 200, kind: "text/html", body: `{"job_id":"j","revoked":true,"deleted":true,"status":"ok","keys":[],"data":[]}`}
	submit := func(c *client.Client) error { _, err := c.Submit(ctx, client.JobRequest{}); return err }
	read := func(c *client.Client) error { _, err := c.Job(ctx, "j"); return err }
	revoke := func(c *client.Client) error { return c.RevokeKey(ctx, "c", "k") }
	list := func(c *client.Client) error { return drain(c.Jobs(ctx, client.JobFilter{})) }
	for name, test := range map[string]struct {
		answer reply
		call   func(c *client.Client) error
	}{
		"a page for a submission":   {portal, submit},
		"no id":                     {ok(`{"hello":"portal"}`), submit},
		"null":                      {reply{status: 201, kind: jsonType, body: `null`}, submit},
		"not modified, not asked":   {reply{status: 304}, submit},
		"no content":                {reply{status: 204}, submit},
		"another job":               {ok(`{"job_id":"other","state":"SUCCEEDED"}`), read},
		"another job's outcome":     {reply{status: 200, kind: problemType, body: `{"jobId":"other","jobStatus":"FAILED"}`}, read},
		"a page for a revocation":   {portal, revoke},
		"not revoked":               {ok(`{"revoked":false}`), revoke},
		"a revocation without body": {reply{status: 204}, revoke},
		"a page for a deletion":     {portal, func(c *client.Client) error { return c.DeleteWebhook(ctx, "w") }},
		"not deleted":               {ok(`{}`), func(c *client.Client) error { return c.DeleteWebhook(ctx, "w") }},
		"a 202 for a deletion":      {reply{status: 202, kind: jsonType, body: `{}`}, func(c *client.Client) error { return c.Delete(ctx, "j") }},
		"another attempt":           {ok(`{"jobId":"other"}`), func(c *client.Client) error { _, err := c.Attempt(ctx, "j", 1); return err }},
		"another webhook":           {ok(`{"webhook_id":"other"}`), func(c *client.Client) error { _, err := c.Webhook(ctx, "w"); return err }},
		"another delivery": {ok(`{"delivery_id":"other"}`),
			func(c *client.Client) error { _, err := c.Redeliver(ctx, "w", "d"); return err }},
		"another batch":          {ok(`{"batch_id":"other"}`), func(c *client.Client) error { _, err := c.CancelBatch(ctx, "b"); return err }},
		"a client without an id": {ok(`{}`), func(c *client.Client) error { _, err := c.CreateClient(ctx); return err }},
		"a key without an id":    {ok(`{}`), func(c *client.Client) error { _, err := c.RenewKey(ctx, "c"); return err }},
		"a page for health":      {portal, func(c *client.Client) error { return c.Health(ctx) }},
		"no list":                {ok(`{}`), list},
		"no keys":                {ok(`{}`), func(c *client.Client) error { _, err := c.SigningKeys(ctx); return err }},
	} {
		s := serve(t, test.answer)
		var unexpected *client.UnexpectedError
		require.ErrorAs(t, test.call(s.c), &unexpected, name)
		require.Len(t, s.requests(), 1, name)
	}
	s := serve(t, ok(`{"job_id":"0190a1b2","state":"QUEUED"}`))
	require.NoError(t, second(s.c.Job(ctx, "0190A1B2")), "the service takes ids of either case")
}

// Mistakes of the program are told at once, not after five tries.
func TestMistakesAreNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, anything)
	ctx := t.Context()
	bad := s.c.WithKey("frk_id_secret\n")
	require.ErrorContains(t, second(bad.Job(ctx, "j")), "the key has characters")
	require.ErrorContains(t, second(watch(ctx, bad, client.StreamOptions{JobID: "j"})), "the key has characters")
	for _, name := range []string{"bad name", "", "a:b", "n\u00e4me", "a\nb"} {
		require.ErrorContains(t, second(s.c.Job(ctx, "j", client.Header(name, "x"))), "name of a header", name)
	}
	require.Empty(t, s.requests())
	require.NoError(t, second(bad.WithKey("good").Job(ctx, "j")))
}

func TestAContextThatEndsBetweenTries(t *testing.T) {
	t.Parallel()
	s := serve(t, problem(503, "RFA_STORAGE_UNAVAILABLE").with("Retry-After", "30"))
	ctx, cancel := context.WithCancel(t.Context())
	c, err := client.New(client.Config{URL: s.url, Sleep: func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }})
	require.NoError(t, err)
	_, err = c.Job(ctx, "j")
	require.ErrorIs(t, err, context.Canceled)
	var p *client.Problem
	require.ErrorAs(t, err, &p, "and why it waited")
}

func TestEmptyPagesAreBounded(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		_, _ = fmt.Fprintf(w, `{"data":[],"page":{"next_cursor":"%d"}}`, n.Add(1)%2)
	}))
	defer server.Close()
	c := must(client.New(client.Config{URL: server.URL}))(t)
	require.ErrorContains(t, drain(c.Jobs(t.Context(), client.JobFilter{})), "empty pages")
	require.EqualValues(t, 100, n.Load())
}

// The list of all events has a cursor on its last page too.
func TestEventsEndWithWhatThereIs(t *testing.T) {
	t.Parallel()
	s := serve(t, ok(`{"data":[{"event_id":"1"},{"event_id":"2"}],"page":{"next_cursor":"a"}}`), ok(`{"data":[],"page":{"next_cursor":"b"}}`))
	var ids []string
	for e, err := range s.c.Events(t.Context()) {
		require.NoError(t, err)
		ids = append(ids, e.EventID)
	}
	require.Equal(t, []string{"1", "2"}, ids)
	require.Len(t, s.requests(), 2)
	require.Equal(t, "application/json", s.requests()[0].header.Get("Accept"))
}

func second[T any](_ T, err error) error { return err }

type wrapped struct{ http.RoundTripper }

// Not parallel: the default transport is everybody's.
func TestADefaultTransportOfAnotherKind(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	http.DefaultTransport = wrapped{usual}
	require.NoError(t, second(client.New(client.Config{URL: "http://x"})))
}

func TestOutcomesSurviveJSON(t *testing.T) {
	t.Parallel()
	const document = `{"type":"https://x/p","title":"T","status":500,"detail":"D","instance":"/i","code":"C","jobId":"j","jobStatus":"FAILED",
		"submittedAt":"2030-01-31T12:00:00Z","completedAt":"2030-01-31T12:00:01.5Z","correlationId":"c","processingStage":"rendering","attempt":2,
		"scenario":{"workKind":"K","durationMs":500,"expectedOutcome":"FAILED"},"language":"en",
		"retryable":true,"retryAfter":0,"results":[{"itemId":"a","status":"FAILED","detail":"","retryable":true,"processingStage":""}],
		"emitted":{"name":"n","data":{"x":1}},"jobColour":{"deep":[1]}}`
	o := parse(t, document)
	require.Equal(t, &client.Scenario{WorkKind: "K", DurationMS: 500, ExpectedOutcome: "FAILED"}, o.Scenario)
	require.Equal(t, "en", o.Language)
	text := must(o.MarshalJSON())(t)
	require.JSONEq(t, document, string(text))
	back := parse(t, string(text))
	back.ReceivedAt = o.ReceivedAt
	require.Equal(t, o, back)
	text = must(client.Outcome{}.MarshalJSON())(t)
	require.JSONEq(t, `{}`, string(text), "what is absent stays absent")
}
