package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/job/testbed"
)

// startSession has a client's traffic judged.
func (u *user) startSession(api *proc, body string) string {
	u.s.t.Helper()
	a := u.call(api, "POST", "/v1/testbed/sessions", body)
	require.Equal(u.s.t, http.StatusCreated, a.status, a.body)
	return a.text("session_id")
}

// verdict ends a session and gives what came of it.
func (u *user) verdict(api *proc, session string) (v testbed.Verdict, broken map[string]testbed.RuleResult) {
	u.s.t.Helper()
	path := "/v1/testbed/sessions/" + session
	require.Equal(u.s.t, http.StatusOK, u.call(api, "POST", path+"/end", "").status)
	for form, begins := range map[string]string{"application/xml": "<?xml", "text/html": "<!doctype html>"} {
		a := u.call(api, "GET", path+"/verdict", "", "Accept", form)
		require.Equal(u.s.t, http.StatusOK, a.status, a.body)
		require.True(u.s.t, strings.HasPrefix(a.body, begins), a.body)
		require.True(u.s.t, strings.HasPrefix(a.header.Get("Content-Type"), form))
	}
	u.call(api, "GET", path+"/verdict", "", "Accept", "text/csv").requireProblem(u.s.t, 406, "RFA_REQUEST_NOT_ACCEPTABLE")
	a := u.call(api, "GET", path+"/verdict", "")
	require.Equal(u.s.t, http.StatusOK, a.status, a.body)
	require.NoError(u.s.t, json.Unmarshal([]byte(a.body), &v))
	broken = map[string]testbed.RuleResult{}
	for _, r := range v.Results {
		if r.Status == testbed.Broken {
			broken[r.Rule] = r
		}
	}
	return v, broken
}

// The Go client is right under every profile.
func TestOurClientIsRight(t *testing.T) {
	t.Parallel()
	s := newStack(t, withTestbed)
	api, other := s.startLeader(), s.startAPI()
	s.startWorker()
	for _, profile := range testbed.Profiles {
		t.Run(string(profile), func(t *testing.T) {
			u := s.newUser(api)
			session := u.startSession(api, `{"profile":"`+string(profile)+`","seed":1}`)
			c, err := client.New(client.Config{URL: api.url, Key: u.key, MaxTries: 20})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(s.ctx(), time.Minute)
			defer cancel()
			for n := range 4 {
				request := client.JobRequest{Type: "EXECUTE", WorkKind: []string{"SUCCESS_FAST", "FAIL_IMMEDIATE"}[n%2]}
				accepted, err := c.Submit(ctx, request, client.CorrelationID(fmt.Sprint(profile, n)))
				require.NoError(t, err)
				j, err := c.Wait(ctx, accepted.JobID)
				require.NoError(t, err)
				require.NotEmpty(t, j.Outcome)
			}
			v, broken := u.verdict(other, session)
			require.Empty(t, broken)
			require.NotEqual(t, testbed.Wrong, v.Verdict)
			require.Positive(t, v.Recorded)
			require.Positive(t, v.Counts[testbed.Held])
		})
	}
}

// A client with the mistakes that people make hears of each of them, whichever process it talks to.
func TestNaiveClientIsCaught(t *testing.T) {
	t.Parallel()
	s := newStack(t, withTestbed)
	first, second := s.startLeader(), s.startAPI()
	u, stranger := s.newUser(first), s.newUser(first)
	session := u.startSession(first, "")
	u.call(second, "POST", "/v1/testbed/sessions", "").requireProblem(t, 409, "RFA_JOB_CONFLICT")
	stranger.call(first, "GET", "/v1/testbed/sessions/"+session, "").requireProblem(t, 404, "RFA_REQUEST_NOT_FOUND")
	stranger.call(first, "GET", "/v1/testbed/sessions/"+session+"/verdict", "").requireProblem(t, 404, "RFA_REQUEST_NOT_FOUND")
	u.disturb(first, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"after_commit"}},
		{"match":{"operation":"submitJob","nth":2},"effect":{"status":503,"retry_after":5}}]`)

	submit := func(api *proc, key string) (string, error) {
		_, text, err := u.plainly(api, "POST", "/v1/jobs", execute("SUCCESS_FAST"), "Idempotency-Key", key, "X-Correlation-ID", "order-1")
		var made struct {
			ID string `json:"job_id"`
		}
		_ = json.Unmarshal([]byte(text), &made)
		return made.ID, err
	}
	_, err := submit(first, "one")
	require.ErrorIs(t, err, io.EOF)
	_, err = submit(second, "two") // 503, another key
	require.NoError(t, err)
	id, err := submit(first, "three") // at once, another key again
	require.NoError(t, err)
	require.NotEmpty(t, id)
	state := func() string {
		_, text, err := u.plainly(second, "GET", "/v1/jobs/"+id, "")
		require.NoError(t, err)
		return text
	}
	for range 6 { // in a tight loop, without tags, over new connections
		state()
	}
	s.startWorker()
	s.await("SUCCEEDED", id)
	for range 5 {
		require.Contains(t, state(), "SUCCEEDED")
	}
	_, _, err = u.plainly(first, "GET", "/v1/jobs?limit=1&key="+u.key, "")
	require.NoError(t, err)

	v, broken := u.verdict(second, session)
	require.Equal(t, testbed.Wrong, v.Verdict)
	names := []string{}
	for name, r := range broken {
		names = append(names, name)
		require.NotEmpty(t, r.Evidence, name)
		for _, e := range r.Evidence {
			require.NotEmpty(t, e.Found+e.Expected, name)
		}
	}
	require.ElementsMatch(t, []string{
		"idempotency-key", "one-job-per-intention", "backoff", "retry-after", "conditional-requests", "stop-at-end", "connection-reuse",
		"no-key-in-url",
	}, names, "%+v", v)
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.False(t, strings.Contains(string(text), u.key), "no key is part of a record")
	require.Zero(t, s.count(`SELECT count(*) FROM testbed_exchanges WHERE client_id = $1`, stranger.id))
	before := v.Recorded
	u.call(first, "GET", "/v1/jobs", "")
	v, _ = u.verdict(first, session)
	require.Equal(t, before, v.Recorded, "nothing is recorded after the end")
}
