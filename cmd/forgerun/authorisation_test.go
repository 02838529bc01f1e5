package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// To a stranger somebody's job, or client, looks like one that never existed,
// in every byte of the answer.
func TestStrangersSeeNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	owner, stranger := s.newUser(api), s.newUser(api)
	s.startWorker()
	failed := owner.submit(api, execute("FAIL_IMMEDIATE", `"params":{"mine":true}`))
	s.await("FAILED", failed)
	waiting := owner.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	before := s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`)
	keys := s.text(`SELECT md5(string_agg(k::text, '' ORDER BY key_id)) FROM api_keys k`)

	for _, route := range []struct{ method, path, body string }{
		{"GET", "/v1/jobs/{job}", ""},
		{"HEAD", "/v1/jobs/{job}", ""},
		{"GET", "/v1/jobs/{job}/report", ""},
		{"GET", "/v1/jobs/{job}/report?attempt=1", ""},
		{"GET", "/v1/jobs/{job}/attempts/1", ""},
		{"POST", "/v1/jobs/{job}/cancel", ""},
		{"POST", "/v1/jobs/{job}/retry", ""},
		{"POST", "/v1/clients/{client}/keys", ""},
		{"POST", "/v1/clients/{client}/keys", `{"rotate":true}`},
		{"POST", "/v1/clients/{client}/keys/renew", ""},
		{"POST", "/v1/clients/{client}/keys/revoke", `{"key_id":"` + keyID(owner.key) + `"}`},
	} {
		request := uuid.NewString()
		ask := func(job, client string) answer {
			path := strings.NewReplacer("{job}", job, "{client}", client).Replace(route.path)
			a := stranger.call(api, route.method, path, route.body, "X-Request-Id", request)
			require.NoError(t, a.err)
			for _, name := range []string{"Date", "Ratelimit"} { // they say nothing about the job
				a.header.Del(name)
			}
			return a
		}
		random := ask(uuid.NewString(), uuid.NewString())
		require.Equal(t, http.StatusNotFound, random.status, route.path)
		for _, foreign := range []answer{
			ask(failed, owner.id), ask(waiting, owner.id), ask("not-an-id", "not-an-id"), ask(strings.ToUpper(failed), strings.ToUpper(owner.id)),
		} {
			require.Equal(t, random.status, foreign.status, "%s %s", route.method, route.path)
			require.Empty(t, cmp.Diff(random.header, foreign.header), "%s %s", route.method, route.path)
			require.Equal(t, random.body, foreign.body, "%s %s", route.method, route.path)
		}
		nobody := &user{s: s}
		a := nobody.call(api, route.method, strings.NewReplacer("{job}", failed, "{client}", owner.id).Replace(route.path), route.body)
		require.Equal(t, http.StatusUnauthorized, a.status, "%s %s without a key", route.method, route.path)
	}
	require.Equal(t, before, s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`), "nothing was changed")
	require.Equal(t, keys, s.text(`SELECT md5(string_agg(k::text, '' ORDER BY key_id)) FROM api_keys k`))
	s.checkInvariants()
}

// keyID is the public part of a key: frk_<id>_<secret>.
func keyID(key string) string { return strings.Split(key, "_")[1] }
