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
	batch := owner.submitBatch(api, `{"jobs":[{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}]}`)
	hook := owner.subscribe(api, "http://127.0.0.1:10/", "*").id
	delivery := owner.call(api, "POST", "/v1/webhooks/"+hook+"/test", "").text("delivery_id")
	require.NotEmpty(t, delivery)
	path := owner.bulk(api, `{"action":"cancel","filter":{"correlation_id":"none"}}`)
	owner.awaitBulk(api, path, -1)
	bulk := strings.TrimPrefix(path, "/v1/bulk/")
	hooks := `SELECT md5(string_agg(w::text, '' ORDER BY webhook_id)) || 
		(SELECT md5(string_agg(d::text, '' ORDER BY delivery_id)) FROM deliveries d) FROM webhooks w`
	hooksBefore := s.text(hooks)
	before := s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`)
	keys := s.text(`SELECT md5(string_agg((to_jsonb(k) - 'used_at')::text, '' ORDER BY key_id)) FROM api_keys k`)

	type header = []string
	for _, route := range []struct {
		method, path, body string
		headers            header
	}{
		{"GET", "/v1/jobs/{job}", "", nil},
		{"HEAD", "/v1/jobs/{job}", "", nil},
		{"GET", "/v1/jobs/{job}", "", header{"Prefer", "wait=5"}},
		{"GET", "/v1/jobs/{job}", "", header{"Accept", "application/problem+json"}},
		{"DELETE", "/v1/jobs/{job}", "", nil},
		{"GET", "/v1/jobs/{job}/report", "", nil},
		{"GET", "/v1/jobs/{job}/report?attempt=1", "", nil},
		{"GET", "/v1/jobs/{job}/attempts", "", nil},
		{"GET", "/v1/jobs/{job}/attempts/1", "", nil},
		{"GET", "/v1/jobs/{job}/result", "", nil},
		{"GET", "/v1/jobs/{job}/result", "", header{"Range", "bytes=0-9"}},
		{"GET", "/v1/jobs/{job}/events", "", nil},
		{"GET", "/v1/jobs/{job}/events", "", header{"Accept", "text/event-stream"}},
		{"GET", "/v1/jobs/{job}/events", "", header{"Accept", "text/event-stream", "Last-Event-ID", "1"}},
		{"POST", "/v1/jobs/{job}/cancel", "", nil},
		{"POST", "/v1/jobs/{job}/retry", "", nil},
		{"GET", "/v1/batches/{batch}", "", nil},
		{"GET", "/v1/batches/{batch}", "", header{"Accept", "application/problem+json"}},
		{"GET", "/v1/batches/{batch}/jobs", "", nil},
		{"POST", "/v1/batches/{batch}/cancel", "", nil},
		{"GET", "/v1/bulk/{bulk}", "", nil},
		{"GET", "/v1/bulk/{bulk}/items", "", nil},
		{"GET", "/v1/bulk/{bulk}/items?result=FAILED", "", nil},
		{"POST", "/v1/bulk/{bulk}/abort", "", nil},
		{"GET", "/v1/webhooks/{hook}", "", nil},
		{"PATCH", "/v1/webhooks/{hook}", `{"enabled":false}`, nil},
		{"DELETE", "/v1/webhooks/{hook}", "", nil},
		{"POST", "/v1/webhooks/{hook}/rotate-secret", "", nil},
		{"POST", "/v1/webhooks/{hook}/test", "", nil},
		{"POST", "/v1/webhooks/{hook}/redeliver", `{"since":"2020-01-01T00:00:00Z"}`, nil},
		{"POST", "/v1/webhooks/{hook}/replay", `{"since":"2020-01-01T00:00:00Z"}`, nil},
		{"GET", "/v1/webhooks/{hook}/deliveries", "", nil},
		{"GET", "/v1/webhooks/{hook}/deliveries/{delivery}", "", nil},
		{"POST", "/v1/webhooks/{hook}/deliveries/{delivery}/redeliver", "", nil},
		{"GET", "/v1/jobs/{job}/deliveries", "", nil},
		{"GET", "/v1/jobs/{job}/deliveries/{delivery}", "", nil},
		{"POST", "/v1/jobs/{job}/deliveries/{delivery}/redeliver", "", nil},
		{"POST", "/v1/clients/{client}/keys", "", nil},
		{"POST", "/v1/clients/{client}/keys", `{"rotate":true}`, nil},
		{"POST", "/v1/clients/{client}/keys/renew", "", nil},
		{"POST", "/v1/clients/{client}/keys/revoke", `{"key_id":"` + keyID(owner.key) + `"}`, nil},
	} {
		request := uuid.NewString()
		ask := func(job, batch, client, hook, delivery, bulk string) answer {
			path := strings.NewReplacer("{job}", job, "{batch}", batch, "{client}", client, "{hook}", hook, "{delivery}",
				delivery, "{bulk}", bulk).Replace(route.path)
			a := stranger.call(api, route.method, path, route.body, append(header{"X-Request-Id", request}, route.headers...)...)
			require.NoError(t, a.err)
			for _, name := range []string{"Date", "Ratelimit"} { // they say nothing about the job
				a.header.Del(name)
			}
			return a
		}
		random := ask(uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString())
		require.Equal(t, http.StatusNotFound, random.status, route.path)
		for _, foreign := range []answer{
			ask(failed, batch, owner.id, hook, delivery, bulk), ask(waiting, failed, owner.id, delivery, hook, batch),
			ask("not-an-id", "not-an-id", "not-an-id", "not-an-id", "not-an-id", "not-an-id"),
			ask(strings.ToUpper(failed), strings.ToUpper(batch), strings.ToUpper(owner.id), strings.ToUpper(hook), strings.ToUpper(delivery),
				strings.ToUpper(bulk)),
		} {
			require.Equal(t, random.status, foreign.status, "%s %s", route.method, route.path)
			require.Empty(t, cmp.Diff(random.header, foreign.header), "%s %s", route.method, route.path)
			require.Equal(t, random.body, foreign.body, "%s %s", route.method, route.path)
		}
		nobody := &user{s: s}
		a := nobody.call(api, route.method, strings.NewReplacer("{job}", failed, "{batch}", batch, "{client}", owner.id, "{hook}", hook,
			"{delivery}", delivery, "{bulk}", bulk).Replace(route.path), route.body, route.headers...)
		require.Equal(t, http.StatusUnauthorized, a.status, "%s %s without a key", route.method, route.path)
	}
	list := stranger.call(api, "GET", "/v1/jobs?batch_id="+batch, "")
	require.Equal(t, `{"data":[],"page":{"limit":50,"next_cursor":null}}`, strings.TrimSpace(list.body))
	require.Equal(t, hooksBefore, s.text(hooks), "nothing was changed")
	require.Equal(t, before, s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`), "nothing was changed")
	require.Equal(t, keys, s.text(`SELECT md5(string_agg((to_jsonb(k) - 'used_at')::text, '' ORDER BY key_id)) FROM api_keys k`))
	s.checkInvariants()
}

// keyID is the public part of a key: frk_<id>_<secret>.
func keyID(key string) string { return strings.Split(key, "_")[1] }
