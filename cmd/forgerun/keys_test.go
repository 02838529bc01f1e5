package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// look is a request that any valid key may make.
func (u *user) look(api *proc, key string) answer {
	other := *u
	other.key = key
	return other.call(api, "GET", "/v1/jobs/"+nowhere, "")
}

// nowhere is the id of a job that does not exist.
const nowhere = "01900000-0000-7000-8000-000000000000"

func (u *user) accepts(api *proc, key string) bool {
	u.s.t.Helper()
	a := u.look(api, key)
	require.NoError(u.s.t, a.err)
	require.Contains(u.s.t, []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden}, a.status, a.body)
	return a.status == http.StatusNotFound
}

func TestRevocationIsSeenByEveryProcess(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	rotated := u.call(a, "POST", "/v1/clients/"+u.id+"/keys", `{"rotate":true}`)
	require.Equal(t, http.StatusCreated, rotated.status, rotated.body)
	s.secret(rotated.text("api_key"))
	for _, api := range []*proc{a, b, a, b} { // both have seen both keys
		require.True(t, u.accepts(api, u.key))
		require.True(t, u.accepts(api, rotated.text("api_key")))
	}
	newer := *u
	newer.key = rotated.text("api_key")
	revoked := newer.call(a, "POST", "/v1/clients/"+u.id+"/keys/revoke", `{"key_id":"`+rotated.text("key_id")+`"}`)
	answered := time.Now()
	require.Equal(t, http.StatusOK, revoked.status, revoked.body)
	u.look(a, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	eventually(t, "the other process refuses the key", func() bool { return !u.accepts(b, rotated.text("api_key")) })
	require.Less(t, time.Since(answered), 3*time.Second, "at once")
	for range 20 {
		u.look(b, rotated.text("api_key")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	}
	require.True(t, u.accepts(b, u.key), "the other key is not concerned")
	a.logged("api key revoked", u.id)
}

// What a leaked key can do ends with the first use of its successor, and with its
// revocation what it made.
func TestALeakedKeyDoesNotOutliveItsSuccessor(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": operatorsToken})
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	keys := "/v1/clients/" + u.id + "/keys"
	made := func(answered answer) user {
		require.Contains(t, []int{http.StatusOK, http.StatusCreated}, answered.status, answered.body)
		s.secret(answered.text("api_key"))
		return user{s: s, id: u.id, key: answered.text("api_key")}
	}
	thief := *u
	owner := made(u.call(a, "POST", keys+"/renew", ""))
	require.True(t, owner.accepts(a, owner.key))
	require.True(t, thief.accepts(b, thief.key), "the overlap goes on")
	for _, change := range [][2]string{{"/renew", ""}, {"", `{"rotate":true}`}, {"/revoke", `{"key_id":"` + keyID(owner.key) + `"}`}} {
		thief.call(b, "POST", keys+change[0], change[1]).requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
	}
	require.True(t, owner.accepts(b, owner.key))

	thiefs := made(owner.call(b, "POST", keys+"/renew", "")) // this one has leaked, too
	require.True(t, thiefs.accepts(a, thiefs.key))
	again := made(s.asOperator(a, "POST", keys, `{"rotate":true}`))
	require.Equal(t, http.StatusOK, s.asOperator(b, "POST", keys+"/revoke", `{"key_id":"`+keyID(owner.key)+`"}`).status)
	for _, ended := range []string{owner.key, thiefs.key} {
		eventually(t, "what the key made is refused", func() bool { return !u.accepts(a, ended) })
	}
	require.True(t, u.accepts(a, again.key))
	s.checkInvariants()
}

func TestKeysDoWhatTheirScopeAllows(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	scoped := func(scope string) *user {
		made := u.call(a, "POST", "/v1/clients/"+u.id+"/keys", `{"scope":"`+scope+`"}`)
		require.Equal(t, http.StatusCreated, made.status, made.body)
		require.Equal(t, scope, made.text("scope"))
		s.secret(made.text("api_key"))
		return &user{s: s, id: u.id, key: made.text("api_key")}
	}
	read, submit := scoped("read"), scoped("submit")
	id := submit.submit(a, execute("PAYLOAD_SMALL"))
	for _, api := range []*proc{a, b} {
		for _, one := range []*user{read, submit} {
			require.Equal(t, http.StatusOK, one.call(api, "GET", "/v1/jobs/"+id, "").status)
			one.call(api, "POST", "/v1/jobs/"+id+"/cancel", "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
			one.call(api, "POST", "/v1/clients/"+u.id+"/keys/renew", "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
			one.call(api, "POST", "/v1/clients/"+u.id+"/keys", `{"scope":"all"}`).requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
		}
		read.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
	}
	require.True(t, u.accepts(b, u.key), "the first key was not replaced")
	s.checkInvariants()
}

// A process that does not hear of changes must not trust its memory.
func TestRevocationIsSeenWithoutNotifications(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	require.True(t, u.accepts(b, u.key))
	// The watch's connection says LISTEN, and "-- ping" once it was quiet for FORGERUN_DB_TIMEOUT.
	s.exec(`CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE (query LIKE 'LISTEN%' OR query = '-- ping') AND datname = current_database(); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER cut BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION cut()`) // so the notification reaches nobody
	s.exec(`UPDATE api_keys SET revoked_at = clock_timestamp()`)
	eventually(t, "the process refuses the key", func() bool { return !u.accepts(b, u.key) })
	b.logged("key watch interrupted")
}

func TestKeyRotationOverlapsAndKeysExpireOnTime(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_API_KEY_TTL": "20s", "FORGERUN_API_KEY_OVERLAP": "4s"})
	a, b := s.startAPI(), s.startAPI()
	u := s.newUser(a)
	old := u.key
	renewed := u.call(a, "POST", "/v1/clients/"+u.id+"/keys/renew", "")
	require.Equal(t, http.StatusOK, renewed.status, renewed.body)
	u.key = renewed.text("api_key")
	s.secret(u.key)
	end := func(key string) time.Time {
		at := s.text(`SELECT to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.USZ') FROM api_keys
			WHERE $1 LIKE '%' || key_id || '%'`, key)
		expires, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(t, err)
		return expires
	}
	for key, expires := range map[string]time.Time{old: end(old), u.key: end(u.key)} {
		for _, api := range []*proc{a, b} {
			eventually(t, "the key expires to the instant", func() bool {
				asked := time.Now()
				ok := u.accepts(api, key)
				require.True(t, ok || !time.Now().Before(expires), "refused before its end")
				require.True(t, !ok || asked.Before(expires), "accepted after its end")
				return !ok
			})
			u.look(api, key).requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_TOKEN_EXPIRED")
		}
	}
	require.Greater(t, end(u.key).Sub(end(old)), 10*time.Second, "the old key ends with the overlap")
}

// Where only the operator registers clients, whoever has no credentials is refused
// before a transaction begins: not even a locked client makes him wait.
func TestNobodyReachesStorageWhereRegistrationIsClosed(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	u := s.newUser(s.startAPI())
	closed := s.startAPI(env{"FORGERUN_OPEN_REGISTRATION": "false"})
	tx, err := s.db.Begin(s.ctx())
	require.NoError(t, err)
	_, err = tx.Exec(s.ctx(), `LOCK TABLE clients, api_keys, idempotency_keys IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	nobody := &user{s: s}
	for _, path := range []string{"/v1/clients", "/v1/clients/" + u.id + "/keys"} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", uuid.NewString()}} {
			nobody.call(closed, "POST", path, "", headers...).requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_INVALID_CREDENTIALS")
		}
	}
	require.NoError(t, tx.Rollback(s.ctx()))
}
