package queue

import (
	"net/http"
	"net/http/httptest"
	"regexp"
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

// The page and what it loads come from here, whatever path it is asked for.
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
	page := request("GET", "/", "").Body.String()
	files := regexp.MustCompile(`(?:src|href)="/asynqmon(/[^"]+)"`).FindAllStringSubmatch(page, -1)
	require.Greater(t, len(files), 5, "scripts and icons")
	scripts := ""
	for _, file := range files {
		answer := request("GET", file[1], "")
		require.Equal(t, http.StatusOK, answer.Code, file[1])
		require.NotContains(t, answer.Header().Get("Content-Type"), "html", "%s is a file", file[1])
		if strings.HasSuffix(file[1], ".js") {
			require.Contains(t, answer.Header().Get("Content-Type"), "javascript")
			scripts += answer.Body.String()
		}
	}
	require.Contains(t, scripts, `"Roboto", "Helvetica", "Arial", sans-serif`, "without the font there is another")
	require.NotContains(t, scripts, "fonts.googleapis")
	require.NotContains(t, scripts, "material-icons", "icons are drawings, no letters of a font")
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
