package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/job/testbed"
)

// careful answers deliveries as a client should: it takes what the service has signed, whether it knows it or not.
func careful(c *client.Client, secret string) func(received, http.ResponseWriter, *http.Request) {
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

// deliveryFaults has each fault of deliveries once, in the first ten attempts.
const deliveryFaults = `[{"match":{"operation":"delivery","nth":1},"effect":{"tamper":"body"}},
	{"match":{"operation":"delivery","nth":2},"effect":{"tamper":"signature"}},
	{"match":{"operation":"delivery","nth":3},"effect":{"tamper":"timestamp"}},
	{"match":{"operation":"delivery","nth":4},"effect":{"tamper":"key"}},
	{"match":{"operation":"delivery","nth":5},"effect":{"tamper":"target"}},
	{"match":{"operation":"delivery","nth":6},"effect":{"rotated_secret":true}},
	{"match":{"operation":"delivery","nth":7},"effect":{"drop":true}},
	{"match":{"operation":"delivery","nth":8},"effect":{"repeat":2}},
	{"match":{"operation":"delivery","nth":9},"effect":{"padding":300000}},
	{"match":{"operation":"delivery","nth":10},"effect":{"delay":"100ms"}}]`

// deliverTen has ten jobs' ends delivered to a new client's webhook with all faults, and gives the verdict.
func (s *stack) deliverTen(api *proc, receive func(c *client.Client, secret string) func(received, http.ResponseWriter, *http.Request)) (
	r *receiver, broken map[string]testbed.RuleResult,
) {
	u := s.newUser(api)
	r = newReceiver(s.t, nil)
	hook := u.subscribe(api, r.url+"/in", "job.succeeded")
	c, err := client.New(client.Config{URL: api.url, Key: u.key})
	require.NoError(s.t, err)
	r.behave(receive(c, hook.secret))
	session := u.startSession(api, "")
	u.disturb(api, deliveryFaults)
	ids := u.submitMany(api, 10, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", ids...)
	eventually(s.t, "all is delivered", func() bool {
		return s.count(`SELECT count(*) FROM deliveries WHERE client_id = $1 AND state = 'DELIVERED'`, u.id) == len(ids)
	})
	eventually(s.t, "all that comes besides has come", func() bool {
		return s.count(`SELECT count(*) FROM testbed_exchanges WHERE client_id = $1 AND exchange->>'operation' = 'delivery'`, u.id) == 8
	})
	faults := u.call(api, "GET", "/v1/testbed/faults", "").body
	require.Equal(s.t, 10, strings.Count(faults, `"applied":1`), faults)
	v, broken := u.verdict(api, session)
	for _, result := range v.Results {
		switch result.Rule {
		case "tampered-refused":
			require.Equal(s.t, 5, result.Times)
		case "repeated-delivery":
			require.Equal(s.t, 2, result.Times)
		}
	}
	return r, broken
}

func TestDisturbedDeliveries(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, withTestbed)
	api := s.startLeader()
	s.startWorker()
	s.startWebhooks()
	r, broken := s.deliverTen(api, careful)
	for _, rule := range []string{"tampered-refused", "repeated-delivery", "deliveries-answered"} {
		require.NotContains(t, broken, rule)
	}
	ids := map[string]int{}
	padded := 0
	for _, d := range r.all() {
		ids[d.id()]++
		if len(d.body) > 300_000 {
			padded++
		}
	}
	require.Len(t, ids, 10, "forged requests carry ids of deliveries")
	require.Len(t, r.all(), 10+5+2, "each one, five that are wrong, and two copies")
	require.Equal(t, 1, padded)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM delivery_attempts WHERE error IS NOT NULL`), "the one that was dropped")
	s.checkInvariants()

	// One that takes everything, and one that minds what it knows.
	_, broken = s.deliverTen(api, func(*client.Client, string) func(received, http.ResponseWriter, *http.Request) {
		return answering(http.StatusNoContent)
	})
	require.Contains(t, broken, "tampered-refused")
	require.Equal(t, 5, broken["tampered-refused"].Failures)
	require.NotContains(t, broken, "repeated-delivery")
	_, broken = s.deliverTen(api, func(c *client.Client, secret string) func(received, http.ResponseWriter, *http.Request) {
		var taken sync.Map
		verify := careful(c, secret)
		return func(d received, w http.ResponseWriter, r *http.Request) {
			judged := httptest.NewRecorder()
			verify(d, judged, r)
			if judged.Code == http.StatusNoContent {
				if _, again := taken.LoadOrStore(d.id(), true); again {
					judged.Code = http.StatusConflict
				}
			}
			w.WriteHeader(judged.Code)
		}
	})
	require.NotContains(t, broken, "tampered-refused")
	require.Equal(t, 2, broken["repeated-delivery"].Failures)
}

// What is not for deliveries is refused, and what is for them alone.
func TestFaultsOfDeliveriesAreChecked(t *testing.T) {
	t.Parallel()
	s := newStack(t, withTestbed)
	api := s.startAPI()
	u := s.newUser(api)
	for rule, pointer := range map[string]string{
		`{"match":{"operation":"delivery"},"effect":{"status":503}}`:             "/0/effect",
		`{"match":{"operation":"submitJob"},"effect":{"repeat":1}}`:              "/0/effect",
		`{"effect":{"tamper":"body"}}`:                                           "/0/effect",
		`{"match":{"operation":"delivery"},"effect":{"tamper":"hat"}}`:           "/0/effect/tamper",
		`{"match":{"operation":"delivery"},"effect":{"drop":true,"repeat":1}}`:   "/0/effect/drop",
		`{"match":{"operation":"delivery"},"effect":{"delay":"11s"}}`:            "/0/effect/delay",
		`{"match":{"operation":"delivery"},"effect":{"repeat":6}}`:               "/0/effect/repeat",
		`{"match":{"operation":"delivery"},"effect":{"repeat":1,"cut_after":1}}`: "/0/effect",
		`{"match":{"operation":"delivery"},"effect":{"padding":5000000}}`:        "/0/effect/padding",
	} {
		a := u.call(api, "PUT", "/v1/testbed/faults", "["+rule+"]")
		a.requireProblem(t, 400, "RFA_JOB_VALIDATION_FAILED")
		require.Contains(t, a.body, `"pointer":"`+pointer+`"`, rule)
	}
	u.disturb(api, `[{"match":{"operation":"delivery"},"effect":{"drop":true,"delay":"30s"}}]`)
	a := u.call(api, "GET", "/v1/jobs", "", "ForgeRun-Fault", `{"repeat":1}`)
	a.requireProblem(t, 400, "RFA_JOB_VALIDATION_FAILED")
}
