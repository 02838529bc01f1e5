package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (u *user) submitCopies(api *proc, n int, body string) (ids []string) {
	u.s.t.Helper()
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/jobs/batch", `{"jobs":[`+strings.TrimSuffix(strings.Repeat(body+",", n), ",")+`]}`)
	for _, item := range a.value("jobs").([]any) {
		ids = append(ids, item.(map[string]any)["job_id"].(string))
	}
	return ids
}

func (u *user) bulk(api *proc, body string) string {
	u.s.t.Helper()
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/bulk", body)
	require.Equal(u.s.t, "/v1/bulk/"+a.text("bulk_id"), a.header.Get("Location"))
	return a.header.Get("Location")
}

// awaitBulk waits until `done` jobs are processed. If `done` is negative, it waits for the end of the operation.
func (u *user) awaitBulk(api *proc, path string, done int) (a answer) {
	u.s.t.Helper()
	eventually(u.s.t, "the bulk operation makes progress", func() bool {
		a = u.call(api, "GET", path, "")
		return done < 0 && a.text("state") == "DONE" || done >= 0 && a.value("done").(float64) >= float64(done)
	})
	return a
}

// After the kill, another leader continues the operation. Every job is retried exactly once.
func TestBulkRetrySurvivesKilledLeader(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_WORKER_CONCURRENCY": "50"})
	leader := s.startLeader()
	api := s.startAPI()
	worker := s.startWorker()
	deliverer := s.startDeliverer()
	u := s.newUser(api)
	receiver := u.receive(api, nil, "bulk.completed")
	const n, first = 200, 20
	ids := u.submitCopies(api, n, execute("RETRY_ON_FAIL"))
	s.await("FAILED", ids...)

	path := u.bulk(api, `{"action":"retry","filter":{"state":"FAILED","work_kind":"RETRY_ON_FAIL"},"rate":20}`)
	before := u.awaitBulk(api, path, first)
	require.Equal(t, "RUNNING", before.text("state"), before.body)
	leader.kill()
	s.endLead()
	s.exec(`UPDATE bulk_operations SET rate = 1000`)
	after := u.awaitBulk(api, path, -1)
	for member, want := range map[string]float64{"total": n, "done": n, "succeeded": n, "skipped": 0, "failed": 0} {
		require.InDelta(t, want, after.value(member), 0, after.body)
	}
	s.await("SUCCEEDED", ids...)
	require.Equal(t, n, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.retried'`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM jobs WHERE attempt = 2`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM bulk_items WHERE result = 'SUCCEEDED'`))
	// The counters of the killed process are gone, so only retries after the kill are counted.
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
	waiting := u.submitCopies(api, 200, farAway)
	queued := u.submit(api, execute("SUCCESS_FAST"))
	kept := other.submit(api, execute("SUCCESS_FAST"))

	ann := s.operator(operatorsToken)
	path, body := "/admin/v1/clients/"+u.id+"/erase", `{"confirm":"`+u.id+`","reason":"asked for"}`
	// A trigger stops the erasure when it deletes batches. A lock on a row would stop the erasure earlier, at its first step.
	s.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN OLD; END $$`)
	s.exec(`CREATE TRIGGER gate BEFORE DELETE ON batches FOR EACH ROW EXECUTE FUNCTION gate()`)
	unlock := s.lock(`SELECT pg_advisory_xact_lock(4711)`)
	a := ann.expect(api, http.StatusAccepted, "POST", path, body)
	eventually(t, "every process knows that the key is disabled", func() bool {
		return u.call(api, "GET", "/v1/jobs", "").status == http.StatusForbidden
	})
	u.call(api, "GET", "/v1/jobs", "").requireProblem(t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
	location := a.header.Get("Location")
	var e answer
	eventually(t, "the erasure has reached the batches", func() bool {
		e = ann.call(api, "GET", location, "")
		return e.text("step") == "batches"
	})
	require.Equal(t, "RUNNING", e.text("state"))
	again := ann.call(api, "POST", path, body)
	require.Equal(t, a.text("erasure_id"), again.text("erasure_id"))
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE client_id = $1`, u.id))
	s.await("SUCCEEDED", kept) // the worker runs one job at a time, so it has stopped the erased client's job
	// Wait before the kill: tasks that a dead leader has not removed can stay in Redis.
	eventually(t, "no task is left", func() bool { return len(s.tasks()) == 0 })
	leader.kill()
	s.endLead()
	unlock()
	eventually(t, "the client is erased", func() bool {
		e = ann.call(api, "GET", location, "")
		return e.text("state") == "DONE"
	})

	require.InDelta(t, len(waiting)+2, e.value("removed.jobs"), 0)
	require.InDelta(t, 1, e.value("removed.webhooks"), 0)
	remaining, _ := e.value("proof.remaining").(map[string]any)
	require.Len(t, remaining, len(job.ErasedTables))
	for table, n := range remaining {
		require.Zero(t, n, table)
	}
	for _, table := range []string{
		"jobs", "events", "deliveries", "webhooks", "batches", "tombstones", "api_keys", "clients", "idempotency_keys",
	} {
		require.Zero(t, s.count(`SELECT count(*) FROM `+table+` WHERE client_id = $1`, u.id), table)
	}
	u.call(api, "GET", "/v1/jobs", "").requireProblem(t, http.StatusUnauthorized, "RFA_AUTH_INVALID_CREDENTIALS")
	require.Equal(t, 2, s.count(`SELECT count(*) FROM audit WHERE action = 'erase_client' AND target_id = $1`, u.id))

	s.mu.Lock()
	delete(s.accepted, running)
	delete(s.accepted, queued)
	s.mu.Unlock()
	s.awaitDeliveries()
	different := map[string]bool{} // a repeated delivery counts once
	for _, d := range spared.of(kept) {
		different[d.id()] = true
	}
	require.Len(t, different, len(life))
	s.checkInvariants()
}

// The console erases a client only after the operator has typed its id.
func (c *consoleTab) erase(client string) {
	c.t.Helper()
	c.open("clients/" + client)
	c.press("Erase client…")
	c.fill("confirm", "some-other-text")
	c.press("Erase permanently")
	c.until("the field is wrong", `document.querySelector('[name="confirm"]').matches(":invalid")`)
	require.Zero(c.t, c.s.count(`SELECT count(*) FROM erasures`))
	c.fill("confirm", client)
	c.fill("reason", "<b>asked</b> for")
	c.press("Erase permanently")
	c.says("Erasure of client")
	c.says("DONE")
	c.says("0 rows remain.")
	c.says("<b>asked</b> for")
	c.open("erasures")
	c.says(client)
}
