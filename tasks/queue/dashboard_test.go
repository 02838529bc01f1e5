package queue

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func ask(r *redisconn.Redis, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	DashboardHandler(r, "/asynqmon").ServeHTTP(rec, httptest.NewRequest(method, "/asynqmon"+path, nil))
	return rec
}

// The handler serves the page under any path. A browser test checks what the page loads.
func TestMonitorNeedsNoOtherHost(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	for _, path := range []string{"", "/", "/index.html", "/queues/a.b/tasks/x.js", "/api"} {
		page := ask(r, "GET", path)
		require.Equal(t, http.StatusOK, page.Code, path)
		require.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"), path)
		require.NotRegexp(t, `(?i)(https?:)?//[a-z]`, page.Body.String(), path)
		if path != "/index.html" { // asynqmon serves this one without its settings
			require.Contains(t, page.Body.String(), `window.FLAG_ROOT_PATH="\/asynqmon"`, "the page has the root path")
			require.Contains(t, page.Body.String(), `window.FLAG_READ_ONLY="true"`)
		}
		require.Equal(t, http.StatusOK, ask(r, "HEAD", path).Code)
	}
}

// The dashboard passes only reads on to asynqmon.
func TestMonitorChangesNothing(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	task := redistest.Task()
	redistest.Ensure(t, New(r, Config{}), task)
	one := "/api/queues/jobs/pending_tasks/" + TaskName(task)
	for _, path := range []string{"/api/queues/jobs", "/api/queues/jobs:pause", one, one + ":archive"} {
		for _, method := range []string{"POST", "DELETE", "PUT", "PATCH", "get", "BREW"} {
			answer := ask(r, method, path)
			require.Equal(t, http.StatusMethodNotAllowed, answer.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", answer.Header().Get("Allow"))
		}
		require.NotEqual(t, http.StatusNoContent, ask(r, "GET", path).Code, path)
	}
	require.Equal(t, "pending", redistest.JobState(t, r, task))
	require.Zero(t, r.Client.Exists(t.Context(), "asynq:{jobs}:paused").Val())
}
