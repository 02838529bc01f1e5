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
