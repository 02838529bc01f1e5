package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// submitAlike asks for a batch of jobs that are alike, and gives their ids.
func (u *user) submitAlike(api *proc, n int, body string) (ids []string) {
	u.s.t.Helper()
	a := u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+strings.TrimSuffix(strings.Repeat(body+",", n), ",")+`]}`)
	require.Equal(u.s.t, http.StatusAccepted, a.status, a.body)
	for _, item := range a.value("jobs").([]any) {
		ids = append(ids, item.(map[string]any)["job_id"].(string))
	}
	return ids
}

// bulk begins a bulk operation and gives its path.
func (u *user) bulk(api *proc, body string) string {
	u.s.t.Helper()
	a := u.call(api, "POST", "/v1/bulk", body)
	require.Equal(u.s.t, http.StatusAccepted, a.status, a.body)
	require.Equal(u.s.t, "/v1/bulk/"+a.text("bulk_id"), a.header.Get("Location"))
	return a.header.Get("Location")
}

// awaitBulk waits until so many jobs of an operation have a result, or with -1 until it is
// done.
func (u *user) awaitBulk(api *proc, path string, done int) (a answer) {
	u.s.t.Helper()
	eventually(u.s.t, "the bulk operation gets on", func() bool {
		a = u.call(api, "GET", path, "")
		return done < 0 && a.text("state") == "DONE" || done >= 0 && a.value("done").(float64) >= float64(done)
	})
	return a
}

// The leader is killed in the middle of an operation: another one goes on, and every job
// has been retried once.
func TestBulkRetryWhoseLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_WORKER_CONCURRENCY": "50"})
	leader := s.startLeader()
	api := s.startAPI()
	worker := s.startWorker()
	webhooks := s.startWebhooks()
	u := s.newUser(api)
	receiver := newReceiver(t, nil)
	u.subscribe(api, receiver.url, "bulk.completed")
	const n = 1000
	ids := u.submitAlike(api, n, execute("RETRY_ON_FAIL"))
	s.await("FAILED", ids...)
	dry := u.call(api, "POST", "/v1/bulk", `{"action":"retry","filter":{"state":"FAILED"},"dry_run":true}`)
	require.Equal(t, http.StatusOK, dry.status, dry.body)
	require.InDelta(t, n, dry.value("count"), 0)
	require.Len(t, dry.value("sample"), 10)

	path := u.bulk(api, `{"action":"retry","filter":{"state":"FAILED","work_kind":"RETRY_ON_FAIL"},"rate":200}`)
	before := u.awaitBulk(api, path, 100)
	require.Equal(t, "RUNNING", before.text("state"), before.body)
	leader.kill()
	after := u.awaitBulk(api, path, -1)
	for member, want := range map[string]float64{"total": n, "done": n, "succeeded": n, "skipped": 0, "failed": 0} {
		require.InDelta(t, want, after.value(member), 0, after.body)
	}
	s.await("SUCCEEDED", ids...)
	require.Equal(t, n, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.retried'`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM jobs WHERE attempt = 2`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM bulk_items WHERE result = 'SUCCEEDED'`))
	// What was counted after the kill is at most what was done after it: the counters of the killed process are gone.
	late := 0.0
	for _, p := range []*proc{api, worker, webhooks} {
		late += sum(p.scrape(), "bulk_items_total", "action", "retry")
	}
	require.LessOrEqual(t, late, float64(n-100))
	require.NotZero(t, late)
	u.call(api, "POST", path+"/abort", "").requireProblem(t, http.StatusConflict, "RFA_JOB_CONFLICT")
	told := receiver.await("bulk.completed", func(d received) bool { return d.event() == "bulk.completed" })
	require.JSONEq(t, fmt.Sprintf(`{"bulkId":%q,"action":"retry","state":"DONE","total":%d,"succeeded":%[2]d,"skipped":0,"failed":0}`,
		strings.TrimPrefix(path, "/v1/bulk/"), n), told.body)
	require.Equal(t, strings.TrimPrefix(path, "/v1/"), told.header.Get("Ce-Subject"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM client_events WHERE event_name = 'bulk.completed'`))
	s.checkInvariants()
}

// An abort ends an operation within a second: what was done stays, and nothing is done any
// more.
func TestBulkCancelIsAborted(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u, stranger := s.newUser(api), s.newUser(api)
	const n = 500
	ids := u.submitAlike(api, n, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	foreign := stranger.submitAlike(api, 1, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	path := u.bulk(api, `{"action":"cancel","filter":{"all":true},"rate":40}`)
	u.awaitBulk(api, path, 10)
	asked := time.Now()
	a := u.call(api, "POST", path+"/abort", "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "ABORTED", a.text("state"))
	require.Less(t, time.Since(asked), 10*time.Second)
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
