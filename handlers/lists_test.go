package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/query"
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

func (a *answer) page(t *testing.T) page {
	t.Helper()
	require.Equal(t, 200, a.StatusCode, a.text)
	var p page
	require.NoError(t, json.Unmarshal([]byte(a.text), &p))
	return p
}

var nextID = mustID("01890000-0000-7000-8000-00000000000e")

// twoPages answers with a page that has a next one, and keeps the query.
func twoPages(w *world) *job.Query {
	var got job.Query
	w.jobs.list = func(_ context.Context, client job.ID, q job.Query) (job.Page, error) {
		got = q
		j, err := finishedJob(context.Background(), client, jobID)
		return job.Page{Jobs: []*job.Job{j}, Next: nextID}, err
	}
	return &got
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := twoPages(w)
	a := w.send("GET", "/v1/jobs", "")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, job.Query{Limit: 50}, *got)
	p := a.page(t)
	require.NotNil(t, p.Page.NextCursor)
	require.JSONEq(t, `{"data": [{
		"job_id": "01890000-0000-7000-8000-000000000001", "type": "EXECUTE", "work_kind": "SUCCESS_FAST",
		"state": "SUCCEEDED", "outcome": "SUCCESS", "created_at": "2030-01-31T12:00:00.123456Z", "execution_at": null,
		"updated_at": "2030-01-31T12:00:02.123456Z", "started_at": "2030-01-31T12:00:01.123456Z",
		"finished_at": "2030-01-31T12:00:02.123456Z", "canceled_at": null,
		"attempt": 1, "attempts": 1, "max_attempts": 4, "can_retry": false, "batch_id": null, "correlation_id": null,
		"links": {"self": "/v1/jobs/01890000-0000-7000-8000-000000000001"}
	}], "page": {"limit": 50, "next_cursor": "`+*p.Page.NextCursor+`"}}`, a.text)

	w.send("GET", "/v1/jobs?cursor="+*p.Page.NextCursor+"&limit=7", "").page(t)
	require.Equal(t, job.Query{After: nextID, Limit: 7}, *got)

	w.jobs.list = nil
	require.JSONEq(t, `{"data": [], "page": {"limit": 100, "next_cursor": null}}`, w.send("GET", "/v1/jobs?limit=100", "").text)

	w.jobs.list = func(context.Context, job.ID, job.Query) (job.Page, error) {
		return job.Page{}, job.Errorf(job.CodeStorageUnavailable, "x")
	}
	w.send("GET", "/v1/jobs", "").requireProblem(t, job.CodeStorageUnavailable)
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := twoPages(w)
	after, before := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 0, 0, 0, 1000, time.UTC)
	query := "state=FAILED&type=EXECUTE&work_kind=SUCCESS_FAST&correlation_id=a-B_c.1&batch_id=" + batchID.String() +
		"&created_after=2030-01-01T00:00:00Z&created_before=2030-01-02T00:00:00.0000001%2B00:00&limit=1"
	w.send("GET", "/v1/jobs?"+query, "").page(t)
	require.Empty(t, cmp.Diff(job.Query{
		State: job.Failed, Type: job.Execute, WorkKind: job.SuccessFast, BatchID: batchID, CorrelationID: "a-B_c.1",
		CreatedAfter: &after, CreatedBefore: &before, Limit: 1,
	}, *got))
}

// requireBadValue checks that a problem is about the value of one parameter. It may
// suggest another value.
func requireBadValue(t *testing.T, want query.Parameter, p problem, value string) {
	t.Helper()
	require.Len(t, p.Violations, 1, value)
	require.Equal(t, want.Name, p.Violations[0].Parameter, value)
	suggestion, ok := strings.CutPrefix(p.Violations[0].Detail, "Must be "+want.Want+".")
	require.True(t, ok, p.Violations[0].Detail)
	if suggestion != "" {
		require.Regexp(t, `^ Did you mean [A-Za-z_.]+\?$`, suggestion, value)
	}
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := map[string][]string{
		"limit":          {"", "0", "-1", "101", "1000000000000", "01", "1.0", "x", "1e1", "%201", "1%0a", "%00", "٣"},
		"cursor":         {"", "x", "AAAA", "AAAA=", "!", strings.Repeat("A", 5000), "%00", "null"},
		"state":          {"", "failed", "FAILED,QUEUED", "NOPE", "FAILED%00"},
		"type":           {"", "execute", "NOPE"},
		"work_kind":      {"", "SUCCESS", "success_fast"},
		"batch_id":       {"", "x", batchID.String() + "x", strings.ReplaceAll(batchID.String(), "-", ""), "'%20or%201=1"},
		"correlation_id": {"", "a%20b", "%00", "a*", strings.Repeat("a", 257)},
		"created_after": {"", "now", "2030-01-01", "2030-01-01T00:00:00", "2030-01-01T00:00:00%2B01:00", "2030-01-01T00:00:00+00:00",
			"2030-02-30T00:00:00Z", "1893456000"},
		"created_before": {"", "now"},
	}
	for _, parameter := range listQuery {
		name := parameter.Name
		for _, value := range bad[name] {
			a := w.send("GET", "/v1/jobs?"+name+"="+value, "")
			p := a.requireProblem(t, job.CodeMalformed)
			if name != "cursor" { // a cursor may be well formed, and yet none of this list
				requireBadValue(t, parameter, p, value)
			}
			require.NotContains(t, a.text, `"pointer"`, "pointers are for bodies")
			p = w.send("GET", "/v1/jobs?"+name+"="+value+"&"+name+"="+value, "").requireProblem(t, job.CodeMalformed)
			require.Contains(t, p.Violations, job.Violation{Parameter: name, Detail: "This parameter may be given once."})
		}
	}
	query := url.Values{"x": {"1"}}
	for name := range bad {
		query.Set(name, "!")
	}
	p := w.send("GET", "/v1/jobs?"+query.Encode(), "").requireProblem(t, job.CodeMalformed)
	told := map[string]string{}
	for _, v := range p.Violations {
		told[v.Parameter] = v.Detail
	}
	require.Len(t, told, len(query), "all are told at once")
	require.Contains(t, told["x"], "The query parameters of this resource are ")
	require.Contains(t, p.Detail, fmt.Sprintf("%d more are in violations.", len(query)-1))
	for _, path := range []string{job.BatchPath(batchID) + "/jobs", jobPath(jobID) + "/events", "/v1/events"} {
		w.full().send("GET", path+"?limit=0", "").requireProblem(t, job.CodeMalformed)
		w.send("GET", path+"?state=FAILED", "").requireProblem(t, job.CodeMalformed)
	}
}

// cursors gives one cursor of each list.
func cursors(t *testing.T, w *world) map[string]string {
	twoPages(w)
	w.batches.batch = openBatch
	found := map[string]string{}
	for _, path := range []string{"/v1/jobs?", "/v1/jobs?state=FAILED&", "/v1/jobs?type=EXECUTE&", job.BatchPath(batchID) + "/jobs?"} {
		p := w.send("GET", path+"limit=1", "").page(t)
		require.NotNil(t, p.Page.NextCursor)
		found[path] = *p.Page.NextCursor
	}
	return found
}

func TestCursorsAreOfTheirList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := cursors(t, w)
	for path := range all {
		for other, cursor := range all {
			a := w.send("GET", path+"limit=3&cursor="+cursor, "")
			if path == other {
				require.Equal(t, 200, a.StatusCode)
				continue
			}
			require.Equal(t, query.ErrBadCursor.Detail, a.requireProblem(t, job.CodeMalformed).Detail)
		}
		w.send("GET", path+"cursor="+all[path], "", "Authorization", "Bearer "+otherKey).requireProblem(t, job.CodeMalformed)
	}
	w.send("GET", "/v1/events?cursor="+all["/v1/jobs?"], "").requireProblem(t, job.CodeMalformed)
	w.send("GET", jobPath(jobID)+"/events?cursor="+all["/v1/jobs?"], "").requireProblem(t, job.CodeMalformed)
}

func TestCursorsCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cursor := cursors(t, w)["/v1/jobs?"]
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/. "
	bad := func(changed string) {
		t.Helper()
		a := w.send("GET", "/v1/jobs?cursor="+url.QueryEscape(changed), "")
		require.Equal(t, 400, a.StatusCode, changed)
	}
	for i := range cursor {
		for _, c := range letters {
			if byte(c) != cursor[i] {
				bad(cursor[:i] + string(c) + cursor[i+1:])
			}
		}
		bad(cursor[:i])
		bad(cursor[:i] + cursor[i+1:])
		bad(cursor[:i] + "A" + cursor[i:])
		bad(cursor[:i] + "\n" + cursor[i:])
		bad(cursor[:i] + "\r" + cursor[i+1:])
	}
	bad(cursor + "=")
	bad(cursor + "A")
	bad(cursor + "\n")
	bad(cursor + cursor)
	require.Equal(t, 200, w.send("GET", "/v1/jobs?cursor="+cursor, "").StatusCode)
}

// Cursors of one process are good in another one with the same secret, and in
// none with a different one.
func TestCursorKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cursor := cursors(t, w)["/v1/jobs?"]
	key := func(secret string, err error) *world {
		other := newWorld(t, func(_ *Config, d *Deps) {
			d.CursorKey = func(context.Context) ([]byte, error) { return []byte(secret), err }
		})
		twoPages(other)
		return other
	}
	require.Equal(t, 200, newWorld(t).send("GET", "/v1/jobs?cursor="+cursor, "").StatusCode)
	key("another", nil).send("GET", "/v1/jobs?cursor="+cursor, "").requireProblem(t, job.CodeMalformed)
	broken := key("", errors.New("planted secret"))
	for _, query := range []string{"", "?cursor=" + cursor} {
		a := broken.send("GET", "/v1/jobs"+query, "")
		a.requireProblem(t, job.CodeInternal)
		require.NotContains(t, a.text, "planted")
	}
}

func TestListBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := job.BatchPath(batchID) + "/jobs"
	w.send("GET", path, "").requireProblem(t, job.CodeBatchNotFound)
	got := twoPages(w)
	w.batches.batch = openBatch
	p := w.send("GET", path, "").page(t)
	require.Equal(t, job.Query{BatchID: batchID, Limit: 50}, *got)
	require.Equal(t, "0", p.Data[0]["item_id"])
	require.Equal(t, jobID.String(), p.Data[0]["job_id"])
	w.send("GET", path+"?limit=2&cursor="+*p.Page.NextCursor, "").page(t)
	require.Equal(t, job.Query{BatchID: batchID, Limit: 2, After: nextID}, *got)
}

func TestListAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", jobPath(jobID)+"/attempts", "").requireProblem(t, job.CodeJobNotFound)
	w.jobs.attempts = failedAttempts
	a := w.send("GET", jobPath(jobID)+"/attempts", "")
	require.Equal(t, "de", a.Header.Get("Content-Language"))
	const self = "/v1/jobs/01890000-0000-7000-8000-000000000001"
	require.JSONEq(t, `{"data": [
		{"attempt": 1, "state": "CANCELED", "outcome": "CANCELED", "started_at": null,
			"finished_at": "2030-01-31T12:00:01.123456Z", "duration_ms": null,
			"links": {"self": "`+self+`/attempts/1", "report": "`+self+`/report?attempt=1"}},
		{"attempt": 2, "state": "FAILED", "outcome": "FAILED", "started_at": "2030-01-31T12:00:02.123456Z",
			"finished_at": "2030-01-31T12:00:04.123456Z", "duration_ms": 2000,
			"failure": `+failureDocument+`, "links": {"self": "`+self+`/attempts/2", "report": "`+self+`/report?attempt=2"}},
		{"attempt": 3, "state": "RUNNING", "outcome": null, "started_at": "2030-01-31T12:00:06.123456Z", "finished_at": null, "duration_ms": null,
			"links": {"self": "`+self+`/attempts/3"}}
	], "page": {"limit": 100, "next_cursor": null}}`, a.text)

	w.jobs.attempts = finishedAttempts
	require.Empty(t, w.send("GET", jobPath(jobID)+"/attempts", "").Header.Get("Content-Language"))
}
