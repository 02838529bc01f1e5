package handlers

import (
	"context"
	"errors"
	"net/url"
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
	next := w.send("GET", "/v1/jobs", "").cursor(t)
	require.Equal(t, job.Query{Limit: 50}, *got)
	w.send("GET", "/v1/jobs?cursor="+next+"&limit=7", "").page(t)
	require.Equal(t, job.Query{After: nextID, Limit: 7}, *got)

	w.send("GET", batchSelf+"/jobs", "").requireProblem(t, job.CodeBatchNotFound)
	w.batches.batch = openBatch
	a := w.send("GET", batchSelf+"/jobs", "")
	require.Equal(t, job.Query{BatchID: batchID, Limit: 50}, *got)
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

// Every parameter of every list says what it wants, and all that is wrong is said at once. TestRequestsAreAsDocumented tries values.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, rt := range w.server.Routes {
		path, all := examplePath(rt), url.Values{"x": {"1"}}
		for _, parameter := range rt.Query {
			name := parameter.Name
			all.Set(name, "\x01")
			for _, value := range []string{"", "%00"} {
				a := w.send("GET", path+"?"+name+"="+value, "")
				p := a.requireProblem(t, job.CodeMalformed)
				require.Len(t, p.Violations, 1, name)
				require.Equal(t, job.Violation{Parameter: name, Detail: "Must be " + parameter.Want + "."}, p.Violations[0])
				require.NotContains(t, a.text, `"pointer"`, "pointers are for bodies")
			}
			p := w.send("GET", path+"?"+name+"=!&"+name+"=!", "").requireProblem(t, job.CodeMalformed)
			require.Contains(t, p.Violations, job.Violation{Parameter: name, Detail: "This parameter may be given once."})
		}
		if len(rt.Query) > 0 {
			require.Len(t, w.send("GET", path+"?"+all.Encode(), "").requireProblem(t, job.CodeMalformed).Violations, len(all))
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
