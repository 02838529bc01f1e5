package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// look sends a request that any valid key may send.
func (u *user) look(api *proc, key string) answer {
	other := *u
	other.key = key
	return other.call(api, "GET", "/v1/jobs/"+unknownJob, "")
}

// unknownJob is the id of a job that does not exist.
const unknownJob = "01900000-0000-7000-8000-000000000000"

func (u *user) accepts(api *proc, key string) bool {
	u.s.t.Helper()
	a := u.look(api, key)
	require.NoError(u.s.t, a.err)
	require.Contains(u.s.t, []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden}, a.status, a.body)
	return a.status == http.StatusNotFound
}

func TestRevocationIsSeenByEveryProcess(t *testing.T) {
	s := newStack(t)
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	rotated := u.expect(a, http.StatusCreated, "POST", "/v1/clients/"+u.id+"/keys", `{"rotate":true}`)
	s.secret(rotated.text("api_key"))
	for _, api := range []*proc{a, b, a, b} { // so that both cache both keys
		require.True(t, u.accepts(api, u.key))
		require.True(t, u.accepts(api, rotated.text("api_key")))
	}
	newer := *u
	newer.key = rotated.text("api_key")
	open, waiting := newer.stream(b, "/v1/events", ""), make(chan answer, 1)
	require.Equal(t, http.StatusOK, open.status)
	early := u.submit(a, execute("SUCCESS_FAST")) // no worker runs it
	go func() { waiting <- newer.call(b, "GET", "/v1/jobs/"+early, "", "Prefer", "wait=60") }()
	newer.expect(a, http.StatusOK, "POST", "/v1/clients/"+u.id+"/keys/revoke", `{"key_id":"`+rotated.text("key_id")+`"}`)
	u.look(a, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	eventually(t, "the other process refuses the key", func() bool { return !u.accepts(b, rotated.text("api_key")) })
	for range 20 {
		u.look(b, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	}
	require.True(t, u.accepts(b, u.key), "the other key is not concerned")
	late := u.submit(a, execute("SUCCESS_FAST"))
	for f, ok := open.next(); ok; f, ok = open.next() {
		require.NotContains(t, f.data, late, "an event of after the revocation")
	}
	waited := <-waiting
	waited.requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	a.logged("api key revoked", u.id)
}

// A process without notifications must not trust its cache.
func TestRevocationIsSeenWithoutNotifications(t *testing.T) {
	s := newStack(t)
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	require.True(t, u.accepts(b, u.key))
	// The watch's connection sends LISTEN. It sends something else only after FORGERUN_DB_TIMEOUT without a notification.
	s.exec(`CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query LIKE 'LISTEN%' AND datname = current_database(); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER cut BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION cut()`) // so the notification is not sent
	s.exec(`UPDATE api_keys SET revoked_at = clock_timestamp()`)
	eventually(t, "the process refuses the key", func() bool { return !u.accepts(b, u.key) })
	b.logged("key watch interrupted")
}

// If only operators may register clients, a request without credentials is refused before a transaction begins. Even a locked client row
// does not delay it.
func TestClosedRegistrationRefusesBeforeStorage(t *testing.T) {
	s := newStack(t)
	u := s.newUser(s.startAPI())
	closed := s.startAPI(env{"FORGERUN_OPEN_REGISTRATION": "false"})
	s.lock(`LOCK TABLE clients, api_keys, idempotency_keys IN ACCESS EXCLUSIVE MODE`)
	nobody := &user{s: s}
	for _, path := range []string{"/v1/clients", "/v1/clients/" + u.id + "/keys"} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", uuid.NewString()}} {
			nobody.call(closed, "POST", path, "", headers...).requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_INVALID_CREDENTIALS")
		}
	}
}

// With open registration, an address can register a few clients a minute. Operators and local requests have no such limit.
func TestRegistrationLimitByAddress(t *testing.T) {
	const token, limit, tries = "an-operators-long-token", 60, 180
	s := newStack(t, env{
		"FORGERUN_ADMIN_TOKEN": token, "FORGERUN_TRUSTED_PROXIES": "127.0.0.0/8",
	})
	s.secret(token)
	api := s.startAPI()
	register := func(from, bearer string) int {
		a := (&user{s: s, key: bearer}).call(api, "POST", "/v1/clients", "", "X-Forwarded-For", from)
		if a.status == http.StatusTooManyRequests {
			a.requireProblem(t, a.status, "RFA_REQUEST_RATE_LIMITED")
		}
		return a.status
	}
	answers := map[int]int{}
	for range tries {
		answers[register("203.0.113.7", "")]++
		answers[register("2001:db8::"+strconv.Itoa(1+answers[http.StatusCreated]), "")]++ // a network of one subscriber
	}
	require.GreaterOrEqual(t, answers[http.StatusCreated], 2*limit)
	require.GreaterOrEqual(t, answers[http.StatusTooManyRequests], tries, "%v", answers)
	require.Equal(t, 2*tries, answers[http.StatusCreated]+answers[http.StatusTooManyRequests])
	require.Equal(t, http.StatusCreated, register("203.0.113.8", ""), "another address")
	for range 2 * limit {
		require.Equal(t, http.StatusCreated, register("203.0.113.7", token))
		require.Equal(t, http.StatusCreated, register("127.0.0.1", ""))
	}
}

// For another client, the response for a client's job is byte for byte the response for a job that never existed.
// Promise: contract 13, 14
func TestOtherClientsSeeNothing(t *testing.T) {
	s := newStack(t)
	api := s.startLeader()
	owner, other := s.newUser(api), s.newUser(api)
	s.startWorker()
	failed := owner.submit(api, execute("FAIL_IMMEDIATE", `"params":{"mine":true}`))
	s.await("FAILED", failed)
	owner.submit(api, farAway)
	batch := owner.submitBatch(api, `{"jobs":[{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}]}`)
	hook := owner.subscribe(api, "http://127.0.0.1:10/", "*").id
	delivery := owner.call(api, "POST", "/v1/webhooks/"+hook+"/test", "").text("delivery_id")
	require.NotEmpty(t, delivery)
	path := owner.bulk(api, `{"action":"cancel","filter":{"correlation_id":"none"}}`)
	owner.awaitBulk(api, path, -1)
	bulk := strings.TrimPrefix(path, "/v1/bulk/")
	_, schedule := owner.schedule(api, `{"cron":"0 4 1 1 *","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
	hooks := `SELECT md5(string_agg(w::text, '' ORDER BY webhook_id)) || 
		(SELECT md5(string_agg(d::text, '' ORDER BY delivery_id)) FROM deliveries d) FROM webhooks w`
	hooksBefore := s.text(hooks)
	before := s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`)
	keys := s.text(`SELECT md5(string_agg((to_jsonb(k) - 'used_at')::text, '' ORDER BY key_id)) FROM api_keys k`)

	type header = []string
	type ids map[string]string // by the prefix of the path; the second id of a path is a delivery's
	own := ids{"jobs": failed, "batches": batch, "bulk": bulk, "webhooks": hook, "schedules": schedule, "clients": owner.id,
		"delivery": delivery}
	in := func(path string, of ids) string {
		return strings.NewReplacer("{id}", of[strings.Split(path, "/")[2]], "{delivery_id}", of["delivery"], "{n}", "1").Replace(path)
	}
	each := func(change func(kind, id string) string) ids {
		changed := ids{}
		for kind, id := range own {
			changed[kind] = change(kind, id)
		}
		return changed
	}
	next := map[string]string{"jobs": batch, "batches": failed, "bulk": hook, "webhooks": bulk, "schedules": failed, "clients": owner.id,
		"delivery": hook}
	routes := 0
	for _, route := range documentedRequests(t, readText(t, "../../handlers/docs/openapi.yaml")) {
		if !strings.Contains(route.path, "{id}") || strings.Contains(route.path, "/testbed/") || route.operation.ID == "cancelClient" {
			continue // the test bed is off; the latter is for operators
		}
		routes++
		body := ""
		if route.body != nil {
			text, err := json.Marshal(route.body)
			require.NoError(t, err)
			body = string(text)
		}
		variants := []header{nil}
		if route.method == "GET" {
			variants = append(variants, header{"Prefer", "wait=5"}, header{"Accept", "application/problem+json, */*;q=0.1"},
				header{"Accept", "text/event-stream, */*;q=0.1", "Last-Event-ID", "1"}, header{"Range", "bytes=0-9"})
		}
		for _, headers := range variants {
			what := fmt.Sprint(route.operation.ID, headers)
			request := uuid.NewString()
			ask := func(of ids) answer {
				a := other.call(api, route.method, in(route.path, of), body, append(header{"X-Request-Id", request}, headers...)...)
				require.NoError(t, a.err)
				for _, name := range []string{"Date", "Ratelimit"} { // they are independent of the job
					a.header.Del(name)
				}
				return a
			}
			random := ask(each(func(string, string) string { return uuid.NewString() }))
			require.Equal(t, http.StatusNotFound, random.status, "%s %s", what, random.body)
			for _, of := range []ids{
				each(func(_, id string) string { return id }), each(func(kind, _ string) string { return next[kind] }),
				each(func(string, string) string { return "not-an-id" }), each(func(_, id string) string { return strings.ToUpper(id) }),
			} {
				foreign := ask(of)
				require.Equal(t, random.status, foreign.status, what)
				require.Empty(t, cmp.Diff(random.header, foreign.header), what)
				require.Equal(t, random.body, foreign.body, what)
			}
			a := (&user{s: s}).call(api, route.method, in(route.path, own), body, headers...)
			require.Equal(t, http.StatusUnauthorized, a.status, "%s without a key", what)
		}
	}
	require.Greater(t, routes, 35)
	list := other.call(api, "GET", "/v1/jobs?batch_id="+batch, "")
	require.Equal(t, `{"data":[],"page":{"limit":50,"next_cursor":null}}`, strings.TrimSpace(list.body))
	require.Equal(t, hooksBefore, s.text(hooks), "nothing was changed")
	require.Equal(t, before, s.text(`SELECT md5(string_agg(j::text, '' ORDER BY job_id)) FROM jobs j`), "nothing was changed")
	require.Equal(t, keys, s.text(`SELECT md5(string_agg((to_jsonb(k) - 'used_at')::text, '' ORDER BY key_id)) FROM api_keys k`))
	s.checkInvariants()
}
