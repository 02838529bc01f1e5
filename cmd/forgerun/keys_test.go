package main

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// look sends a request that every valid key allows.
func (u *user) look(api *proc, key string) answer {
	other := *u
	other.key = key
	return other.call(api, "GET", "/v1/jobs/"+unknownJob, "")
}

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
	for _, api := range []*proc{a, b} { // use both keys, so that both processes have them in their caches
		require.True(t, u.accepts(api, u.key))
		require.True(t, u.accepts(api, rotated.text("api_key")))
	}
	newer := *u
	newer.key = rotated.text("api_key")
	newer.expect(a, http.StatusOK, "POST", "/v1/clients/"+u.id+"/keys/revoke", `{"key_id":"`+rotated.text("key_id")+`"}`)
	u.look(a, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	eventually(t, "the other process refuses the key", func() bool { return !u.accepts(b, rotated.text("api_key")) })
	for range 20 {
		u.look(b, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	}
	require.True(t, u.accepts(b, u.key), "the other key stays valid")
	a.logged("api key revoked", u.id)
}

// With closed registration, a request without credentials is refused before a transaction begins. Locked tables do not delay it.
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

// With open registration, an IP address can register only a few clients a minute. Operators and local requests have no such limit.
func TestRegistrationLimitByAddress(t *testing.T) {
	const token, limit = "an-operators-long-token", 60
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
	statuses := map[int]int{}
	for range 2 * limit {
		statuses[register("203.0.113.7", "")]++
		statuses[register("2001:db8::"+strconv.Itoa(1+statuses[http.StatusCreated]), "")]++ // addresses in one /64 network
	}
	require.GreaterOrEqual(t, statuses[http.StatusCreated], 2*limit)
	require.GreaterOrEqual(t, statuses[http.StatusTooManyRequests], limit, "%v", statuses)
	require.Equal(t, 4*limit, statuses[http.StatusCreated]+statuses[http.StatusTooManyRequests])
	require.Equal(t, http.StatusCreated, register("203.0.113.8", ""), "another address")
	for range limit + 1 {
		require.Equal(t, http.StatusCreated, register("203.0.113.7", token))
		require.Equal(t, http.StatusCreated, register("127.0.0.1", ""))
	}
}
