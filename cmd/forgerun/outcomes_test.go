package main

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// order submits a job like a correct client.
func (u *user) order(api *proc, body string, headers ...string) answer {
	u.s.t.Helper()
	a := u.trySubmit(api, body, append(headers, "Idempotency-Key", uuid.NewString(), "X-Correlation-ID", uuid.NewString())...)
	require.NoError(u.s.t, a.err)
	require.Less(u.s.t, a.status, 300, a.body)
	return a
}

// orderAndAwait submits a job and waits until it is in a state. It reads the database, so the client does not learn the state.
func (u *user) orderAndAwait(api *proc, state, body string) (path string) {
	u.s.t.Helper()
	id := u.order(api, body).text("job_id")
	u.s.await(state, id)
	return "/v1/jobs/" + id
}

// orderBatch submits a batch and waits until it is complete. It reads the database, so the client does not learn the end.
func (u *user) orderBatch(api *proc, body string) (path string) {
	u.s.t.Helper()
	id := u.submitBatch(api, `{"jobs":[`+body+","+body+`]}`, "Idempotency-Key", uuid.NewString())
	u.s.awaitCount("the batch is complete", 1, `SELECT count(*) FROM batches WHERE batch_id = $1 AND completed_at IS NOT NULL`, id)
	return "/v1/batches/" + id
}

// later returns a job that does not end during the test.
func later(members ...string) string {
	return `{` + strings.Join(append([]string{`"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"` +
		time.Now().UTC().Add(time.Hour).Format(time.RFC3339) + `"`}, members...), ",") + `}`
}

var good, failing500 = execute("SUCCESS_FAST"), execute("FAIL_IMMEDIATE")

// waysToLearn contains all documented ways in which a client can learn the outcome of its jobs, without faults.
var waysToLearn = map[string]func(s *stack, api *proc, u *user){
	"job":     func(_ *stack, api *proc, u *user) { u.read(api, u.orderAndAwait(api, "SUCCEEDED", good)) },
	"problem": func(_ *stack, api *proc, u *user) { u.readOutcome(api, u.orderAndAwait(api, "FAILED", failing500)) },
	"report":  func(_ *stack, api *proc, u *user) { u.read(api, u.orderAndAwait(api, "SUCCEEDED", good)+"/report") },
	"report of 1": func(_ *stack, api *proc, u *user) {
		u.read(api, u.orderAndAwait(api, "FAILED", failing500)+"/report?attempt=1")
	},
	"attempts": func(_ *stack, api *proc, u *user) {
		u.read(api, u.orderAndAwait(api, "FAILED", failing500)+"/attempts")
	},
	"attempt": func(_ *stack, api *proc, u *user) { u.read(api, u.orderAndAwait(api, "SUCCEEDED", good)+"/attempts/1") },
	"result":  func(_ *stack, api *proc, u *user) { u.read(api, u.orderAndAwait(api, "SUCCEEDED", good)+"/result") },
	"no result": func(_ *stack, api *proc, u *user) {
		u.expect(api, http.StatusNotFound, "GET", u.orderAndAwait(api, "FAILED", failing500)+"/result", "")
	},
	"events": func(_ *stack, api *proc, u *user) { u.read(api, u.orderAndAwait(api, "SUCCEEDED", good)+"/events") },
	"client events": func(_ *stack, api *proc, u *user) {
		u.orderAndAwait(api, "FAILED", failing500)
		u.readEvents(api, "job.failed")
	},
	"list by state": func(_ *stack, api *proc, u *user) {
		u.orderAndAwait(api, "SUCCEEDED", good)
		u.read(api, "/v1/jobs?state=SUCCEEDED")
	},
	"wait": func(_ *stack, api *proc, u *user) {
		require.Equal(u.s.t, http.StatusOK, u.order(api, good, "Prefer", "wait=30").status)
	},
	"wait for the job": func(_ *stack, api *proc, u *user) {
		path := "/v1/jobs/" + u.order(api, good).text("job_id")
		for tag, state := "", ""; state != "SUCCEEDED"; {
			a := u.call(api, "GET", path, "", "Prefer", "wait=30", "If-None-Match", tag)
			tag, state = a.header.Get("ETag"), a.text("state")
		}
	},
	"stream": func(_ *stack, api *proc, u *user) {
		events := u.stream(api, "/v1/jobs/"+u.order(api, good).text("job_id")+"/events", "")
		events.until("job-succeeded")
	},
	"client stream": func(_ *stack, api *proc, u *user) {
		events := u.stream(api, "/v1/events", "")
		events.until("position")
		u.order(api, good)
		events.until("job-succeeded")
		events.cut()
	},
	"webhook": func(s *stack, api *proc, u *user) {
		u.receive(api, nil, "job.failed", "job.succeeded")
		u.orderAndAwait(api, "SUCCEEDED", good)
		s.awaitDelivered(u, "job.succeeded")
	},
	"webhook of the last attempt": func(s *stack, api *proc, u *user) {
		u.receive(api, nil, "job.retries_exhausted")
		u.order(api, execute("RETRY_LIMIT_REACHED", `"auto_retry":true`, `"retry":{"max_attempts":1}`))
		s.awaitDelivered(u, "job.retries_exhausted")
	},
	"callback": func(s *stack, api *proc, u *user) {
		u.orderAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST", `"callback":"`+newReceiver(s.t, nil).url+`/c"`))
		s.awaitDelivered(u, "job.succeeded")
	},
	"cancel": func(_ *stack, api *proc, u *user) {
		u.expect(api, http.StatusOK, "POST", "/v1/jobs/"+u.order(api, later()).text("job_id")+"/cancel", "")
	},
	"retry of a succeeded job": func(_ *stack, api *proc, u *user) {
		u.expect(api, http.StatusOK, "POST", u.orderAndAwait(api, "SUCCEEDED", good)+"/retry", "")
	},
	"refused retry": func(_ *stack, api *proc, u *user) {
		u.expect(api, http.StatusConflict, "POST", u.orderAndAwait(api, "FAILED", failing500)+"/retry", "")
	},
	"delete": func(_ *stack, api *proc, u *user) {
		u.expect(api, http.StatusNoContent, "DELETE", u.orderAndAwait(api, "SUCCEEDED", good), "")
	},
	"batch":          func(_ *stack, api *proc, u *user) { u.read(api, u.orderBatch(api, good)) },
	"batch document": func(_ *stack, api *proc, u *user) { u.readOutcome(api, u.orderBatch(api, failing500)) },
	"batch's jobs":   func(_ *stack, api *proc, u *user) { u.read(api, u.orderBatch(api, good)+"/jobs") },
	"list by batch": func(_ *stack, api *proc, u *user) {
		u.read(api, "/v1/jobs?batch_id="+strings.TrimPrefix(u.orderBatch(api, good), "/v1/batches/"))
	},
	"batch in events": func(_ *stack, api *proc, u *user) {
		u.orderBatch(api, good)
		u.readEvents(api, "batch.completed")
	},
	"batch webhook": func(s *stack, api *proc, u *user) {
		u.receive(api, nil, "batch.completed")
		u.orderBatch(api, good)
		s.awaitDelivered(u, "batch.completed")
	},
	"batch stream": func(_ *stack, api *proc, u *user) {
		events := u.stream(api, "/v1/events", "")
		events.until("position")
		u.orderBatch(api, failing500)
		events.until("batch-completed")
		events.cut()
	},
	"batch cancel": func(_ *stack, api *proc, u *user) {
		id := u.submitBatch(api, `{"jobs":[`+later()+","+later()+`]}`, "Idempotency-Key", uuid.NewString())
		u.expect(api, http.StatusOK, "POST", "/v1/batches/"+id+"/cancel", "")
	},
	"bulk cancel": func(_ *stack, api *proc, u *user) {
		u.order(api, later())
		u.order(api, later())
		u.read(api, u.orderBulk(api, "cancel"))
	},
	"bulk cancel, by its items": func(_ *stack, api *proc, u *user) {
		u.order(api, later())
		u.read(api, u.orderBulk(api, "cancel")+"/items?result=SUCCEEDED")
	},
	"bulk cancel, in a list": func(_ *stack, api *proc, u *user) {
		u.order(api, later())
		u.orderBulk(api, "cancel")
		u.read(api, "/v1/bulk")
	},
	"bulk cancel, by a webhook": func(s *stack, api *proc, u *user) {
		u.receive(api, nil, "bulk.completed")
		u.order(api, later())
		u.orderBulk(api, "cancel")
		s.awaitDelivered(u, "bulk.completed")
	},
	"bulk cancel, by a stream": func(_ *stack, api *proc, u *user) {
		events := u.stream(api, "/v1/events", "")
		events.until("position")
		u.order(api, later())
		u.orderBulk(api, "cancel")
		events.until("bulk-completed")
		events.cut()
	},
	"bulk retry of a final failure": func(_ *stack, api *proc, u *user) {
		u.orderAndAwait(api, "FAILED", failing500)
		u.read(api, u.orderBulk(api, "retry"))
	},
	"bulk delete": func(_ *stack, api *proc, u *user) {
		u.orderAndAwait(api, "SUCCEEDED", good)
		u.read(api, u.orderBulk(api, "delete"))
	},
}

// orderBulk begins a bulk operation on all jobs and waits for its end. It reads the database, so the client does not learn the end.
func (u *user) orderBulk(api *proc, action string) (path string) {
	u.s.t.Helper()
	path = u.bulk(api, `{"action":"`+action+`","filter":{"all":true}}`)
	u.s.awaitCount("the operation is done", 1, `SELECT count(*) FROM bulk_operations WHERE bulk_id = $1 AND finished_at IS NOT NULL`,
		strings.TrimPrefix(path, "/v1/bulk/"))
	return path
}

// awaitDelivered waits until an event of a client was delivered.
func (s *stack) awaitDelivered(u *user, event string) {
	s.t.Helper()
	s.awaitCount(event+" is delivered", 1, `SELECT count(*) FROM deliveries WHERE client_id = $1 AND event_name = $2 AND state = 'DELIVERED'`,
		u.id, event)
}

// read reads a resource that must exist.
func (u *user) read(api *proc, path string) { u.expect(api, http.StatusOK, "GET", path, "") }

// readEvents reads the client's events until the list contains event. Open transactions delay the list.
func (u *user) readEvents(api *proc, event string) {
	eventually(u.s.t, event+" is listed", func() bool { return strings.Contains(u.call(api, "GET", "/v1/events", "").body, event) })
}

// readOutcome reads an outcome document.
func (u *user) readOutcome(api *proc, path string) {
	a := u.call(api, "GET", path, "", "Accept", "application/problem+json, application/json;q=0.5")
	require.Equal(u.s.t, "application/problem+json", a.header.Get("Content-Type"), a.body)
}

// waysToForget contains clients that do not learn the outcome of a job, and return what the evidence names.
var waysToForget = map[string]func(s *stack, api *proc, u *user) (named string){
	"job":   func(_ *stack, api *proc, u *user) string { return idOf(u.orderAndAwait(api, "SUCCEEDED", good)) },
	"batch": func(_ *stack, api *proc, u *user) string { return "of batch " + idOf(u.orderBatch(api, good)) },
	"read before a bulk cancel": func(_ *stack, api *proc, u *user) string {
		id := u.order(api, later()).text("job_id")
		u.get(api, id)
		u.orderBulk(api, "cancel")
		return id
	},
	"webhook of something else": func(_ *stack, api *proc, u *user) string {
		u.receive(api, nil, "job.running")
		return idOf(u.orderAndAwait(api, "SUCCEEDED", good))
	},
	"retried in bulk": func(s *stack, api *proc, u *user) string {
		path := u.orderAndAwait(api, "FAILED", execute("RETRY_ON_FAIL"))
		u.read(api, path)
		u.read(api, u.orderBulk(api, "retry"))
		s.await("SUCCEEDED", idOf(path))
		return idOf(path)
	},
}

func idOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// Each documented way to learn the outcome of a job is enough, without other requests. The verdict of a client that never reads outcomes
// names the forgotten jobs and their batches.
func TestOutcomesThatClientsLearn(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed)
	var clients sync.WaitGroup
	judge := func(act func(u *user), check func(v verdict.Verdict, broken map[string]verdict.Result)) {
		u := s.newUser(api)
		clients.Go(func() {
			session := u.startSession(api, "")
			act(u)
			check(u.verdict(api, session))
		})
	}
	for name, learn := range waysToLearn {
		judge(func(u *user) { learn(s, api, u) }, func(v verdict.Verdict, broken map[string]verdict.Result) {
			assert.Empty(t, broken, name)
			for _, r := range v.Results {
				if r.Rule == "outcome-learned" && !strings.Contains(name, "delete") { // the verdict skips deleted jobs
					assert.Equal(t, verdict.OK, r.Status, name)
				}
			}
		})
	}
	for name, forget := range waysToForget {
		named := ""
		judge(func(u *user) { named = forget(s, api, u) }, func(_ verdict.Verdict, broken map[string]verdict.Result) {
			assert.Equal(t, []string{"outcome-learned"}, slices.Collect(maps.Keys(broken)), name)
			for _, e := range broken["outcome-learned"].Evidence {
				assert.Contains(t, e.Found, named, name)
				assert.Contains(t, e.Found, "the client never learned this.", name)
			}
		})
	}
	clients.Wait()
}
