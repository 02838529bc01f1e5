package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
)

const readersToken = "the-readers-own-token"

// operator returns a user of the operator API. It checks each response against the document.
func (s *stack) operator(token string) *user {
	documented := apitest.New(s.t, operator.Document())
	return &user{s: s, key: token, admin: &http.Client{
		Timeout: patience, Transport: documented.Transport(&http.Transport{DisableKeepAlives: true}),
	}}
}

// ids returns the members with that name from the entries of a list.
func (a answer) ids(t *testing.T, name string) (ids []string) {
	t.Helper()
	var list struct{ Data []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(a.body), &list), a.body)
	for _, entry := range list.Data {
		ids = append(ids, entry[name].(string))
	}
	return ids
}

// passing matches the timestamps that differ between responses.
var passing = regexp.MustCompile(`"(time|as_of|heartbeat_at|expires_at)":"[^"]*"`)

// Each process of each role serves the operator API as documented, only to operators.
func TestOperatorAPI(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	api, sender, u := s.startDelivering()
	worker := s.startWorker()
	receiver := newReceiver(t, nil)
	hook := u.subscribe(api, receiver.url, "*").id
	failed := u.submit(api, execute("FAIL_IMMEDIATE", `"params":{"password":"hunter2","id":12345678901234567890}`))
	done := u.submit(api, execute("SUCCESS_FAST"))
	later := u.submit(api, farAway)
	batch := u.submitBatch(api, `{"jobs":[`+execute("SUCCESS_FAST")+`]}`)
	s.await("FAILED", failed)
	s.await("SUCCEEDED", done)
	eventually(t, "the batch is complete", func() bool { return s.completions(batch) == 1 })
	s.awaitDeliveries()
	ann := s.operator(operatorsToken)
	delivery := ann.call(api, "GET", "/admin/v1/deliveries?job_id="+failed, "").ids(t, "delivery_id")[0]

	for _, path := range []string{
		"jobs", "jobs?state=FAILED", "jobs?state=CREATED", "jobs?state=RUNNING", "jobs/count", "jobs/" + failed, "jobs/" + done, "jobs/" + later,
		"workers", "queues", "failures", "clients", "clients/" + u.id, "webhooks", "webhooks/" + hook, "deliveries", "deliveries/" + delivery,
		"batches", "batches/" + batch, "system", "audit", "catalogue", "openapi.yaml", "jobs/" + done + "/result",
	} {
		path = "/admin/v1/" + path
		want := ann.call(api, "GET", path, "")
		require.Equal(t, http.StatusOK, want.status, "%s %s", path, want.body)
		for _, p := range []*proc{worker, sender} {
			got := s.operator(readersToken).call(p, "GET", path, "")
			require.Equal(t, passing.ReplaceAllString(want.body, ""), passing.ReplaceAllString(got.body, ""), path)
		}
		require.Equal(t, http.StatusUnauthorized, s.operator("").call(worker, "GET", path, "").status, path)
	}
	for _, token := range []string{"a-wrong-token-of-somebody", u.key} {
		require.Equal(t, http.StatusUnauthorized, s.operator(token).call(worker, "GET", "/admin/v1/jobs", "").status)
	}
	detail := ann.call(worker, "GET", "/admin/v1/jobs/"+failed, "").body
	require.Contains(t, detail, `"params":{"password":"***","id":12345678901234567890}`)
	require.Contains(t, detail, `"failure_code":"RFA_`)
	require.Equal(t, []string{failed}, ann.call(worker, "GET", "/admin/v1/jobs?state=FAILED", "").ids(t, "job_id"))
	require.Contains(t, ann.call(worker, "GET", "/admin/v1/jobs/"+later, "").body, `"reason":"SCHEDULED"`)
}

// Operators' changes work from any process like the client's own changes, and every process shows them.
func TestOperatorChanges(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	api, sender, u := s.startDelivering()
	receiver := newReceiver(t, nil)
	hook := u.subscribe(api, receiver.url, "*").id
	worker := s.procs[1]
	ann := s.operator(operatorsToken)
	change := func(p *proc, status int, method, path, body string) answer {
		t.Helper()
		refused := s.operator(readersToken).call(p, method, "/admin/v1/"+path, body)
		require.Equal(t, http.StatusForbidden, refused.status, path)
		require.Contains(t, refused.body, "RFA_AUTH_FORBIDDEN")
		a := ann.call(p, method, "/admin/v1/"+path, body)
		require.Equal(t, status, a.status, "%s %s %s", method, path, a.body)
		return a
	}
	submit := func(p *proc, job string) string {
		return change(p, http.StatusAccepted, "POST", "jobs", `{"client_id":"`+u.id+`","job":`+job+`}`).text("job_id")
	}
	waiting := submit(sender, farAway)
	require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+waiting, "").status, "it is the client's")
	change(worker, http.StatusOK, "POST", "jobs/"+waiting+"/cancel", "")
	s.await("CANCELED", waiting)
	require.Contains(t, change(sender, http.StatusAccepted, "POST", "jobs/"+waiting+"/retry", "").body, `"changed":false`)
	change(sender, http.StatusNoContent, "DELETE", "jobs/"+waiting, "")
	require.Equal(t, http.StatusGone, u.call(api, "GET", "/v1/jobs/"+waiting, "").status)

	retried := submit(worker, execute("RETRY_ON_FAIL"))
	s.await("FAILED", retried)
	change(sender, http.StatusAccepted, "POST", "jobs/"+retried+"/retry", "")
	s.await("SUCCEEDED", retried)
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, retried))

	hopeless := submit(worker, execute("FAIL_IMMEDIATE"))
	s.await("FAILED", hopeless)
	change(sender, http.StatusConflict, "POST", "jobs/"+hopeless+"/retry", `{"override":false}`)
	change(sender, http.StatusAccepted, "POST", "jobs/"+hopeless+"/retry", `{"override":true}`)
	s.await("FAILED", hopeless)

	change(worker, http.StatusOK, "POST", "webhooks/"+hook+"/disable", "")
	require.Contains(t, u.call(api, "GET", "/v1/webhooks/"+hook, "").body, `"enabled":false`)
	change(worker, http.StatusOK, "POST", "webhooks/"+hook+"/enable", "")
	sent := change(worker, http.StatusAccepted, "POST", "webhooks/"+hook+"/test", "").text("delivery_id")
	receiver.await("the test", func(d received) bool { return d.event() == "webhook.test" })
	s.awaitDeliveries()
	change(api, http.StatusAccepted, "POST", "deliveries/"+sent+"/redeliver", "")
	s.awaitCount("it is delivered twice", 1,
		`SELECT count(*) FROM deliveries WHERE delivery_id = $1 AND state = 'DELIVERED' AND attempts = 2`, sent)

	client := change(worker, http.StatusCreated, "POST", "clients", "").text("client_id")
	change(worker, http.StatusOK, "POST", "clients/"+client+"/name", `{"name":"Billing"}`)
	require.Equal(t, []string{client}, ann.call(api, "GET", "/admin/v1/clients?named=true", "").ids(t, "client_id"))
	made := change(worker, http.StatusCreated, "POST", "clients/"+client+"/keys", "")
	s.secret(made.text("api_key"))
	newcomer := &user{s: s, id: client, key: made.text("api_key")}
	require.Equal(t, http.StatusOK, newcomer.call(api, "GET", "/v1/jobs", "").status)
	change(worker, http.StatusNoContent, "DELETE", "clients/"+client+"/keys/"+made.text("key_id"), "")
	eventually(t, "the key is refused", func() bool { return newcomer.call(api, "GET", "/v1/jobs", "").status == http.StatusForbidden })

	log := s.text(`SELECT string_agg(concat_ws(' ', action, status), ', ' ORDER BY audit_id) FROM audit WHERE operator = 'ann'`)
	require.Equal(t, "submit_job 202, cancel_job 200, retry_job 202, delete_job 204, submit_job 202, retry_job 202, "+
		"submit_job 202, retry_job 409, "+
		"retry_job 202, disable_webhook 200, enable_webhook 200, test_webhook 202, redeliver 202, create_client 201, "+
		"name_client 200, create_key 201, "+
		"revoke_key 204", log)
	require.Equal(t, []string{client}, ann.call(api, "GET", "/admin/v1/audit?action=create_client", "").ids(t, "target_id"))
}

// pause pauses something as an operator, and returns a function that resumes it. When pause returns, all statements that began before the
// pause have ended.
func (u *user) pause(p *proc, body string) (goOn func(*proc)) {
	u.s.t.Helper()
	a := u.call(p, "POST", "/admin/v1/pauses", body)
	require.Equal(u.s.t, http.StatusCreated, a.status, a.body)
	stopped := u.s.now()
	eventually(u.s.t, "claims that were under way are over", func() bool {
		return u.s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start <= $1::timestamptz
			AND pid <> pg_backend_pid()`, stopped) == 0
	})
	return func(p *proc) {
		u.s.t.Helper()
		r := u.call(p, "DELETE", "/admin/v1/pauses/"+a.text("pause_id"), "")
		require.Equal(u.s.t, http.StatusNoContent, r.status, r.body)
	}
}

// assignedSince counts jobs that were claimed after the moment.
func (s *stack) assignedSince(moment string, condition string) int {
	return s.count(`SELECT count(*) FROM events JOIN jobs USING (job_id)
		WHERE event_name = 'job.assigned' AND occurred_at > $1::timestamptz AND (`+condition+`)`, moment)
}

func (s *stack) now() string { return s.text(`SELECT clock_timestamp()::text`) }

// Everything is paused while jobs run and others are submitted. After the response no job is claimed, although Redis is emptied and all
// processes are killed and restarted. After the pause, all jobs run.
func TestEverythingIsPaused(t *testing.T) {
	s, api, u := newService(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "4"})
	worker := s.startWorker()
	ann := s.operator(operatorsToken)
	ids := u.submitMany(api, 40, execute("PAYLOAD_SMALL"))
	eventually(t, "some run", func() bool { return s.countJobs(ids, "SUCCEEDED") > 0 })
	goOn := ann.pause(worker, `{"scope":"ALL","reason":"a release"}`)
	paused := s.now()
	ids = append(ids, u.submitMany(api, 20, execute("PAYLOAD_SMALL"))...)
	last := ids[len(ids)-1]
	eventually(t, "the client sees it", func() bool {
		waiting, _ := u.get(api, last).value("waiting").(map[string]any)
		return waiting["reason"] == "PAUSED"
	})
	require.Equal(t, "5", u.get(api, last).header.Get("Retry-After"))

	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	worker.kill()
	api.kill()
	s.endLead()
	api = s.startLeader()
	s.startWorker()
	eventually(t, "the tasks are back", func() bool { return len(s.tasks()) >= 20 })
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	eventually(t, "the tasks are back again", func() bool { return len(s.tasks()) >= 20 })
	require.Zero(t, s.assignedSince(paused, "true"))

	a := ann.call(api, "GET", "/admin/v1/overview", "")
	require.Contains(t, a.body, `"ann has paused all jobs: a release"`)
	again := ann.call(api, "POST", "/admin/v1/pauses", `{"scope":"ALL","reason":"another"}`)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "a release", again.text("reason"))
	goOn(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `occurred_at < (SELECT at FROM audit WHERE action = 'resume' LIMIT 1)`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM audit WHERE action = 'pause' AND operator = 'ann' AND detail->>'reason' = 'a release'`))
	s.checkInvariants()
}

// A kind and a client are paused on a shared queue. Other jobs continue. Postponed jobs run later in the order in which they were queued,
// also under a new leader.
func TestPauseOfKindAndClient(t *testing.T) {
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "1"})
	leader := s.startLeader()
	api := s.startAPI()
	u, other, ann := s.newUser(api), s.newUser(api), s.operator(operatorsToken)
	kind := ann.pause(api, `{"scope":"KIND","target":"PAYLOAD_LARGE","reason":"too large"}`)
	client := ann.pause(api, `{"scope":"CLIENT","target":"`+u.id+`","reason":"asked for"}`)
	s.startWorker()
	paused := s.now()
	ids := u.submitAlike(api, 30, execute("PAYLOAD_SMALL"))
	large := other.submit(api, execute("PAYLOAD_LARGE"))
	s.await("SUCCEEDED", other.submit(api, execute("PAYLOAD_SMALL")))
	require.Equal(t, map[string]any{"reason": "PAUSED", "until": nil}, other.get(api, large).value("waiting"))
	s.awaitCount("all are aside", 31, `SELECT count(*) FROM jobs WHERE run_at > now() + interval '1 year'`)
	require.Zero(t, s.assignedSince(paused, `work_kind <> 'PAYLOAD_SMALL' OR jobs.client_id = '`+u.id+`'`))

	leader.kill()
	s.endLead()
	client(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `job_id = '`+large+`'`))
	kind(api)
	s.awaitFinal(large)
	started := s.text(`SELECT string_agg(job_id::text, ',' ORDER BY started_at) FROM jobs WHERE client_id = $1`, u.id)
	require.Equal(t, strings.Join(ids, ","), started, "in their order")
	s.checkInvariants()
}
