package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// submitAlike submits a batch of n equal jobs, and returns their ids.
func (u *user) submitAlike(api *proc, n int, body string) (ids []string) {
	u.s.t.Helper()
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/jobs/batch", `{"jobs":[`+strings.TrimSuffix(strings.Repeat(body+",", n), ",")+`]}`)
	for _, item := range a.value("jobs").([]any) {
		ids = append(ids, item.(map[string]any)["job_id"].(string))
	}
	return ids
}

// bulk begins a bulk operation and returns its path.
func (u *user) bulk(api *proc, body string) string {
	u.s.t.Helper()
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/bulk", body)
	require.Equal(u.s.t, "/v1/bulk/"+a.text("bulk_id"), a.header.Get("Location"))
	return a.header.Get("Location")
}

// awaitBulk waits until done jobs of an operation have a result; -1: until the operation ends.
func (u *user) awaitBulk(api *proc, path string, done int) (a answer) {
	u.s.t.Helper()
	eventually(u.s.t, "the bulk operation gets on", func() bool {
		a = u.call(api, "GET", path, "")
		return done < 0 && a.text("state") == "DONE" || done >= 0 && a.value("done").(float64) >= float64(done)
	})
	return a
}

// The leader is killed in the middle of an operation. Another leader continues it, and every job is retried once.
func TestBulkRetrySurvivesKilledLeader(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_WORKER_CONCURRENCY": "50"})
	leader := s.startLeader()
	api := s.startAPI()
	worker := s.startWorker()
	deliverer := s.startDeliverer()
	u := s.newUser(api)
	receiver := u.receive(api, nil, "bulk.completed")
	const n, first = 200, 20
	ids := u.submitAlike(api, n, execute("RETRY_ON_FAIL"))
	s.await("FAILED", ids...)
	dry := u.expect(api, http.StatusOK, "POST", "/v1/bulk", `{"action":"retry","filter":{"state":"FAILED"},"dry_run":true}`)
	require.InDelta(t, n, dry.value("count"), 0)
	require.InDelta(t, n, dry.value("changes"), 0)
	require.Empty(t, dry.value("left"))
	require.Len(t, dry.value("sample"), 10)

	path := u.bulk(api, `{"action":"retry","filter":{"state":"FAILED","work_kind":"RETRY_ON_FAIL"},"rate":20}`)
	before := u.awaitBulk(api, path, first)
	require.Equal(t, "RUNNING", before.text("state"), before.body)
	leader.kill()
	s.endLead()
	s.exec(`UPDATE bulk_operations SET rate = 1000`) // speed up the rest
	after := u.awaitBulk(api, path, -1)
	for member, want := range map[string]float64{"total": n, "done": n, "succeeded": n, "skipped": 0, "failed": 0} {
		require.InDelta(t, want, after.value(member), 0, after.body)
	}
	s.await("SUCCEEDED", ids...)
	require.Equal(t, n, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.retried'`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM jobs WHERE attempt = 2`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM bulk_items WHERE result = 'SUCCEEDED'`))
	// The counters of the killed process are gone, so the metrics count at most the jobs retried after the kill.
	late := 0.0
	for _, p := range []*proc{api, worker, deliverer} {
		late += sum(p.scrape(), "bulk_items_total", "action", "retry")
	}
	require.LessOrEqual(t, late, float64(n-first))
	require.NotZero(t, late)
	u.call(api, "POST", path+"/abort", "").requireProblem(t, http.StatusConflict, "RFA_JOB_CONFLICT")
	delivered := receiver.await("bulk.completed", func(d received) bool { return d.event() == "bulk.completed" })
	require.JSONEq(t, fmt.Sprintf(`{"bulkId":%q,"action":"retry","state":"DONE","total":%d,"succeeded":%[2]d,"skipped":0,"failed":0}`,
		strings.TrimPrefix(path, "/v1/bulk/"), n), delivered.body)
	require.Equal(t, strings.TrimPrefix(path, "/v1/"), delivered.header.Get("Ce-Subject"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM client_events WHERE event_name = 'bulk.completed'`))
	s.checkInvariants()
}

// An abort ends an operation. Finished jobs stay changed; the others are not touched.
func TestBulkCancelIsAborted(t *testing.T) {
	s, api, u := newService(t)
	other := s.newUser(api)
	const n = 200
	ids := u.submitAlike(api, n, farAway)
	foreign := other.submitAlike(api, 1, farAway)
	path := u.bulk(api, `{"action":"cancel","filter":{"all":true},"rate":10}`)
	u.awaitBulk(api, path, 10)
	a := u.expect(api, http.StatusOK, "POST", path+"/abort", "")
	require.Equal(t, "ABORTED", a.text("state"))
	canceled := int(a.value("succeeded").(float64))
	require.Equal(t, canceled, s.countJobs(ids, "CANCELED"), "the answer is what happened")
	require.Less(t, canceled, n)
	require.InDelta(t, n, a.value("total"), 0)
	again := u.call(api, "POST", path+"/abort", "")
	require.Equal(t, a.body, again.body)
	require.Equal(t, "ABORTED", s.text(`SELECT data->>'state' FROM client_events WHERE event_name = 'bulk.completed'`))
	pending := u.call(api, "GET", path+"/items?result=PENDING&limit=100", "")
	require.Len(t, pending.value("data"), 100)

	rest := u.bulk(api, `{"action":"cancel","filter":{"state":"CREATED"},"rate":1000}`)
	done := u.awaitBulk(api, rest, -1)
	require.InDelta(t, n-canceled, done.value("succeeded"), 0, done.body)
	require.Equal(t, canceled, s.count(`SELECT count(*) FROM bulk_items WHERE bulk_id = $1 AND result = 'SUCCEEDED'`,
		strings.TrimPrefix(path, "/v1/bulk/")), "the aborted one did nothing meanwhile")
	s.await("CANCELED", ids...)
	require.Equal(t, 1, s.countJobs(foreign, "CREATED"), "of another client")

	gone := u.bulk(api, `{"action":"delete","filter":{"state":"CANCELED"},"rate":1000}`)
	done = u.awaitBulk(api, gone, -1)
	require.InDelta(t, n, done.value("succeeded"), 0, done.body)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE job_id = ANY ($1::uuid[])`, ids))
	require.Equal(t, fmt.Sprint(n), s.text(`SELECT count(*)::text FROM tombstones`))
	s.checkInvariants()
}

// The leader is killed while it erases a client with running and waiting jobs, a batch and a webhook. Another leader continues, deletes
// all data of the client, and touches no other client.
func TestErasureSurvivesKilledLeader(t *testing.T) {
	s := newStack(t, hooks, env{
		"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "1", "FORGERUN_TIME_SCALE": "1",
	})
	leader := s.startLeader()
	api := s.startAPI()
	s.startDeliverer()
	u, other := s.newUser(api), s.newUser(api)
	receiver, spared := newReceiver(t, nil), newReceiver(t, nil)
	u.subscribe(api, receiver.url, "*")
	other.subscribe(api, spared.url, "*")
	running := u.submit(api, execute("RUNS_LONG", `"callback":"`+receiver.url+`/called"`))
	s.startWorker()
	s.await("RUNNING", running)
	waiting := u.submitAlike(api, 200, farAway)
	queued := u.submit(api, execute("SUCCESS_FAST"))
	kept := other.submit(api, execute("SUCCESS_FAST"))

	ann := s.operator(operatorsToken)
	path, body := "/admin/v1/clients/"+u.id+"/erase", `{"confirm":"`+u.id+`","reason":"asked for"}`
	// Stop the erasure at the batches. A locked row would not do: the erasure would wait for it from the start.
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
	s.await("SUCCEEDED", kept) // the worker runs one job at a time, so it has stopped the client's canceled job
	// Tasks are removed best effort, so a killed process could leave some.
	eventually(t, "no task is left", func() bool { return len(s.tasks()) == 0 })
	leader.kill()
	s.endLead()
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
	different := map[string]bool{} // a delivery may be repeated
	for _, d := range spared.of(kept) {
		different[d.id()] = true
	}
	require.Len(t, different, len(life))
	s.checkInvariants()
}

// The console erases a client only after the operator typed its id.
func TestConsoleErasesAClient(t *testing.T) {
	s, api, u := newService(t)
	u.submitAlike(api, 2, farAway)
	c := newConsole(t, s, api)
	c.open("clients/" + u.id)
	c.press("Erase client…")
	c.fill("confirm", "some-other-text")
	c.press("Erase permanently")
	c.until("the field is wrong", `document.querySelector('[name="confirm"]').matches(":invalid")`)
	require.Zero(t, s.count(`SELECT count(*) FROM erasures`))
	c.fill("confirm", u.id)
	c.fill("reason", "<b>asked</b> for")
	c.press("Erase permanently")
	c.says("Erasure of client")
	c.says("DONE")
	c.says("0 rows remain.")
	c.says("<b>asked</b> for")
	require.Equal(t, 2, s.count(`SELECT (removed ->> 'jobs')::int FROM erasures WHERE client_id = $1`, u.id))
	c.open("erasures")
	c.says(u.id)
	c.noneWrong()
}
