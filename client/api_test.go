package client_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"iter"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/client"
)

var (
	oneLetter = regexp.MustCompile(`":"\w"`)
	parameter = regexp.MustCompile(`{\w+}`)
)

func TestEveryMethodSendsADocumentedRequest(t *testing.T) {
	t.Parallel()
	var document struct{ Paths map[string]map[string]any }
	require.NoError(t, yaml.Unmarshal(must(os.ReadFile("../handlers/docs/openapi.yaml"))(t), &document))
	documented := map[string]bool{}
	for path, item := range document.Paths {
		for method := range item {
			documented[strings.ToUpper(method)+" "+parameter.ReplaceAllString(path, "x")] = true
		}
	}
	others := []string{"Do", "List", "Result", "Wait", "WaitBatch", "Run", "Stream", "Directory", "String", "Format", "WithKey", "WithSession"}
	for method := range reflect.TypeFor[*client.Client]().Methods() {
		if slices.Contains(others, method.Name) {
			continue
		}
		s := serve(t, ok(oneLetter.ReplaceAllString(anything.body, `":"x"`)))
		args := []reflect.Value{reflect.ValueOf(s.c), reflect.ValueOf(t.Context())}
		for i := 2; i < method.Type.NumIn() && !(method.Type.IsVariadic() && i == method.Type.NumIn()-1); i++ {
			arg := reflect.New(method.Type.In(i)).Elem()
			switch arg.Kind() {
			case reflect.String:
				arg.SetString("x")
			case reflect.Int:
				arg.SetInt(1)
			default:
			}
			args = append(args, arg)
		}
		results := method.Func.Call(args)
		last := results[len(results)-1]
		if last.Kind() == reflect.Func { // a list
			for _, err := range last.Seq2() {
				last = err
			}
		}
		require.Nil(t, errorOf(last), method.Name)
		require.Len(t, s.requests(), 1, method.Name)
		got := s.requests()[0].method + " " + regexp.MustCompile("/1$").ReplaceAllString(s.requests()[0].path, "/x")
		require.True(t, documented[got], "%s sends %s", method.Name, got)
	}
}

func errorOf(v reflect.Value) error {
	err, _ := v.Interface().(error)
	return err
}

func drain[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLists(t *testing.T) {
	t.Parallel()
	s := serve(t,
		ok(`{"data":[{"job_id":"1"},{"job_id":"2"}],"page":{"limit":2,"next_cursor":"a"}}`),
		ok(`{"data":[],"page":{"limit":2,"next_cursor":"b"}}`), // an empty page is not the end
		ok(`{"data":[{"job_id":"3","outcome":null,"batch_id":null}],"page":{"limit":2,"next_cursor":null}}`))
	var ids, queries []string
	from := time.Date(2030, 1, 31, 13, 0, 0, 500, time.FixedZone("", 3600))
	list := s.c.Jobs(t.Context(), client.JobFilter{State: "FAILED", CreatedAfter: from, PageSize: 2})
	for job, err := range list {
		require.NoError(t, err)
		ids = append(ids, job.JobID)
	}
	require.Equal(t, []string{"1", "2", "3"}, ids)
	require.NoError(t, drain(list), "a second iteration starts from the beginning")
	for _, r := range s.requests() {
		queries = append(queries, r.query)
	}
	const filter = "created_after=2030-01-31T12%3A00%3A00.0000005Z&limit=2&state=FAILED"
	from2, from3 := strings.Replace(filter, "&", "&cursor=a&", 1), strings.Replace(filter, "&", "&cursor=b&", 1)
	require.Equal(t, []string{filter, from2, from3, filter}, queries)

	s = serve(t, ok(`{"data":[{"job_id":"1"}],"page":{"next_cursor":"a"}}`))
	for _, err := range s.c.Jobs(t.Context(), client.JobFilter{}) {
		require.NoError(t, err)
		break
	}
	require.Len(t, s.requests(), 1)
	require.ErrorContains(t, drain(s.c.Jobs(t.Context(), client.JobFilter{})), "next_cursor", "an endless list")
	empty := []reply{ok(`{"data":[],"page":{"next_cursor":"a"}}`), ok(`{"data":[],"page":{"next_cursor":"b"}}`)}
	s = serve(t, slices.Repeat(empty, 60)...)
	require.ErrorContains(t, drain(s.c.Jobs(t.Context(), client.JobFilter{})), "empty pages")
	require.Len(t, s.requests(), 100)

	// The last page of Events has a next_cursor, too.
	s = serve(t, ok(`{"data":[{"event_id":"1"},{"event_id":"2"}],"page":{"next_cursor":"a"}}`), ok(`{"data":[],"page":{"next_cursor":"b"}}`))
	require.NoError(t, drain(s.c.Events(t.Context())))
	require.Len(t, s.requests(), 2)

	s = serve(t, ok(`{"data":[{"job_id":"1"}],"page":{"next_cursor":"a"}}`), problem(400, "RFA_REQUEST_MALFORMED"))
	var p *client.Problem
	require.ErrorAs(t, drain(s.c.Jobs(t.Context(), client.JobFilter{})), &p)
}

func TestJobAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, ok(`{"job_id":"j","state":"FAILED","outcome":"FAILED","started_at":null,"params":null,"waiting":null,
		"failure":{"jobStatus":"TIMED_OUT","retryable":true,"retryAfter":2},"result":null,"links":{"retry":"/r"}}`).
		with("ETag", `W/"5"`).with("Retry-After", "2").with("X-Request-Id", "r"), reply{status: 304},
		reply{status: 503, kind: jsonType, body: `{"status":"unavailable","checks":{"postgres":"down"}}`})
	j := must(s.c.Job(t.Context(), "j"))(t)
	require.True(t, j.Final())
	require.Nil(t, j.Params)
	require.True(t, j.StartedAt.IsZero())
	require.Equal(t, client.Meta{Status: 200, RequestID: "r", ETag: `W/"5"`, RetryAfter: 2 * time.Second}, j.Meta)
	require.Equal(t, s.clock.Now(), j.Failure.ReceivedAt)
	require.ErrorIs(t, second(s.c.Job(t.Context(), "j", client.IfNoneMatch(j.ETag))), client.ErrNotModified)
	ready := must(s.c.Ready(t.Context()))(t)
	require.Equal(t, client.Readiness{Status: "unavailable", Checks: map[string]string{"postgres": "down"}}, *ready, "a result, not an error")
}

func TestResultIsVerified(t *testing.T) {
	t.Parallel()
	const body = "the result"
	sum, long := sha256.Sum256([]byte(body)), sha512.Sum512([]byte(body))
	right := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	right512 := "sha-512=:" + base64.StdEncoding.EncodeToString(long[:]) + ":"
	wrong := "sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + ":"
	r := reply{status: 200, kind: "text/plain", body: body}
	checksum := func(value string) reply {
		return job("SUCCEEDED", `,"result":{"state":"AVAILABLE","checksum":{"algorithm":"sha256","value":"`+value+`"}}`)
	}
	for name, test := range map[string]struct {
		answer, job reply
		good        bool
	}{
		"Repr-Digest":                 {r.with("Repr-Digest", right), reply{}, true},
		"Content-Digest":              {r.with("Content-Digest", right), reply{}, true},
		"sha-512":                     {r.with("Repr-Digest", right512), reply{}, true},
		"both fields":                 {r.with("Repr-Digest", right+", "+right512).with("Content-Digest", right), reply{}, true},
		"wrong digest":                {r.with("Repr-Digest", wrong), checksum(hex.EncodeToString(sum[:])), false},
		"one of two digests is wrong": {r.with("Repr-Digest", right).with("Content-Digest", wrong), reply{}, false},
		"unreadable digest":           {r.with("Repr-Digest", "sha-256="), checksum(hex.EncodeToString(sum[:])), false},
		"unknown digest algorithm":    {r.with("Repr-Digest", "md5=:AAAA:"), checksum(hex.EncodeToString(sum[:])), true},
		"checksum of the job":         {r, checksum(hex.EncodeToString(sum[:])), true},
		"wrong checksum":              {r, checksum(hex.EncodeToString(make([]byte, 32))), false},
		"neither digest nor checksum": {r, job("SUCCEEDED", ""), false},
		"part of the result":          {reply{status: 206, kind: "text/plain", body: body}.with("Repr-Digest", right), reply{}, false},
		"expired result":              {problem(410, "RFA_RESULT_GONE"), reply{}, false},
	} {
		s := serve(t, test.answer, test.job)
		result, err := s.c.Result(t.Context(), "j1")
		if !test.good {
			require.Error(t, err, name)
			require.Nil(t, result, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, body, string(result.Data), name)
		require.Equal(t, "text/plain", result.ContentType)
		require.Equal(t, "identity", s.requests()[0].header.Get("Accept-Encoding"))
	}
}

// Outcome documents are recognized by their members. Their content type can be application/json.
func TestJobsFromOutcomeDocuments(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]client.Job{
		"COMPLETED": {State: client.Succeeded, Outcome: "SUCCESS"}, "CANCELLED": {State: client.Canceled, Outcome: "CANCELED"},
		"FAILED": {State: client.Failed, Outcome: "FAILED"}, "TIMED_OUT": {State: client.Failed, Outcome: "FAILED"},
	} {
		for kind, id := range map[string]string{problemType: `"jobId":"j1",`, jsonType: ""} { // any member may be absent
			s := serve(t, ok(`{"jobId":"j1","jobStatus":"PROCESSING"}`),
				reply{status: 200, kind: kind, body: `{` + id + `"jobStatus":"` + status + `","completedAt":"2030-01-31T11:00:00Z"}`})
			got := must(s.c.Wait(t.Context(), "j1", client.Header("Accept", problemType)))(t)
			require.Equal(t, []string{"j1", want.State, want.Outcome}, []string{got.JobID, got.State, got.Outcome}, status)
			require.Equal(t, want.State == client.Failed, got.Failure != nil, status)
			require.False(t, got.FinishedAt.IsZero())
			require.Len(t, s.requests(), 2)
		}
	}
}

func TestUnexpectedSuccesses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	portal := reply{status: 200, kind: "text/html", body: `{"job_id":"j","revoked":true,"deleted":true,"status":"ok","keys":[],"data":[]}`}
	submit := func(c *client.Client) error { return second(c.Submit(ctx, client.JobRequest{})) }
	read := func(c *client.Client) error { return second(c.Job(ctx, "j")) }
	revoke := func(c *client.Client) error { return c.RevokeKey(ctx, "c", "k") }
	remove := func(c *client.Client) error { return c.DeleteWebhook(ctx, "w") }
	for name, test := range map[string]struct {
		answer reply
		call   func(c *client.Client) error
	}{
		"HTML for a submission": {portal, submit}, "no id": {ok(`{"hello":"portal"}`), submit}, "no content": {reply{status: 204}, submit},
		"null": {reply{status: 201, kind: jsonType, body: `null`}, submit}, "304 without If-None-Match": {reply{status: 304}, submit},
		"another job":           {ok(`{"job_id":"other","state":"SUCCEEDED"}`), read},
		"another job's outcome": {reply{status: 200, kind: problemType, body: `{"jobId":"other","jobStatus":"FAILED"}`}, read},
		"not JSON":              {ok(`{"job_id":`), read}, "not a job": {ok(`[]`), read},
		"too large":             {ok(strings.Repeat(" ", 8<<20) + `{}`), read},
		"HTML for a revocation": {portal, revoke}, "not revoked": {ok(`{"revoked":false}`), revoke},
		"truncated revocation": {ok(`{"revoked":true`), revoke}, "truncated deletion": {ok(`{"deleted":true`), remove},
		"client without an id": {ok(`{}`), func(c *client.Client) error { return second(c.CreateClient(ctx)) }},
		"HTML for a deletion":  {portal, remove}, "not deleted": {ok(`{}`), remove},
		"another attempt": {ok(`{"jobId":"other"}`), func(c *client.Client) error { return second(c.Attempt(ctx, "j", 1)) }},
		"no list":         {ok(`{}`), func(c *client.Client) error { return drain(c.Jobs(ctx, client.JobFilter{})) }},
		"no keys":         {ok(`{}`), func(c *client.Client) error { return second(c.SigningKeys(ctx)) }},
	} {
		s := serve(t, test.answer)
		var unexpected *client.UnexpectedError
		require.ErrorAs(t, test.call(s.c), &unexpected, name)
		require.Equal(t, test.answer.status, unexpected.Status, name)
		require.LessOrEqual(t, len(unexpected.Body), 1024)
		require.Len(t, s.requests(), 1, name)
	}
	s := serve(t, ok(`{"job_id":"0190a1b2","state":"QUEUED"}`))
	require.NoError(t, second(s.c.Job(ctx, "0190A1B2")), "the service takes ids of either case")
}

func second[T any](_ T, err error) error { return err }

func TestDoRepeatsOnlyReads(t *testing.T) {
	t.Parallel()
	busy := problem(503, "RFA_STORAGE_UNAVAILABLE").with("Retry-After", "1")
	s := serve(t, busy, ok(`{"ok":true}`), busy)
	answer, err := s.c.Do(t.Context(), http.MethodGet, "/admin/v1/system", nil, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"ok":true}`, string(answer))
	_, err = s.c.Do(t.Context(), http.MethodPost, "/admin/v1/jobs/x/retry", nil, nil)
	problem, refused := errors.AsType[*client.Problem](err)
	require.True(t, refused)
	require.Equal(t, time.Second, problem.RetryAfter)
	require.Len(t, s.requests(), 3)
}
