package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// The leader is killed in the middle of an erasure of a client with jobs that run and wait, a batch and a webhook: another one
// goes on, nothing of the client is left, and nothing of another one is touched.
func TestErasureWhoseLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{
		"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "1", "FORGERUN_TIME_SCALE": "1",
	})
	leader := s.startLeader()
	api := s.startAPI()
	s.startWebhooks()
	u, other := s.newUser(api), s.newUser(api)
	receiver, spared := newReceiver(t, nil), newReceiver(t, nil)
	u.subscribe(api, receiver.url, "*")
	other.subscribe(api, spared.url, "*")
	running := u.submit(api, execute("RUNS_LONG", `"callback":"`+receiver.url+`/called"`))
	s.startWorker()
	s.await("RUNNING", running)
	waiting := u.submitAlike(api, 700, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	queued := u.submit(api, execute("SUCCESS_FAST"))
	kept := other.submit(api, execute("SUCCESS_FAST"))

	ann := s.operator(operatorsToken)
	path, body := "/admin/v1/clients/"+u.id+"/erase", `{"confirm":"`+u.id+`","reason":"asked for"}`
	// It cannot get on at the batches. No row is locked: it would wait for who does that from its beginning on.
	s.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN OLD; END $$`)
	s.exec(`CREATE TRIGGER gate BEFORE DELETE ON batches FOR EACH ROW EXECUTE FUNCTION gate()`)
	unlock := s.lock(`SELECT pg_advisory_xact_lock(4711)`)
	a := ann.call(api, "POST", path, body)
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	eventually(t, "each process has heard that the key is disabled", func() bool {
		return u.call(api, "GET", "/v1/jobs", "").status == http.StatusForbidden
	})
	u.call(api, "GET", "/v1/jobs", "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	location := a.header.Get("Location")
	var e answer
	eventually(t, "the erasure is in its middle", func() bool {
		e = ann.call(api, "GET", location, "")
		return e.text("step") == "batches"
	})
	require.Equal(t, "RUNNING", e.text("state"))
	again := ann.call(api, "POST", path, body)
	require.Equal(t, a.text("erasure_id"), again.text("erasure_id"))
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1`, u.id))
	s.await("SUCCEEDED", kept) // the worker has one place: it was told that the client's job is canceled
	// Tasks are removed best effort: what a killed process still had in mind would stay.
	eventually(t, "no task is left", func() bool { return len(s.tasks()) == 0 })
	leader.kill()
	unlock()
	eventually(t, "the client is erased", func() bool {
		e = ann.call(api, "GET", location, "")
		return e.text("state") == "DONE"
	})

	var done struct {
		Removed map[string]int
		Proof   struct {
			Remaining map[string]int
			Record    json.RawMessage
			SHA256    string `json:"sha256"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(e.body), &done))
	require.Len(t, done.Proof.Remaining, len(job.ErasedTables))
	for table, n := range done.Proof.Remaining {
		require.Zero(t, n, table)
	}
	require.Equal(t, len(waiting)+2, done.Removed["jobs"])
	require.Equal(t, 1, done.Removed["webhooks"])
	sum := sha256.Sum256(done.Proof.Record)
	require.Equal(t, hex.EncodeToString(sum[:]), done.Proof.SHA256)
	for _, table := range []string{
		"jobs", "events", "deliveries", "webhooks", "batches", "tombstones", "api_keys", "clients", "idempotency_keys",
	} {
		require.Zero(t, s.count(`SELECT count(*) FROM `+table+` WHERE client_id = $1`, u.id), table)
	}
	require.Equal(t, http.StatusNotFound, ann.call(api, "GET", "/admin/v1/clients/"+u.id, "").status)
	require.Equal(t, http.StatusNotFound, ann.call(api, "POST", path, body).status)
	require.Equal(t, []string{a.text("erasure_id")}, ann.call(api, "GET", "/admin/v1/erasures", "").ids(t, "erasure_id"))
	u.call(api, "GET", "/v1/jobs", "").requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_INVALID_CREDENTIALS")
	require.Equal(t, 3, s.count(`SELECT count(*) FROM audit WHERE action = 'erase_client' AND target_id = $1`, u.id))

	s.mu.Lock()
	delete(s.accepted, running)
	delete(s.accepted, queued)
	s.mu.Unlock()
	s.awaitDeliveries()
	different := map[string]bool{} // a delivery may come again
	for _, d := range spared.of(kept) {
		different[d.id()] = true
	}
	require.Len(t, different, len(life))
	s.checkInvariants()
}

// In a browser a client is erased only after its id was typed.
func TestConsoleErasesAClient(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	u.submitAlike(api, 2, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	c := newConsole(t, s, api)
	c.open("clients/" + u.id)
	c.press("Erase client…")
	c.fill("confirm", "some-other-text")
	c.press("Erase it for good")
	c.until("the field is wrong", `document.querySelector('[name="confirm"]').matches(":invalid")`)
	require.Zero(t, s.count(`SELECT count(*) FROM erasures`))
	c.fill("confirm", u.id)
	c.fill("reason", "<b>asked</b> for")
	c.press("Erase it for good")
	c.says("Erasure of client")
	c.says("DONE")
	c.says("0 rows remain.")
	c.says("<b>asked</b> for")
	require.Equal(t, 2, s.count(`SELECT (removed ->> 'jobs')::int FROM erasures WHERE client_id = $1`, u.id))
	c.open("erasures")
	c.says(u.id)
	c.noneWrong()
}
