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

func (u *user) order(api *proc, body string, headers ...string) answer {
	u.s.t.Helper()
	a := u.trySubmit(api, body, append(headers, "Idempotency-Key", uuid.NewString(), "X-Correlation-ID", uuid.NewString())...)
	require.NoError(u.s.t, a.err)
	require.Less(u.s.t, a.status, 300, a.body)
	return a
}

// orderAndAwait reads the state from the database, because requests would tell the client the outcome.
func (u *user) orderAndAwait(api *proc, state, body string) (path string) {
	u.s.t.Helper()
	id := u.order(api, body).text("job_id")
	u.s.await(state, id)
	return "/v1/jobs/" + id
}

func (u *user) orderBatch(api *proc, body string) (path string) {
	u.s.t.Helper()
	id := u.submitBatch(api, `{"jobs":[`+body+","+body+`]}`, "Idempotency-Key", uuid.NewString())
	u.s.awaitCount("the batch is complete", 1, `SELECT count(*) FROM batches WHERE batch_id = $1 AND completed_at IS NOT NULL`, id)
	return "/v1/batches/" + id
}

func later(members ...string) string {
	return `{` + strings.Join(append([]string{`"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"` +
		time.Now().UTC().Add(time.Hour).Format(time.RFC3339) + `"`}, members...), ",") + `}`
}

var good, failing500 = execute("SUCCESS_FAST"), execute("FAIL_IMMEDIATE")

// A way is a series of requests that may tell the client a job's outcome.
type way = func(api *proc, u *user)

func asks(body, state, method, path string, status int) way {
	return func(api *proc, u *user) { u.expect(api, status, method, u.orderAndAwait(api, state, body)+path, "") }
}

func reads(body, state, path string) way { return asks(body, state, "GET", path, http.StatusOK) }

func streams(event string, act way) way {
	return func(api *proc, u *user) {
		events := u.stream(api, "/v1/events", "")
		events.until("position")
		act(api, u)
		events.until(event)
		events.cut()
	}
}

func receives(event string, act way) way {
	return func(api *proc, u *user) {
		u.receive(api, nil, event)
		act(api, u)
		u.s.awaitDelivered(u, event)
	}
}

func inBulk(body, state, action, path string) way {
	return func(api *proc, u *user) {
		u.orderAndAwait(api, state, body)
		u.read(api, u.orderBulk(api, action)+path)
	}
}

func cancelInBulk(api *proc, u *user) {
	u.order(api, later())
	u.orderBulk(api, "cancel")
}

// waysToLearn contains all documented ways in which a client can learn the outcome of its jobs.
var waysToLearn = map[string]way{
	"job":                      reads(good, "SUCCEEDED", ""),
	"problem":                  func(api *proc, u *user) { u.readOutcome(api, u.orderAndAwait(api, "FAILED", failing500)) },
	"report":                   reads(good, "SUCCEEDED", "/report"),
	"report of 1":              reads(failing500, "FAILED", "/report?attempt=1"),
	"attempts":                 reads(failing500, "FAILED", "/attempts"),
	"attempt":                  reads(good, "SUCCEEDED", "/attempts/1"),
	"result":                   reads(good, "SUCCEEDED", "/result"),
	"no result":                asks(failing500, "FAILED", "GET", "/result", http.StatusNotFound),
	"events":                   reads(good, "SUCCEEDED", "/events"),
	"retry of a succeeded job": asks(good, "SUCCEEDED", "POST", "/retry", http.StatusOK),
	"refused retry":            asks(failing500, "FAILED", "POST", "/retry", http.StatusConflict),
	"delete":                   asks(good, "SUCCEEDED", "DELETE", "", http.StatusNoContent),
	"client events": func(api *proc, u *user) {
		u.orderAndAwait(api, "FAILED", failing500)
		u.readEvents(api, "job.failed")
	},
	"list by state": func(api *proc, u *user) {
		u.orderAndAwait(api, "SUCCEEDED", good)
		u.read(api, "/v1/jobs?state=SUCCEEDED")
	},
	"wait": func(api *proc, u *user) {
		require.Equal(u.s.t, http.StatusOK, u.order(api, good, "Prefer", "wait=30").status)
	},
	"wait for the job": func(api *proc, u *user) {
		path := "/v1/jobs/" + u.order(api, good).text("job_id")
		for tag, state := "", ""; state != "SUCCEEDED"; {
			a := u.call(api, "GET", path, "", "Prefer", "wait=30", "If-None-Match", tag)
			tag, state = a.header.Get("ETag"), a.text("state")
		}
	},
	"stream": func(api *proc, u *user) {
		u.stream(api, "/v1/jobs/"+u.order(api, good).text("job_id")+"/events", "").until("job-succeeded")
	},
	"client stream": streams("job-succeeded", func(api *proc, u *user) { u.order(api, good) }),
	"webhook":       receives("job.succeeded", func(api *proc, u *user) { u.orderAndAwait(api, "SUCCEEDED", good) }),
	"webhook of the last attempt": receives("job.retries_exhausted", func(api *proc, u *user) {
		u.order(api, execute("RETRY_LIMIT_REACHED", `"auto_retry":true`, `"retry":{"max_attempts":1}`))
	}),
	"callback": func(api *proc, u *user) {
		u.orderAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST", `"callback":"`+newReceiver(u.s.t, nil).url+`/c"`))
		u.s.awaitDelivered(u, "job.succeeded")
	},
	"cancel": func(api *proc, u *user) {
		u.expect(api, http.StatusOK, "POST", "/v1/jobs/"+u.order(api, later()).text("job_id")+"/cancel", "")
	},
	"batch":          func(api *proc, u *user) { u.read(api, u.orderBatch(api, good)) },
	"batch document": func(api *proc, u *user) { u.readOutcome(api, u.orderBatch(api, failing500)) },
	"batch's jobs":   func(api *proc, u *user) { u.read(api, u.orderBatch(api, good)+"/jobs") },
	"list by batch":  func(api *proc, u *user) { u.read(api, "/v1/jobs?batch_id="+idOf(u.orderBatch(api, good))) },
	"batch in events": func(api *proc, u *user) {
		u.orderBatch(api, good)
		u.readEvents(api, "batch.completed")
	},
	"batch webhook": receives("batch.completed", func(api *proc, u *user) { u.orderBatch(api, good) }),
	"batch stream":  streams("batch-completed", func(api *proc, u *user) { u.orderBatch(api, failing500) }),
	"batch cancel": func(api *proc, u *user) {
		id := u.submitBatch(api, `{"jobs":[`+later()+","+later()+`]}`, "Idempotency-Key", uuid.NewString())
		u.expect(api, http.StatusOK, "POST", "/v1/batches/"+id+"/cancel", "")
	},
	"bulk cancel":               inBulk(later(), "CREATED", "cancel", ""),
	"bulk cancel, by its items": inBulk(later(), "CREATED", "cancel", "/items?result=SUCCEEDED"),
	"bulk cancel, in a list": func(api *proc, u *user) {
		cancelInBulk(api, u)
		u.read(api, "/v1/bulk")
	},
	"bulk cancel, by a webhook":     receives("bulk.completed", cancelInBulk),
	"bulk cancel, by a stream":      streams("bulk-completed", cancelInBulk),
	"bulk retry of a final failure": inBulk(failing500, "FAILED", "retry", ""),
	"bulk delete":                   inBulk(good, "SUCCEEDED", "delete", ""),
}

func (u *user) orderBulk(api *proc, action string) (path string) {
	u.s.t.Helper()
	path = u.bulk(api, `{"action":"`+action+`","filter":{"all":true}}`)
	u.s.awaitCount("the operation is done", 1, `SELECT count(*) FROM bulk_operations WHERE bulk_id = $1 AND finished_at IS NOT NULL`,
		strings.TrimPrefix(path, "/v1/bulk/"))
	return path
}

func (s *stack) awaitDelivered(u *user, event string) {
	s.t.Helper()
	s.awaitCount(event+" is delivered", 1, `SELECT count(*) FROM deliveries WHERE client_id = $1 AND event_name = $2 AND state = 'DELIVERED'`,
		u.id, event)
}

func (u *user) read(api *proc, path string) { u.expect(api, http.StatusOK, "GET", path, "") }

// readEvents reads the client's events until the list contains `event`. It polls, because new events appear in the list only after older
// transactions have ended.
func (u *user) readEvents(api *proc, event string) {
	eventually(u.s.t, event+" is listed", func() bool { return strings.Contains(u.call(api, "GET", "/v1/events", "").body, event) })
}

func (u *user) readOutcome(api *proc, path string) {
	a := u.call(api, "GET", path, "", "Accept", "application/problem+json, application/json;q=0.5")
	require.Equal(u.s.t, "application/problem+json", a.header.Get("Content-Type"), a.body)
}

// waysToForget contains requests after which the client does not know the outcome. Each function returns a text that the verdict's
// evidence must contain.
var waysToForget = map[string]func(api *proc, u *user) (named string){
	"job":   func(api *proc, u *user) string { return idOf(u.orderAndAwait(api, "SUCCEEDED", good)) },
	"batch": func(api *proc, u *user) string { return "of batch " + idOf(u.orderBatch(api, good)) },
	"read before a bulk cancel": func(api *proc, u *user) string {
		id := u.order(api, later()).text("job_id")
		u.get(api, id)
		u.orderBulk(api, "cancel")
		return id
	},
	"webhook of something else": func(api *proc, u *user) string {
		u.receive(api, nil, "job.running")
		return idOf(u.orderAndAwait(api, "SUCCEEDED", good))
	},
	"retried in bulk": func(api *proc, u *user) string {
		path := u.orderAndAwait(api, "FAILED", execute("RETRY_ON_FAIL"))
		u.read(api, path)
		u.read(api, u.orderBulk(api, "retry"))
		u.s.await("SUCCEEDED", idOf(path))
		return idOf(path)
	},
}

func idOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// A client that learns an outcome in any documented way breaks no rule. For a client that never reads outcomes, the verdict names the jobs
// and batches.
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
		judge(func(u *user) { learn(api, u) }, func(v verdict.Verdict, broken map[string]verdict.Result) {
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
		judge(func(u *user) { named = forget(api, u) }, func(_ verdict.Verdict, broken map[string]verdict.Result) {
			assert.Equal(t, []string{"outcome-learned"}, slices.Collect(maps.Keys(broken)), name)
			for _, e := range broken["outcome-learned"].Evidence {
				assert.Contains(t, e.Found, named, name)
				assert.Contains(t, e.Found, "the client never learned this.", name)
			}
		})
	}
	clients.Wait()
}
