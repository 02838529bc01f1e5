package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
)

// page is a list as a client sees it.
type page struct {
	Data []map[string]any `json:"data"`
	Page struct {
		Limit      int     `json:"limit"`
		NextCursor *string `json:"next_cursor"`
	} `json:"page"`
}

func (a *answer) page(t *testing.T) (p page) {
	t.Helper()
	require.Equal(t, 200, a.StatusCode, a.text)
	a.json(t, &p)
	return p
}

// cursor gives the cursor of the next page.
func (a *answer) cursor(t *testing.T) string {
	t.Helper()
	next := a.page(t).Page.NextCursor
	require.NotNil(t, next)
	return *next
}

// twoPages makes lists have a next page, and keeps the query for jobs.
func twoPages(w *world) *job.Query {
	var got job.Query
	w.jobs.list = func(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
		got = q
		j, err := finishedJob(ctx, client, jobID)
		return job.Page{Jobs: []*job.Job{j}, Next: nextID}, err
	}
	w.webhooks.page = job.DeliveryPage{Deliveries: []job.Delivery{*aDelivery()}, Next: nextID}
	w.events.feed = []job.Occurrence{{
		Event: job.Event{ID: eventID, JobID: jobID, Seq: 1, Name: job.EventCreated, Next: job.Created, Attempt: 1, At: now,
			Data: []byte(`{}`)},
		Position: job.Position{Tx: 5, ID: eventID},
	}}
	return &got
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := twoPages(w)
	a := w.send("GET", "/v1/jobs", "")
	require.Equal(t, job.Query{Limit: 50}, *got)
	next := a.cursor(t)
	require.JSONEq(t, `{"data": [{
		"job_id": "01890000-0000-7000-8000-000000000001", "type": "EXECUTE", "work_kind": "SUCCESS_FAST",
		"state": "SUCCEEDED", "outcome": "SUCCESS", "created_at": "2030-01-31T12:00:00.123456Z", "execution_at": null,
		"updated_at": "2030-01-31T12:00:02.123456Z", "started_at": "2030-01-31T12:00:01.123456Z",
		"finished_at": "2030-01-31T12:00:02.123456Z", "canceled_at": null,
		"attempt": 1, "attempts": 1, "max_attempts": 4, "can_retry": false, "batch_id": null, "correlation_id": null,
		"links": {"self": "`+jobSelf+`"}
	}], "page": {"limit": 50, "next_cursor": "`+next+`"}}`, a.text)
	w.send("GET", "/v1/jobs?cursor="+next+"&limit=7", "").page(t)
	require.Equal(t, job.Query{After: nextID, Limit: 7}, *got)

	w.send("GET", batchSelf+"/jobs", "").requireProblem(t, job.CodeBatchNotFound)
	w.batches.batch = openBatch
	a = w.send("GET", batchSelf+"/jobs", "")
	require.Equal(t, job.Query{BatchID: batchID, Limit: 50}, *got)
	require.Equal(t, []any{"0", jobID.String()}, []any{a.page(t).Data[0]["item_id"], a.page(t).Data[0]["job_id"]})
	w.send("GET", batchSelf+"/jobs?limit=2&cursor="+a.cursor(t), "").page(t)
	require.Equal(t, job.Query{BatchID: batchID, Limit: 2, After: nextID}, *got)

	w.jobs.list = nil
	require.JSONEq(t, `{"data": [], "page": {"limit": 100, "next_cursor": null}}`, w.send("GET", "/v1/jobs?limit=100", "").text)
	w.jobs.list = func(context.Context, job.ID, job.Query) (job.Page, error) {
		return job.Page{}, job.Errorf(job.CodeStorageUnavailable, "x")
	}
	w.send("GET", "/v1/jobs", "").requireProblem(t, job.CodeStorageUnavailable)
}

const someCreated = "&created_after=2030-01-01T00:00:00Z&created_before=2030-01-02T00:00:00.0000001%2B00:00&limit=1"

// Promise: patterns Listing
func TestListFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	got := twoPages(w)
	after, before := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 0, 0, 0, 1000, time.UTC)
	w.send("GET", "/v1/jobs?state=FAILED&type=EXECUTE&work_kind=SUCCESS_FAST&correlation_id=a-B_c.1&batch_id="+batchID.String()+someCreated,
		"").page(t)
	require.Empty(t, cmp.Diff(job.Query{
		State: job.Failed, Type: job.Execute, WorkKind: job.SuccessFast, BatchID: batchID, CorrelationID: "a-B_c.1",
		CreatedAfter: &after, CreatedBefore: &before, Limit: 1,
	}, *got))
	for path, owner := range map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}} {
		w.send("GET", path+"?state=DELIVERED&event_name=batch.completed"+someCreated, "").page(t)
		require.Equal(t, job.DeliveryQuery{
			Owner: owner, Limit: 1, State: job.DeliveryDelivered, EventName: job.EventBatchCompleted, CreatedAfter: &after, CreatedBefore: &before,
		}, w.webhooks.query)
	}
}

// Every parameter of every list has values that it refuses, and says what it wants.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	bad := map[string][]string{
		"limit":          {"", "0", "-1", "101", "1000000000000", "01", "1.0", "x", "1e1", "%201", "1%0a", "%00", "٣"},
		"cursor":         {"", "x", "AAAA", "AAAA=", "!", strings.Repeat("A", 5000), "%00", "null"},
		"state":          {"", "failed", "PENDING,FAILED", "NOPE", "FAILED%00"},
		"type":           {"", "execute", "NOPE"},
		"result":         {"", "LOST"},
		"work_kind":      {"", "SUCCESS", "success_fast"},
		"event_name":     {"", "*", "job.*", "job.progress", "JOB.FAILED", "nope"},
		"batch_id":       {"", "x", batchID.String() + "x", strings.ReplaceAll(batchID.String(), "-", ""), "'%20or%201=1"},
		"schedule_id":    {"", "x"},
		"attempt":        {"", "0"},
		"label":          {"", "%20a", "%01", strings.Repeat("a", 201)},
		"correlation_id": {"", "a%20b", "%00", "a*", strings.Repeat("a", 257)},
		"created_after": {"", "now", "2030-01-01", "2030-01-01T00:00:00", "2030-01-01T00:00:00%2B01:00", "2030-01-01T00:00:00+00:00",
			"2030-02-30T00:00:00Z", "1893456000"},
		"created_before": {"", "now"},
	}
	w := newWorld(t).full()
	for _, rt := range w.server.Routes {
		path, all := examplePath(rt), url.Values{"x": {"1"}}
		for _, parameter := range rt.Query {
			name := parameter.Name
			all.Set(name, "\x01")
			require.NotEmpty(t, bad[name], name)
			for _, value := range bad[name] {
				a := w.send("GET", path+"?"+name+"="+value, "")
				p := a.requireProblem(t, job.CodeMalformed)
				require.Len(t, p.Violations, 1, value)
				require.Equal(t, name, p.Violations[0].Parameter, value)
				if name != "cursor" { // a cursor may be well formed, and yet none of this list
					suggestion, ok := strings.CutPrefix(p.Violations[0].Detail, "Must be "+parameter.Want+".")
					require.True(t, ok, p.Violations[0].Detail)
					require.Regexp(t, `^( Did you mean [A-Za-z_.]+\?)?$`, suggestion, value)
				}
				require.NotContains(t, a.text, `"pointer"`, "pointers are for bodies")
			}
			p := w.send("GET", path+"?"+name+"=!&"+name+"=!", "").requireProblem(t, job.CodeMalformed)
			require.Contains(t, p.Violations, job.Violation{Parameter: name, Detail: "This parameter may be given once."})
		}
		if len(rt.Query) > 0 {
			p := w.send("GET", path+"?"+all.Encode(), "").requireProblem(t, job.CodeMalformed)
			require.Len(t, p.Violations, len(all), "all are listed at once")
			require.True(t, len(all) == 2 || strings.Contains(p.Detail, fmt.Sprintf("%d more are in violations.", len(all)-1)), p.Detail)
		}
	}
}

// A cursor is of its list with its filters, and of its client.
func TestCursorsAreOfTheirList(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	twoPages(w)
	all := map[string]string{}
	for _, path := range []string{
		"/v1/jobs?", "/v1/jobs?state=FAILED&", "/v1/jobs?type=EXECUTE&", batchSelf + "/jobs?", "/v1/events?",
		jobSelf + "/events?", views.JobPath(webhookID) + "/events?", "/v1/bulk?", "/v1/schedules?",
		job.BulkPath(bulkID) + "/items?", job.BulkPath(bulkID) + "/items?result=FAILED&", job.BulkPath(batchID) + "/items?",
		ofOneWebhook + "?", ofOneWebhook + "?event_name=job.failed&", ofOneWebhook + "?created_after=2030-01-01T00:00:00Z&",
		"/v1/webhooks/" + batchID.String() + "/deliveries?", ofOneJob + "?", ofOneJob + "?state=FAILED&",
		views.JobPath(webhookID) + "/deliveries?",
	} {
		all[path] = w.send("GET", path+"limit=1", "").cursor(t)
	}
	for path := range all {
		for other, cursor := range all {
			a := w.send("GET", path+"limit=3&cursor="+cursor, "")
			if path == other {
				require.Equal(t, 200, a.StatusCode)
				continue
			}
			require.Equal(t, query.ErrBadCursor.Detail, a.requireProblem(t, job.CodeMalformed).Detail, "%s with a cursor of %s", path, other)
		}
		w.send("GET", path+"cursor="+all[path], "", "Authorization", "Bearer "+otherKey).requireProblem(t, job.CodeMalformed)
	}
}

// Promise: patterns Listing
func TestCursorsCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	twoPages(w)
	cursor := w.send("GET", "/v1/jobs", "").cursor(t)
	bad := func(changed string) {
		t.Helper()
		require.Equal(t, 400, w.send("GET", "/v1/jobs?cursor="+url.QueryEscape(changed), "").StatusCode, changed)
	}
	for i := range cursor {
		for _, c := range []byte{cursor[i] ^ 1, 'A', '=', ' ', '\r'} {
			if c != cursor[i] {
				bad(cursor[:i] + string(c) + cursor[i+1:])
			}
		}
		bad(cursor[:i])
		bad(cursor[:i] + cursor[i+1:])
		bad(cursor[:i] + "\n" + cursor[i:])
	}
	for _, more := range []string{"=", "A", "\n", cursor} {
		bad(cursor + more)
	}
	require.Equal(t, 200, w.send("GET", "/v1/jobs?cursor="+cursor, "").StatusCode)
}

// Cursors of one process are good in another one with the same secret, and in
// none with a different one.
func TestCursorKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	twoPages(w)
	cursor := w.send("GET", "/v1/jobs", "").cursor(t)
	key := func(secret string, err error) *world {
		other := newWorld(t, func(_ *Config, d *Deps) {
			d.CursorKey = func(context.Context) ([]byte, error) { return []byte(secret), err }
		})
		twoPages(other)
		return other
	}
	require.Equal(t, 200, newWorld(t).send("GET", "/v1/jobs?cursor="+cursor, "").StatusCode)
	key("another", nil).send("GET", "/v1/jobs?cursor="+cursor, "").requireProblem(t, job.CodeMalformed)
	failing := key("", errors.New("planted secret"))
	for _, query := range []string{"", "?cursor=" + cursor} {
		a := failing.send("GET", "/v1/jobs"+query, "")
		a.requireProblem(t, job.CodeInternal)
		require.NotContains(t, a.text, "planted")
	}
}

func TestListAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", jobSelf+"/attempts", "").requireProblem(t, job.CodeJobNotFound)
	w.jobs.attempts = failedAttempts
	a := w.send("GET", jobSelf+"/attempts", "")
	require.Equal(t, "de", a.Header.Get("Content-Language"))
	links := func(n string) string {
		return `"links": {"self": "` + jobSelf + `/attempts/` + n + `", "report": "` + jobSelf + `/report?attempt=` + n + `"}}`
	}
	require.JSONEq(t, `{"data": [
		{"attempt": 1, "state": "CANCELED", "outcome": "CANCELED", "started_at": null, "finished_at": "2030-01-31T12:00:01.123456Z",
			"duration_ms": null, `+links("1")+`,
		{"attempt": 2, "state": "FAILED", "outcome": "FAILED", "started_at": "2030-01-31T12:00:02.123456Z",
			"finished_at": "2030-01-31T12:00:04.123456Z", "duration_ms": 2000, "failure": `+failureDocument+`, `+links("2")+`,
		{"attempt": 3, "state": "RUNNING", "outcome": null, "started_at": "2030-01-31T12:00:06.123456Z", "finished_at": null, "duration_ms": null,
			"links": {"self": "`+jobSelf+`/attempts/3"}}
	], "page": {"limit": 100, "next_cursor": null}}`, a.text)

	w.jobs.attempts = finishedAttempts
	require.Empty(t, w.send("GET", jobSelf+"/attempts", "").Header.Get("Content-Language"))
}
