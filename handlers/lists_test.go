package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

type page struct {
	Data []map[string]any `json:"data"`
	Page struct {
		Limit      int     `json:"limit"`
		NextCursor *string `json:"next_cursor"`
	} `json:"page"`
}

func (a *reply) page(t *testing.T) (p page) {
	t.Helper()
	require.Equal(t, 200, a.StatusCode, a.text)
	a.json(t, &p)
	return p
}

func (a *reply) cursor(t *testing.T) string {
	t.Helper()
	next := a.page(t).Page.NextCursor
	require.NotNil(t, next)
	return *next
}

var ofOneWebhook, ofOneJob = webhookSelf + "/deliveries", jobSelf + "/deliveries"

func (w *world) twoInBatch() {
	w.t.Helper()
	w.Exec(`UPDATE jobs SET batch_id = $1 WHERE job_id = $2`, backend.Batch.String(), backend.Job.String())
	w.Exec(`UPDATE batches SET items = items || $1`, `[{"item_id":"c","job_id":"`+backend.Job.String()+`","state":"QUEUED"}]`)
}

func TestPagesOfLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoInBatch()
	for path, pages := range map[string]int{
		"/v1/jobs?": 3, "/v1/jobs?state=FAILED&": 1, batchSelf + "/jobs?": 2, "/v1/bulk?": 2, "/v1/schedules?": 2,
		job.BulkPath(backend.Bulk) + "/items?": 3, job.BulkPath(backend.Bulk) + "/items?result=FAILED&": 2,
		ofOneWebhook + "?": 2, ofOneJob + "?": 4,
	} {
		seen := map[string]bool{}
		for cursor := ""; ; {
			p := w.send("GET", path+"limit=1"+cursor, "").page(t)
			require.Equal(t, 1, p.Page.Limit)
			require.Len(t, p.Data, 1, path)
			text := fmt.Sprint(p.Data[0])
			require.False(t, seen[text], path)
			seen[text] = true
			if p.Page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *p.Page.NextCursor
		}
		require.Len(t, seen, pages, path)
	}
	w.Exec(`DELETE FROM jobs`)
	require.JSONEq(t, `{"data": [], "page": {"limit": 100, "next_cursor": null}}`, w.send("GET", "/v1/jobs?limit=100", "").text)
	w.send("GET", "/v1/batches/"+backend.Job.String()+"/jobs", "").requireProblem(t, job.CodeBatchNotFound)
}

// Promise: patterns Listing
func TestListFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE jobs SET created_at = '2023-07-01 00:00Z' WHERE state = 'QUEUED'`) // the ids (UUIDv7) still contain the original times
	w.Exec(`UPDATE deliveries SET created_at = '2023-07-01 00:00Z', event_name = 'job.failed' WHERE delivery_id::text LIKE '%d3'
		OR delivery_id::text LIKE '%d4'`)
	before, after := "created_before=2024-01-02T00:00:00.0000001%2B00:00", "created_after=2020-01-01T00:00:00Z"
	never := "created_after=2031-01-01T00:00:00Z"
	id := backend.Batch.String()
	for query, n := range map[string]int{
		"state=FAILED": 1, "type=DEFERRED": 1, "work_kind=SUCCESS_FAST": 2, "correlation_id=corr-1": 1, "batch_id=" + id: 1,
		"schedule_id=" + id: 0, before: 1, after: 3, never: 0,
		"state=FAILED&type=DEFERRED&work_kind=RETRY_ON_FAIL&correlation_id=corr-1&" + after: 1,
	} {
		require.Len(t, w.send("GET", "/v1/jobs?"+query, "").page(t).Data, n, query)
	}
	for _, path := range []string{ofOneWebhook, ofOneJob} {
		of := map[string]int{ofOneWebhook: 1, ofOneJob: 2}[path]
		for query, n := range map[string]int{"": 2 * of, "state=PENDING": 2, "state=DELIVERED": 0, "event_name=job.failed": of, before: of,
			after: 2 * of, never: 0} {
			require.Len(t, w.send("GET", path+"?"+query, "").page(t).Data, n, path+" "+query)
		}
	}
}

func TestCursorsBelongToTheirList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoInBatch()
	all := map[string]string{}
	for _, path := range []string{
		"/v1/jobs?", "/v1/jobs?type=EXECUTE&", batchSelf + "/jobs?", "/v1/events?", jobSelf + "/events?", "/v1/bulk?", "/v1/schedules?",
		job.BulkPath(backend.Bulk) + "/items?", job.BulkPath(backend.Bulk) + "/items?result=FAILED&", ofOneWebhook + "?",
		ofOneWebhook + "?created_after=2020-01-01T00:00:00Z&", ofOneJob + "?", ofOneJob + "?state=FAILED&",
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
		foreign := w.send("GET", path+"cursor="+all[path], "", "Authorization", "Bearer "+otherKey)
		require.Contains(t, []int{400, 404}, foreign.StatusCode, path)
	}
}

// Promise: patterns Listing
func TestCursorsCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cursor := w.send("GET", "/v1/jobs?limit=1", "").cursor(t)
	bad := func(changed string) {
		t.Helper()
		require.Equal(t, 400, w.send("GET", "/v1/jobs?limit=1&cursor="+url.QueryEscape(changed), "").StatusCode, changed)
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

// Cursors are valid in other processes with the same secret, and invalid with another secret.
func TestCursorKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cursor := w.send("GET", "/v1/jobs?limit=1", "").cursor(t)
	key := func(secret string, err error) *world {
		return newWorldOn(t, w.Service, func(_ *Config, d *Deps) {
			d.CursorKey = func(context.Context) ([]byte, error) { return []byte(secret), err }
		})
	}
	require.Equal(t, 200, newWorldOn(t, w.Service).send("GET", "/v1/jobs?cursor="+cursor, "").StatusCode)
	key("another", nil).send("GET", "/v1/jobs?cursor="+cursor, "").requireProblem(t, job.CodeMalformed)
	failing := key("", errors.New("planted secret"))
	for _, query := range []string{"?limit=1", "?cursor=" + cursor} {
		a := failing.send("GET", "/v1/jobs"+query, "")
		a.requireProblem(t, job.CodeInternal)
		require.NotContains(t, a.text, "planted")
	}
}
