package queue

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
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

func TestMonitorShowsTheQueues(t *testing.T) {
	t.Parallel()
	r, request := newMonitor(t)
	q := New(r, Config{})
	task := redistest.Task()
	require.NoError(t, q.SetEpoch(t.Context(), 1))
	dispatchAll(t, q, task)
	queues := request("GET", "/api/queues", "")
	require.Equal(t, http.StatusOK, queues.Code)
	require.Equal(t, "application/json", queues.Header().Get("Content-Type"))
	require.Contains(t, queues.Body.String(), `"queue":"jobs"`)
	require.Contains(t, request("GET", "/api/queues/jobs/pending_tasks", "").Body.String(), TaskName(task))
	require.Contains(t, request("GET", "/api/redis_info", "").Body.String(), "redis_version")
	require.Contains(t, request("GET", "/api/queues/none", "").Header().Get("Content-Type"), "text/plain", "an error is no JSON")
}

// The page and what it loads come from here, whatever path it is asked for.
func TestMonitorNeedsNoOtherHost(t *testing.T) {
	t.Parallel()
	_, request := newMonitor(t)
	for _, path := range []string{"", "/", "/index.html", "/queues/jobs", "/queues/a.b/tasks/x.js", "/static", "/api"} {
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

// monitorWrites are all routes of asynqmon that change something.
func monitorWrites(in map[string]job.Task) []string {
	routes := []string{"DELETE /queues/jobs", "POST /queues/jobs:pause", "POST /queues/jobs:resume"}
	for _, state := range []string{"active", "pending", "scheduled", "retry", "archived", "completed", "aggregating"} {
		list, name := "/queues/jobs/"+state+"_tasks", TaskName(in[state])
		if state == "aggregating" {
			list, name = "/queues/jobs/groups/g/aggregating_tasks", TaskName(in["pending"])
		}
		routes = append(routes, "DELETE "+list+"/"+name, "DELETE "+list+":delete_all")
		for _, action := range []string{"delete", "archive", "run", "cancel"} {
			routes = append(routes, "POST "+list+"/"+name+":"+action, "POST "+list+":"+action+"_all", "POST "+list+":batch_"+action)
		}
	}
	return routes
}

func TestMonitorChangesNothing(t *testing.T) {
	t.Parallel()
	r, request := newMonitor(t)
	q := New(r, Config{})
	in := tasksInEveryState(t, r, q)
	var names []string
	for _, task := range in {
		names = append(names, TaskName(task))
	}
	body, err := json.Marshal(map[string][]string{"task_ids": names})
	require.NoError(t, err)
	before := contents(t, r)
	for _, route := range monitorWrites(in) {
		method, path, _ := strings.Cut(route, " ")
		for _, m := range []string{method, "PUT", "PATCH", "get", "BREW"} {
			answer := request(m, "/api"+path, string(body))
			require.Equal(t, http.StatusMethodNotAllowed, answer.Code, "%s %s", m, path)
			require.Equal(t, "GET, HEAD", answer.Header().Get("Allow"))
		}
		for _, m := range []string{"GET", "HEAD"} {
			require.NotEqual(t, http.StatusNoContent, request(m, "/api"+path, string(body)).Code, "%s %s", m, path)
		}
	}
	for state, task := range in {
		require.Equal(t, state, stateOf(t, r, task))
	}
	require.Equal(t, before, contents(t, r))
}

// contents is what Redis has of the queues, but for what running workers write
// there by themselves.
func contents(t *testing.T, r *redisconn.Redis) map[string]string {
	t.Helper()
	ctx := t.Context()
	all := map[string]string{}
	for _, key := range r.Client.Keys(ctx, "asynq*").Val() {
		if strings.Contains(key, ":servers") || strings.Contains(key, ":workers") || strings.Contains(key, ":lease") {
			continue
		}
		dump, err := r.Client.Dump(ctx, key).Result()
		require.NoError(t, err)
		all[key] = dump
	}
	require.NotEmpty(t, all)
	return all
}
