package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
)

// longRunning imitates a public API as its documentation describes it. Jobs are done at the third read.
type longRunning struct {
	method, submit, body string
	accepted             func(w http.ResponseWriter, id string) // writes the response to a submission
	path                 func(id string) string                 // returns the path of a job
	pending, done        string                                 // bodies of responses to reads
	wait                 int                                    // status of the response with pending
	key                  string                                 // header with the idempotency key; empty if the API has none
}

func text(status int, format string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, id string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, id)
	}
}

var described = map[string]longRunning{
	"azure": {
		method: "PUT", submit: "/subscriptions/s/things/t", body: `{"properties": {}}`,
		accepted: func(w http.ResponseWriter, id string) {
			w.Header().Set("Azure-AsyncOperation", "/operations/"+id+"?api-version=1")
			text(201, `{"id": "%s", "properties": {"provisioningState": "Creating"}}`)(w, id)
		},
		path: func(id string) string { return "/operations/" + id + "?api-version=1" }, wait: 200,
		pending: `{"status": "InProgress"}`, done: `{"status": "Failed", "error": {"code": "Conflict"}}`,
	},
	"google": {
		method: "POST", submit: "/v2/projects/p/locations/l/things:export", body: `{}`,
		accepted: text(200, `{"name": "projects/p/operations/%s"}`),
		path:     func(id string) string { return "/v2/projects/p/operations/" + id }, wait: 200,
		pending: `{"name": "x", "done": false}`, done: `{"name": "x", "done": true, "response": {}}`,
	},
	"openai": {
		method: "POST", submit: "/v1/batches", body: `{"input_file_id": "f"}`, accepted: text(200, `{"id": "batch_%s", "status": "validating"}`),
		path: func(id string) string { return "/v1/batches/batch_" + id }, wait: 200,
		pending: `{"status": "in_progress"}`, done: `{"status": "completed"}`,
	},
	"kubernetes": {
		method: "POST", submit: "/apis/batch/v1/namespaces/n/jobs", body: `{"metadata": {"name": "j"}}`,
		accepted: text(201, `{"metadata": {"name": "job-%s"}, "status": {}}`),
		path:     func(id string) string { return "/apis/batch/v1/namespaces/n/jobs/job-" + id }, wait: 200,
		pending: `{"status": {"active": 1}}`, done: `{"status": {"conditions": [{"type": "Complete", "status": "True"}]}}`,
	},
	"stripe": {
		method: "POST", submit: "/v1/payouts", body: `{"amount": 1}`, accepted: text(200, `{"id": "po_%s", "status": "pending"}`),
		path: func(id string) string { return "/v1/payouts/po_" + id }, wait: 200,
		pending: `{"status": "in_transit"}`, done: `{"status": "paid"}`, key: "Idempotency-Key",
	},
	"github": {
		path: func(string) string { return "/repos/o/r/stats/contributors" }, wait: 202, pending: `{}`, done: `[{"total": 1}]`,
	},
}

// server returns a server of the API.
func (l longRunning) server() http.Handler {
	var mu sync.Mutex
	made, reads, byKey := 0, map[string]int{}, map[string]int{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.Method == l.method && r.URL.Path == l.submit {
			id := byKey[r.Header.Get(l.key)]
			if l.key == "" || id == 0 {
				made++
				id = made
				byKey[r.Header.Get(l.key)] = id
			}
			l.accepted(w, fmt.Sprint(id))
			return
		}
		if l.submit != "" && !l.has(r, made) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if reads[r.URL.Path]++; reads[r.URL.Path]%3 != 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(l.wait)
			_, _ = io.WriteString(w, l.pending)
			return
		}
		_, _ = io.WriteString(w, l.done)
	})
}

// has reports whether the request names one of the created jobs.
func (l longRunning) has(r *http.Request, made int) bool {
	for id := range made {
		if l.path(fmt.Sprint(id+1)) == r.URL.RequestURI() {
			return true
		}
	}
	return false
}

// Each ready-made description recognizes submissions, reads and final states. A client is blamed for repeating a request after a lost
// response, unless the API allows that.
func TestReadyMadeDescriptions(t *testing.T) {
	t.Parallel()
	require.Subset(t, api.Names(), []string{"azure", "forgerun", "github", "google", "kubernetes", "openai", "stripe"})
	for name, l := range described {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, name, l.server())
			session, _ := json.Marshal(map[string]any{"rules": []string{"outcome-learned", "stop-at-end", "idempotency-key", "same-body"}})
			id := b.session(string(session))
			if l.submit != "" {
				b.faults(nth("submit", 1, fault.Effect{Close: fault.AfterCommit}))
				require.ErrorIs(t, b.do(l.method, l.submit, l.body).err, io.EOF)
				require.NoError(t, b.do(l.method, l.submit, l.body).err)
			}
			for job := range 2 {
				for range 3 {
					require.NoError(t, b.do("GET", l.path(fmt.Sprint(job+1)), "").err)
				}
			}
			_, rules := b.verdict(id)
			require.Equal(t, verdict.OK, rules["stop-at-end"].Status)
			require.Equal(t, l.submit != "", rules["outcome-learned"].Status == verdict.OK)
			safe := l.submit == "" || l.method == "PUT" || name == "kubernetes"
			require.Equal(t, !safe, rules["idempotency-key"].Status.Broken(), "%+v", rules["idempotency-key"])
		})
	}
}
