package queue

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func newMonitor(t *testing.T) (r *redisconn.Redis, request func(method, path, body string) *httptest.ResponseRecorder) {
	t.Helper()
	r = redistest.DB(t)
	handler := DashboardHandler(r, "/asynqmon")
	return r, func(method, path, body string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest(method, "/asynqmon"+path, strings.NewReader(body)))
		return rec
	}
}

// The page comes from here, whatever path it is asked for. A browser test sees to what it loads.
func TestMonitorNeedsNoOtherHost(t *testing.T) {
	t.Parallel()
	_, request := newMonitor(t)
	for _, path := range []string{"", "/", "/index.html", "/queues/a.b/tasks/x.js", "/api"} {
		page := request("GET", path, "")
		require.Equal(t, http.StatusOK, page.Code, path)
		require.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"), path)
		require.NotRegexp(t, `(?i)(https?:)?//[a-z]`, page.Body.String(), path)
		if path != "/index.html" { // which asynqmon does not fill in
			require.Contains(t, page.Body.String(), `window.FLAG_ROOT_PATH="\/asynqmon"`, "the page knows where it is")
			require.Contains(t, page.Body.String(), `window.FLAG_READ_ONLY="true"`)
		}
		require.Equal(t, http.StatusOK, request("HEAD", path, "").Code)
	}
}

// Whatever asynqmon could change, only reading is let through.
func TestMonitorChangesNothing(t *testing.T) {
	t.Parallel()
	r, request := newMonitor(t)
	q := New(r, Config{})
	task := redistest.Task()
	redistest.Ensure(t, q, task)
	one := "/queues/jobs/pending_tasks/" + TaskName(task)
	for _, path := range []string{
		"/queues/jobs", "/queues/jobs:pause", one, one + ":archive", one + ":cancel", "/queues/jobs/pending_tasks:delete_all",
		"/queues/jobs/pending_tasks:batch_delete", "/queues/jobs/active_tasks:cancel_all",
	} {
		for _, method := range []string{"POST", "DELETE", "PUT", "PATCH", "get", "BREW"} {
			answer := request(method, "/api"+path, `{"task_ids":["`+TaskName(task)+`"]}`)
			require.Equal(t, http.StatusMethodNotAllowed, answer.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", answer.Header().Get("Allow"))
		}
		require.NotEqual(t, http.StatusNoContent, request("GET", "/api"+path, "").Code, path)
	}
	require.Equal(t, "pending", redistest.JobState(t, r, task))
	require.Zero(t, r.Client.Exists(t.Context(), "asynq:{jobs}:paused").Val())
}
