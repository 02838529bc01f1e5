package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
)

const readersToken = "the-readers-own-token"

// operator returns a user of the operator API. Each response is checked against the OpenAPI document of the operator API.
func (s *stack) operator(token string) *user {
	documented := apitest.New(s.t, operator.Document())
	return &user{s: s, key: token, admin: &http.Client{
		Timeout: patience, Transport: documented.Transport(&http.Transport{DisableKeepAlives: true}),
	}}
}

func (a answer) ids(t *testing.T, name string) (ids []string) {
	t.Helper()
	list := parsed[struct{ Data []map[string]any }](t, a.body)
	for _, entry := range list.Data {
		ids = append(ids, entry[name].(string))
	}
	return ids
}

var volatileTimes = regexp.MustCompile(`"(time|as_of|heartbeat_at|expires_at)":"[^"]*"`)

// Every process serves the operator API as documented, but only to operators. Read-only operators cannot change anything.
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
			require.Equal(t, volatileTimes.ReplaceAllString(want.body, ""), volatileTimes.ReplaceAllString(got.body, ""), path)
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

	change := func(p *proc, method, path, body string) answer {
		t.Helper()
		require.Equal(t, http.StatusForbidden, s.operator(readersToken).call(p, method, "/admin/v1/"+path, body).status, path)
		a := ann.call(p, method, "/admin/v1/"+path, body)
		require.Equal(t, 2, a.status/100, "%s %s: %d %s %v", method, path, a.status, a.body, a.err)
		return a
	}
	submitted := change(worker, "POST", "jobs", `{"client_id":"`+u.id+`","job":`+farAway+`}`).text("job_id")
	change(sender, "POST", "jobs/"+submitted+"/cancel", "")
	require.Equal(t, "CANCELED", u.get(api, submitted).text("state"))
	change(worker, "POST", "webhooks/"+hook+"/test", "")
	receiver.await("the test", func(d received) bool { return d.event() == "webhook.test" })
	made := change(worker, "POST", "clients/"+u.id+"/keys", `{"scope":"read"}`)
	s.secret(made.text("api_key"))
	require.True(t, u.accepts(api, made.text("api_key")))
	change(sender, "DELETE", "clients/"+u.id+"/keys/"+made.text("key_id"), "")
	eventually(t, "the key is refused", func() bool { return !u.accepts(api, made.text("api_key")) })
	require.Equal(t, "submit_job, cancel_job, test_webhook, create_key, revoke_key",
		s.text(`SELECT string_agg(action, ', ' ORDER BY audit_id) FROM audit WHERE operator = 'ann'`))
}

// pause begins a pause with the request body `body`, and returns a function that ends the pause. When pause returns, all statements that
// began before the pause have ended.
func (u *user) pause(p *proc, body string) (resume func(*proc)) {
	u.s.t.Helper()
	a := u.call(p, "POST", "/admin/v1/pauses", body)
	require.Equal(u.s.t, http.StatusCreated, a.status, a.body)
	stopped := u.s.now()
	eventually(u.s.t, "earlier claims have ended", func() bool {
		return u.s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start <= $1::timestamptz
			AND pid <> pg_backend_pid()`, stopped) == 0
	})
	return func(p *proc) {
		u.s.t.Helper()
		r := u.call(p, "DELETE", "/admin/v1/pauses/"+a.text("pause_id"), "")
		require.Equal(u.s.t, http.StatusNoContent, r.status, r.body)
	}
}

func (s *stack) assignedSince(moment string, condition string) int {
	return s.count(`SELECT count(*) FROM events JOIN jobs USING (job_id)
		WHERE event_name = 'job.assigned' AND occurred_at > $1::timestamptz AND (`+condition+`)`, moment)
}

func (s *stack) now() string { return s.text(`SELECT clock_timestamp()::text`) }

// All jobs are paused, while some run and others are submitted. After the response to the pause request, no job starts, even if
// Redis loses its data and all processes restart. After the pause, all jobs run.
func TestEverythingIsPaused(t *testing.T) {
	s, api, u := newService(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "4"})
	worker := s.startWorker()
	ann := s.operator(operatorsToken)
	ids := u.submitMany(api, 40, execute("PAYLOAD_SMALL"))
	eventually(t, "some run", func() bool { return s.countJobs(ids, "SUCCEEDED") > 0 })
	resume := ann.pause(worker, `{"scope":"ALL","reason":"a release"}`)
	paused := s.now()
	ids = append(ids, u.submitMany(api, 20, execute("PAYLOAD_SMALL"))...)
	last := ids[len(ids)-1]
	eventually(t, "the client sees the pause", func() bool {
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
	resume(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `occurred_at < (SELECT at FROM audit WHERE action = 'resume' LIMIT 1)`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM audit WHERE action = 'pause' AND operator = 'ann' AND detail->>'reason' = 'a release'`))
	s.checkInvariants()
}

// An operator pauses a work kind and a client. Other jobs continue. After the pause, the postponed jobs run in their old order, even with
// a new leader.
func TestPauseOfKindAndClient(t *testing.T) {
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "1"})
	leader := s.startLeader()
	api := s.startAPI()
	u, other, ann := s.newUser(api), s.newUser(api), s.operator(operatorsToken)
	kind := ann.pause(api, `{"scope":"KIND","target":"PAYLOAD_LARGE","reason":"too large"}`)
	client := ann.pause(api, `{"scope":"CLIENT","target":"`+u.id+`","reason":"asked for"}`)
	s.startWorker()
	paused := s.now()
	ids := u.submitCopies(api, 30, execute("PAYLOAD_SMALL"))
	large := other.submit(api, execute("PAYLOAD_LARGE"))
	s.await("SUCCEEDED", other.submit(api, execute("PAYLOAD_SMALL")))
	require.Equal(t, map[string]any{"reason": "PAUSED", "until": nil}, other.get(api, large).value("waiting"))
	s.awaitCount("all are postponed", 31, `SELECT count(*) FROM jobs WHERE run_at > now() + interval '1 year'`)
	require.Zero(t, s.assignedSince(paused, `work_kind <> 'PAYLOAD_SMALL' OR jobs.client_id = '`+u.id+`'`))

	leader.kill()
	s.endLead()
	client(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `job_id = '`+large+`'`))
	kind(api)
	s.awaitFinal(large)
	started := s.text(`SELECT string_agg(job_id::text, ',' ORDER BY started_at) FROM jobs WHERE client_id = $1`, u.id)
	require.Equal(t, strings.Join(ids, ","), started, "in the order of submission")
	s.checkInvariants()
}
