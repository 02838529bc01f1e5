package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

type made struct {
	Jobs []struct {
		ID      string `json:"job_id"`
		Fixture string
		State   string
	}
}

func (u *user) fixtures(api *proc, body string, headers ...string) made {
	u.s.t.Helper()
	return parsed[made](u.s.t, u.expect(api, http.StatusCreated, "POST", "/v1/testbed/fixtures", body, headers...).body)
}

// For each entry of `pointers`, requireViolations sends a request with the entry's key inserted into `format`. The response must contain
// the entry's value, a JSON Pointer.
func (u *user) requireViolations(api *proc, method, path, format string, pointers map[string]string) {
	u.s.t.Helper()
	for part, pointer := range pointers {
		a := u.call(api, method, path, fmt.Sprintf(format, part))
		a.requireProblem(u.s.t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
		require.Contains(u.s.t, a.body, `"pointer":"`+pointer+`"`, part)
	}
}

func TestFixtures(t *testing.T) {
	s, api, u := newWorking(t, withTestbed, env{"FORGERUN_TIME_SCALE": "1", "FORGERUN_MAX_RETRIES": "2"})
	const body = `{"jobs":[{"state":"scheduled"},{"state":"running","progress":40},
		{"state":"succeeded","result":{"media_type":"text/plain","body":"Shipped."}},
		{"state":"failed","correlation_id":"order-4","problem":{"title":"Out of stock","status":409,"retryable":false,"item":17}},
		{"state":"exhausted","problem":{"title":"Busy"}},{"state":"canceled"},{"state":"gone"},{"state":"expired"}]}`
	m := u.fixtures(api, body, "Idempotency-Key", "set-1")
	require.Len(t, m.Jobs, 8)
	states := []string{}
	for _, j := range m.Jobs {
		states = append(states, j.State)
	}
	require.Equal(t, []string{"CREATED", "RUNNING", "SUCCEEDED", "FAILED", "FAILED", "CANCELED", "SUCCEEDED", "SUCCEEDED"}, states)
	read := func(n int, more string) answer { return u.call(api, "GET", "/v1/jobs/"+m.Jobs[n].ID+more, "") }

	require.GreaterOrEqual(t, parsed[client.Job](t, read(1, "").body).Progress.Percentage, 40)
	require.Equal(t, "Shipped.", read(2, "/result").body)
	document := u.call(api, "GET", "/v1/jobs/"+m.Jobs[3].ID, "", "Accept", "application/problem+json")
	for _, part := range []string{`"title":"Out of stock"`, `"retryable":false`, `"item":17`, `"correlationId":"order-4"`} {
		require.Contains(t, document.body, part)
	}
	require.Contains(t, read(4, "").body, `"attempt":3`)
	u.call(api, "POST", "/v1/jobs/"+m.Jobs[4].ID+"/retry", "").requireProblem(t, 409, "RFA_JOB_CONFLICT")
	require.Contains(t, read(4, "/events").body, "job.retries_exhausted")
	read(6, "").requireProblem(t, 410, "RFA_JOB_GONE")
	read(7, "/result").requireProblem(t, 410, "RFA_RESULT_GONE")
	require.Contains(t, read(7, "/events").body, "job.succeeded")

	again := u.fixtures(api, body, "Idempotency-Key", "set-1")
	for n, j := range again.Jobs {
		require.Equal(t, m.Jobs[n].ID, j.ID)
	}
	require.Equal(t, 7, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1`, u.id))

	u.requireViolations(api, "POST", "/v1/testbed/fixtures", "%s", map[string]string{
		`{"jobs":[{"state":"failed","progress":3}]}`:                     "/jobs/0/progress",
		`{"jobs":[{"state":"gone","problem":{}}]}`:                       "/jobs/0/problem",
		`{"jobs":[{"state":"failed","result":{}}]}`:                      "/jobs/0/result",
		`{"jobs":[{"state":"exhausted","problem":{"retryable":false}}]}`: "/jobs/0/problem/retryable",
	})
	u.call(api, "POST", "/v1/jobs/"+m.Jobs[1].ID+"/cancel", "")
}

func TestReset(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed, env{"FORGERUN_TIME_SCALE": "1"})
	u, other := s.newUser(api), s.newUser(api)
	receiver := newReceiver(t, nil)
	u.subscribe(api, receiver.url+"/in", "*")
	kept := other.submit(api, execute("SUCCESS_FAST"))
	m := u.fixtures(api, `{"jobs":[{"state":"running"},{"state":"succeeded"},{"state":"gone"},{"state":"scheduled"}]}`)
	u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}]}`)
	u.disturb(api, `[{"match":{"operation":"getBatch"},"effect":{"status":503}}]`)
	submit := func() string {
		a := u.expect(api, http.StatusAccepted, "POST", "/v1/jobs", execute("SUCCESS_FAST"), "Idempotency-Key", "one")
		return a.text("job_id")
	}
	before := submit()
	s.await("SUCCEEDED", kept)

	for _, headers := range [][]string{nil, {"Idempotency-Key", "reset-1"}} {
		u.expect(api, http.StatusOK, "POST", "/v1/testbed/reset", "", headers...)
		for _, table := range []string{"jobs", "events", "deliveries", "webhooks", "batches", "tombstones", "testbed_faults"} {
			require.Zero(t, s.count(`SELECT count(*) FROM `+table+` WHERE client_id = $1`, u.id), table)
		}
		require.Zero(t, s.count(`SELECT count(*) FROM idempotency_keys WHERE client_id = $1 AND key <> 'reset-1'`, u.id))
		s.mu.Lock()
		delete(s.accepted, before)
		s.mu.Unlock()
		after := submit()
		require.NotEqual(t, before, after, "the key is free again")
		before = after
	}
	for _, j := range m.Jobs {
		u.call(api, "GET", "/v1/jobs/"+j.ID, "").requireProblem(t, 404, "RFA_JOB_NOT_FOUND")
	}
	require.Equal(t, http.StatusOK, other.call(api, "GET", "/v1/jobs/"+kept, "").status)
	s.awaitCount("the last job succeeds", 1, `SELECT count(*) FROM jobs WHERE state = 'SUCCEEDED' AND client_id = $1`, u.id)
	s.checkInvariants()
}

// verifying returns the handler of a correct receiver. It accepts all deliveries that the service signed, also repeated ones, and no
// others.
func verifying(c *client.Client, secret string) func(received, http.ResponseWriter, *http.Request) {
	keys := c.Directory().Key
	return func(d received, w http.ResponseWriter, _ *http.Request) {
		v := client.Verifier{Secret: secret}
		if secret == "" {
			v.Keys, v.URL = keys, d.url
		}
		if _, err := v.Verify(d.request()); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// deliveryFaults applies each kind of delivery fault to one of the first ten attempts.
const deliveryFaults = `[{"match":{"operation":"delivery","nth":1},"effect":{"tamper":"body"}},
	{"match":{"operation":"delivery","nth":2},"effect":{"tamper":"signature"}},
	{"match":{"operation":"delivery","nth":3},"effect":{"tamper":"timestamp"}},
	{"match":{"operation":"delivery","nth":4},"effect":{"tamper":"key"}},
	{"match":{"operation":"delivery","nth":5},"effect":{"tamper":"target"}},
	{"match":{"operation":"delivery","nth":6},"effect":{"rotated_secret":true}},
	{"match":{"operation":"delivery","nth":7},"effect":{"drop":true}},
	{"match":{"operation":"delivery","nth":8},"effect":{"repeat":2}},
	{"match":{"operation":"delivery","nth":9},"effect":{"padding":300000,"extensions":true,"job_status":"PONDERING"}},
	{"match":{"operation":"delivery","nth":10},"effect":{"delay":"100ms"}}]`

// badDeliveryFaults maps an invalid rule to the JSON pointer in its error.
var badDeliveryFaults = map[string]string{
	`{"match":{"operation":"delivery"},"effect":{"status":503}}`:             "/0/effect",
	`{"match":{"operation":"submitJob"},"effect":{"repeat":1}}`:              "/0/effect",
	`{"effect":{"tamper":"body"}}`:                                           "/0/effect",
	`{"match":{"operation":"delivery"},"effect":{"drop":true,"repeat":1}}`:   "/0/effect/drop",
	`{"match":{"operation":"delivery"},"effect":{"delay":"11s"}}`:            "/0/effect/delay",
	`{"match":{"operation":"delivery"},"effect":{"repeat":1,"cut_after":1}}`: "/0/effect",
	`{"match":{"operation":"delivery"},"effect":{"unfinished":true}}`:        "/0/effect",
}

// Even with all delivery faults, a correct receiver gets each delivery and breaks no rule.
func TestDisturbedDeliveries(t *testing.T) {
	s, api, u := newDelivering(t, withTestbed)
	u.requireViolations(api, "PUT", "/v1/testbed/faults", `[%s]`, badDeliveryFaults)
	u.call(api, "GET", "/v1/jobs", "", "ForgeRun-Fault", `{"repeat":1}`).requireProblem(t, 400, "RFA_JOB_VALIDATION_FAILED")
	u.disturb(api, `[{"match":{"operation":"delivery"},"effect":{"drop":true,"delay":"30s"}}]`)
	r := newReceiver(t, nil)
	hook := u.subscribe(api, r.url+"/in", "job.succeeded")
	c, err := client.New(client.Config{URL: api.url, Key: u.key})
	require.NoError(t, err)
	r.respondWith(verifying(c, hook.secret))
	session := u.startSession(api, "")
	u.disturb(api, deliveryFaults)
	s.await("SUCCEEDED", u.submitMany(api, 10, execute("SUCCESS_FAST"))...)
	s.awaitCount("all is delivered", 10, `SELECT count(*) FROM deliveries WHERE state = 'DELIVERED'`)
	s.awaitCount("all disturbed requests are recorded", 11+5,
		`SELECT count(*) FROM testbed_exchanges WHERE exchange->>'operation' = 'delivery'`)
	faults := u.call(api, "GET", "/v1/testbed/faults", "").body
	require.Equal(t, 10, strings.Count(faults, `"applied":1`), faults)
	v, broken := u.verdict(api, session)
	times := map[string]int{}
	for _, result := range v.Results {
		times[result.Rule] = result.Times
	}
	require.Equal(t, []int{5 + 5, 2}, []int{times["tampered-refused"], times["repeated-delivery"]})
	for _, rule := range []string{"tampered-refused", "repeated-delivery", "deliveries-answered"} {
		require.NotContains(t, broken, rule)
	}
	ids := map[string]int{}
	padded := 0
	for _, d := range r.all() {
		ids[d.id()]++
		if len(d.body) > 300_000 {
			padded++
			require.Contains(t, d.body, `"jobStatus":"PONDERING"`)
			require.Contains(t, d.body, `"x_extension"`)
		}
	}
	require.Len(t, ids, 10, "forged requests carry ids of deliveries")
	require.Len(t, r.all(), 10+5+5+2, "the deliveries, a forgery before and after each of five, and two copies")
	require.Equal(t, 1, padded)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM delivery_attempts WHERE error IS NOT NULL`), "the dropped delivery")
	s.checkInvariants()
}
