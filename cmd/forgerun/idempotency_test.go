package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// keyed sends a POST with an idempotency key, which must succeed.
func (u *user) keyed(api *proc, key, path, body string) answer {
	u.s.t.Helper()
	a := u.call(api, "POST", path, body, "Idempotency-Key", key)
	require.NoError(u.s.t, a.err)
	require.Less(u.s.t, a.status, http.StatusBadRequest, "%s: %s", path, a.body)
	return a
}

// requireReplay holds an answer against the first one.
func (a answer) requireReplay(t *testing.T, first answer) {
	t.Helper()
	require.Equal(t, "true", a.header.Get("Idempotency-Replayed"), a.body)
	require.Equal(t, first.status, a.status)
	require.Equal(t, first.body, a.body)
}

func TestFailureThatIsNotRetryableIsNotRetried(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	id := u.submit(api, execute("FAIL_IMMEDIATE"))
	s.await("FAILED", id)
	a := u.get(api, id)
	require.Equal(t, false, a.value("failure.retryable"))
	require.Equal(t, false, a.value("can_retry"))
	require.Nil(t, a.value("links.retry"))
	for _, key := range []string{"", "k"} {
		a := u.call(api, "POST", "/v1/jobs/"+id+"/retry", "", "Idempotency-Key", key+"-")
		a.requireProblem(t, http.StatusConflict, "RFA_JOB_CONFLICT")
		require.Contains(t, a.text("detail"), "not retryable")
	}
	require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	s.checkInvariants()
}

// A repeated retry, whose answer was lost, begins no other attempt, whatever the
// job did meanwhile.
func TestRepeatedRetryBeginsNoOtherAttempt(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api, other := s.startAPI(), s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	id := u.submit(api, execute("RETRY_LIMIT_REACHED"))
	s.await("FAILED", id)
	path := "/v1/jobs/" + id + "/retry"
	first := u.keyed(api, "once", path, "")
	require.Equal(t, true, first.value("changed"))
	require.Empty(t, first.header.Get("Idempotency-Replayed"))
	eventually(t, "the second attempt has failed", func() bool {
		return s.count(`SELECT count(*)::int FROM reports WHERE job_id = $1`, id) == 2
	})
	u.keyed(other, "once", path, "{}").requireReplay(t, first)
	second := u.submit(api, execute("RETRY_LIMIT_REACHED"))
	s.await("FAILED", second)
	u.call(api, "POST", "/v1/jobs/"+second+"/retry", "", "Idempotency-Key", "once").
		requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "", "Idempotency-Key", "once").
		requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))

	again := u.keyed(api, "another", path, "")
	require.Equal(t, true, again.value("changed"), "another key is another retry")
	s.checkInvariants()
}

func TestCancelAndItsRepetition(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	u := s.newUser(api)
	id := u.submit(api, execute("SUCCESS_FAST"))
	path := "/v1/jobs/" + id + "/cancel"
	first := u.keyed(api, "k", path, "")
	require.Equal(t, true, first.value("changed"))
	u.keyed(api, "k", path, "").requireReplay(t, first)
	unkeyed := u.call(api, "POST", path, "")
	require.Equal(t, false, unkeyed.value("changed"), unkeyed.body)
	require.Equal(t, "CANCELED", unkeyed.text("state"))

	batch := u.submitBatch(api, batchBody("SUCCESS_FAST", "SUCCESS_FAST"))
	all := u.keyed(api, "b", "/v1/batches/"+batch+"/cancel", "")
	require.Equal(t, "CANCELLED", all.text("status"), all.body)
	u.keyed(api, "b", "/v1/batches/"+batch+"/cancel", "").requireReplay(t, all)
	require.Equal(t, 1, s.count(`SELECT count(*)::int FROM client_events WHERE event_name = 'batch.completed'`))
	api.requireLine("job transition", "cancel", id, first.header.Get("X-Request-Id"))
	s.checkInvariants()
}

// Ten identical requests at once, at two processes, have one effect.
func TestTenIdenticalRequestsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	apis := []*proc{s.startAPI(), s.startAPI()}
	s.startWorker()
	u := s.newUser(apis[0])
	failed := u.submit(apis[0], execute("RETRY_LIMIT_REACHED"))
	s.await("FAILED", failed)
	hook := u.keyed(apis[0], "h", "/v1/webhooks", `{"url":"http://127.0.0.1:10/x","events":["batch.completed"]}`)
	s.secret(hook.text("secret"))
	webhook := "/v1/webhooks/" + hook.text("webhook_id")
	mine := "/v1/clients/" + u.id
	for _, c := range []struct{ path, body, effects string }{
		{"/v1/jobs/" + failed + "/retry", "", `SELECT attempt - 1 FROM jobs`},
		{mine + "/keys", `{"rotate":true}`, `SELECT count(*)::int - 1 FROM api_keys`},
		{mine + "/keys/renew", "", `SELECT count(*)::int - 2 FROM api_keys`},
		{"/v1/webhooks", `{"url":"http://127.0.0.1:10/y","events":["batch.completed"]}`, `SELECT count(*)::int - 1 FROM webhooks`},
		{webhook + "/rotate-secret", "", `SELECT cardinality(old_secrets) FROM webhooks WHERE url LIKE '%x'`},
		{webhook + "/test", "", `SELECT count(*)::int FROM deliveries`},
	} {
		answers := make([]answer, 10)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = u.call(apis[i%2], "POST", c.path, c.body, "Idempotency-Key", c.path) })
		}
		all.Wait()
		originals, secrets := 0, 0
		for _, a := range answers {
			require.NoError(t, a.err)
			require.Less(t, a.status, 300, "%s: %s", c.path, a.body)
			if a.header.Get("Idempotency-Replayed") == "" {
				originals++
			}
			if a.text("api_key") != "" || a.text("secret") != "" {
				secrets++
			}
		}
		require.Equal(t, 1, originals, c.path)
		require.LessOrEqual(t, secrets, 1, c.path)
		require.Equal(t, 1, s.count(c.effects), c.path)
	}
	s.requireNoStoredSecrets()
}

// requireNoStoredSecrets looks through all answers that are kept.
func (s *stack) requireNoStoredSecrets() {
	s.t.Helper()
	require.Zero(s.t, s.count(`SELECT count(*)::int FROM idempotency_keys
		WHERE convert_from(answer_body, 'UTF8') ~ 'whsec_|frk_' OR answer_header::text ~ 'whsec_|frk_'`))
}

func TestFirstKeyIsMadeOnceWithoutCredentials(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	apis := []*proc{s.startAPI(), s.startAPI()}
	nobody := &user{s: s}
	nobody.call(apis[0], "POST", "/v1/clients", "", "Idempotency-Key", strings.Repeat("k", 31)).
		requireProblem(t, http.StatusBadRequest, "RFA_REQUEST_MALFORMED")
	ten := func(path string) (answers []answer) {
		key := uuid.NewString()
		answers = make([]answer, 10)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = nobody.call(apis[i%2], "POST", path, "", "Idempotency-Key", key) })
		}
		all.Wait()
		return answers
	}
	ids := map[string]bool{}
	for _, a := range ten("/v1/clients") {
		require.Equal(t, http.StatusCreated, a.status, a.body)
		ids[a.text("client_id")] = true
	}
	require.Len(t, ids, 1)
	require.Equal(t, 1, s.count(`SELECT count(*)::int FROM clients`))
	shown := 0
	for id := range ids {
		for _, a := range ten("/v1/clients/" + id + "/keys") {
			require.Equal(t, http.StatusCreated, a.status, a.body)
			if key := a.text("api_key"); key != "" {
				s.secret(key)
				shown++
				continue
			}
			require.Equal(t, "true", a.header.Get("Idempotency-Replayed"))
			require.NotEmpty(t, a.text("key_id"))
		}
	}
	require.Equal(t, 1, shown)
	require.Equal(t, 1, s.count(`SELECT count(*)::int FROM api_keys`))
	s.requireNoStoredSecrets()
}

// An answer that is not committed is none: the repetition does it.
func TestRetryWhoseProcessDiesBeforeItsCommit(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	id := u.submit(api, execute("RETRY_LIMIT_REACHED"))
	s.await("FAILED", id)
	s.exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER hold BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION hold()`) // the answer, after the retry
	asked := make(chan answer, 1)
	go func() { asked <- u.call(api, "POST", "/v1/jobs/"+id+"/retry", "", "Idempotency-Key", "k") }()
	eventually(t, "the answer is being stored", func() bool {
		return s.count(`SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) == 1
	})
	require.Equal(t, 1, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))
	api.kill()
	require.Error(t, (<-asked).err)
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	s.exec(`DROP TRIGGER hold ON idempotency_keys`)
	api = s.startAPI()
	first := u.keyed(api, "k", "/v1/jobs/"+id+"/retry", "")
	require.Equal(t, true, first.value("changed"))
	require.Empty(t, first.header.Get("Idempotency-Replayed"))
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))
	s.checkInvariants()
}

func TestAnExpiredKeyIsRenewed(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_API_KEY_TTL": "1h", "FORGERUN_API_KEY_OVERLAP": "10m"})
	api := s.startAPI()
	u := s.newUser(api)
	require.True(t, u.accepts(api, u.key))
	renew := "/v1/clients/" + u.id + "/keys/renew"
	old := u.key
	api.kill() // it would remember when the keys end
	s.exec(`UPDATE api_keys SET created_at = created_at - interval '1 day', expires_at = now() - interval '167 hours'`)
	api = s.startAPI()
	u.look(api, old).requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_TOKEN_EXPIRED")
	lost := u.call(api, "POST", renew, "")
	require.Equal(t, http.StatusOK, lost.status, lost.body)
	s.secret(lost.text("api_key"))
	got := u.call(api, "POST", renew, "") // the answer before was lost
	require.Equal(t, http.StatusOK, got.status, got.body)
	s.secret(got.text("api_key"))
	u.look(api, old).requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_TOKEN_EXPIRED")
	api.requireLine("api key issued", "renew_key", got.text("key_id"), got.header.Get("X-Request-Id"))
	require.Zero(t, s.count(`SELECT count(*)::int FROM api_keys WHERE used_at IS NOT NULL AND issued_by = 'RENEWED'`))

	require.True(t, u.accepts(api, got.text("api_key")))
	api.kill() // the process that saw the use
	api = s.startAPI()
	u.call(api, "POST", renew, "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_FORBIDDEN")
	used := s.text(`SELECT used_at::text || xmin FROM api_keys WHERE key_id = $1`, got.text("key_id"))
	for range 5 {
		require.True(t, u.accepts(api, got.text("api_key")))
	}
	require.Equal(t, used, s.text(`SELECT used_at::text || xmin FROM api_keys WHERE key_id = $1`, got.text("key_id")), "written once")

	page := u.call(api, "GET", "/problems/key-expired", "")
	require.Contains(t, page.body, "/keys/renew")
}

func TestKeysPastTheWindowAreNotRenewed(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_API_KEY_RENEW_WINDOW": "1h"})
	api := s.startAPI()
	u, rotated := s.newUser(api), s.newUser(api)
	rotation := rotated.call(api, "POST", "/v1/clients/"+rotated.id+"/keys", `{"rotate":true}`)
	require.Equal(t, http.StatusCreated, rotation.status, rotation.body)
	s.secret(rotation.text("api_key"))
	api.kill()
	s.exec(`UPDATE api_keys SET expires_at = now() - interval '61 minutes' WHERE client_id = $1`, u.id)
	s.exec(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE client_id = $1 AND replaced_by IS NOT NULL`, rotated.id)
	api = s.startAPI()
	for _, who := range []*user{u, rotated} {
		who.call(api, "POST", "/v1/clients/"+who.id+"/keys/renew", "").requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_TOKEN_EXPIRED")
	}
}
