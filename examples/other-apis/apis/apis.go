// Package apis imitates small parts of well-known HTTP APIs for long-running jobs, as their public documentation describes them. Each
// job takes one or two seconds.
package apis

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

type work struct {
	mu    sync.Mutex
	began map[string]time.Time // start times of the jobs by job id
	known map[string]string    // job ids by idempotency key or unique name
}

// submit returns the existing job with this name, or creates a job. With an empty name, it always creates a job.
func (w *work) submit(name string) (id string, made bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id = w.known[name]; id != "" && name != "" {
		return id, false
	}
	id = fmt.Sprint(len(w.began) + 1)
	w.began[id], w.known[name] = time.Now(), id
	return id, true
}

// done reports whether a job has ended, and whether it exists. The second job takes longer, so that the jobs end at different times.
func (w *work) done(id string) (done, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	began, exists := w.began[id]
	takes := time.Second
	if id == "2" {
		takes = 2500 * time.Millisecond
	}
	return exists && time.Since(began) >= takes, exists
}

// state returns the parameter `ended` if the job has ended, otherwise the parameter `running`. If there is no such job, it sends 404.
func (w *work) state(rw http.ResponseWriter, id, running, ended string) (state string, ok bool) {
	done, exists := w.done(id)
	if !exists {
		answer(rw, http.StatusNotFound, `{"error": {"code": "NotFound", "message": "There is no such job."}}`)
		return "", false
	}
	if done {
		return ended, true
	}
	return running, true
}

// Handler serves all APIs. Each has its own jobs.
func Handler() http.Handler {
	mux := http.NewServeMux()
	for _, register := range []func(*http.ServeMux, *work){plain, azure, google, openAI, stripe, gitHub, kubernetes} {
		register(mux, &work{began: map[string]time.Time{}, known: map[string]string{}})
	}
	return mux
}

func answer(rw http.ResponseWriter, status int, format string, of ...any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = fmt.Fprintf(rw, format, of...) //nolint:gosec // JSON with names that clients chose
}

func origin(r *http.Request) string { return "http://" + r.Host }

// plain is an API that uses only standard HTTP: 202, Location, Retry-After, ETag and Idempotency-Key.
func plain(mux *http.ServeMux, w *work) {
	mux.HandleFunc("POST /jobs", func(rw http.ResponseWriter, r *http.Request) {
		id, _ := w.submit(r.Header.Get("Idempotency-Key"))
		rw.Header().Set("Location", origin(r)+"/jobs/"+id)
		rw.Header().Set("Retry-After", "1")
		answer(rw, http.StatusAccepted, `{"id": %q, "status": "running"}`, id)
	})
	mux.HandleFunc("GET /jobs/{id}", func(rw http.ResponseWriter, r *http.Request) {
		state, ok := w.state(rw, r.PathValue("id"), "running", "succeeded")
		if !ok {
			return
		}
		tag := `"` + state + `"`
		rw.Header().Set("ETag", tag)
		if state == "running" {
			rw.Header().Set("Retry-After", "1")
		}
		if r.Header.Get("If-None-Match") == tag {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		answer(rw, http.StatusOK, `{"id": %q, "status": %q}`, r.PathValue("id"), state)
	})
}

// azure imitates Azure Resource Manager: PUT creates a resource, and a POST exports it.
func azure(mux *http.ServeMux, w *work) {
	const (
		thing    = "/subscriptions/{s}/resourceGroups/{g}/providers/Example.Things/things/{name}"
		location = "/subscriptions/s/providers/Example.Things/locations/l/"
	)
	started := func(rw http.ResponseWriter, r *http.Request, name string) string {
		id, _ := w.submit(name)
		rw.Header().Set("Azure-AsyncOperation", origin(r)+location+"operations/"+id+"?api-version=1")
		rw.Header().Set("Retry-After", "1")
		return id
	}
	mux.HandleFunc("PUT "+thing, func(rw http.ResponseWriter, r *http.Request) {
		started(rw, r, r.URL.Path)
		answer(rw, http.StatusCreated, `{"id": %q, "name": %q, "properties": {"provisioningState": "Creating"}}`, r.URL.Path, r.PathValue("name"))
	})
	mux.HandleFunc("GET "+thing, func(rw http.ResponseWriter, r *http.Request) {
		answer(rw, http.StatusOK, `{"id": %q, "name": %q, "properties": {"provisioningState": "Succeeded"}}`, r.URL.Path, r.PathValue("name"))
	})
	mux.HandleFunc("POST "+thing+"/export", func(rw http.ResponseWriter, r *http.Request) {
		id := started(rw, r, r.Header.Get("Repeatability-Request-ID"))
		rw.Header().Set("Location", origin(r)+location+"operationResults/"+id+"?api-version=1")
		rw.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET "+location+"operations/{id}", func(rw http.ResponseWriter, r *http.Request) {
		if state, ok := w.state(rw, r.PathValue("id"), "InProgress", "Succeeded"); ok {
			if state == "InProgress" {
				rw.Header().Set("Retry-After", "1")
			}
			answer(rw, http.StatusOK, `{"id": %q, "name": %q, "status": %q}`, r.URL.Path, r.PathValue("id"), state)
		}
	})
	mux.HandleFunc("GET "+location+"operationResults/{id}", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, http.StatusOK, `{"url": "https://example.com/export"}`)
	})
}

// google imitates Cloud Run: running a job returns an Operation.
// https://cloud.google.com/run/docs/reference/rest/v2/projects.locations.jobs/run, https://google.aip.dev/151
func google(mux *http.ServeMux, w *work) {
	const name = "projects/p/locations/l/operations/"
	mux.HandleFunc("POST /v2/projects/{p}/locations/{l}/jobs/{run}", func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.PathValue("run"), ":run") {
			http.NotFound(rw, r)
			return
		}
		id, _ := w.submit("")
		answer(rw, http.StatusOK, `{"name": %q, "metadata": {}}`, name+id)
	})
	mux.HandleFunc("GET /v2/"+name+"{id}", func(rw http.ResponseWriter, r *http.Request) {
		if done, ok := w.state(rw, r.PathValue("id"), "false", "true"); ok {
			answer(rw, http.StatusOK, `{"name": %q, "metadata": {}, "done": %s}`, name+r.PathValue("id"), done)
		}
	})
}

// openAI has batches.
// https://platform.openai.com/docs/api-reference/batch
func openAI(mux *http.ServeMux, w *work) {
	mux.HandleFunc("POST /v1/batches", func(rw http.ResponseWriter, _ *http.Request) {
		id, _ := w.submit("")
		answer(rw, http.StatusOK, `{"id": "batch_%s", "object": "batch", "status": "validating"}`, id)
	})
	mux.HandleFunc("GET /v1/batches/{id}", func(rw http.ResponseWriter, r *http.Request) {
		if state, ok := w.state(rw, strings.TrimPrefix(r.PathValue("id"), "batch_"), "in_progress", "completed"); ok {
			answer(rw, http.StatusOK, `{"id": %q, "object": "batch", "status": %q}`, r.PathValue("id"), state)
		}
	})
}

// stripe has payouts, and recognizes repeated requests by their Idempotency-Key.
// https://docs.stripe.com/api/payouts, https://docs.stripe.com/api/idempotent_requests
func stripe(mux *http.ServeMux, w *work) {
	mux.HandleFunc("POST /v1/payouts", func(rw http.ResponseWriter, r *http.Request) {
		id, made := w.submit(r.Header.Get("Idempotency-Key"))
		if !made {
			rw.Header().Set("Idempotent-Replayed", "true")
		}
		answer(rw, http.StatusOK, `{"id": "po_%s", "object": "payout", "status": "pending"}`, id)
	})
	mux.HandleFunc("GET /v1/payouts/{id}", func(rw http.ResponseWriter, r *http.Request) {
		if state, ok := w.state(rw, strings.TrimPrefix(r.PathValue("id"), "po_"), "in_transit", "paid"); ok {
			answer(rw, http.StatusOK, `{"id": %q, "object": "payout", "status": %q}`, r.PathValue("id"), state)
		}
	})
}

// gitHub computes statistics when a client requests them.
// https://docs.github.com/en/rest/metrics/statistics
func gitHub(mux *http.ServeMux, w *work) {
	mux.HandleFunc("GET /repos/{owner}/{repo}/stats/contributors", func(rw http.ResponseWriter, r *http.Request) {
		id, _ := w.submit(r.URL.Path)
		if done, _ := w.done(id); !done {
			answer(rw, http.StatusAccepted, `{}`)
			return
		}
		answer(rw, http.StatusOK, `[{"total": 1, "weeks": [], "author": {"login": "octocat"}}]`)
	})
}

// kubernetes has jobs with unique names.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
func kubernetes(mux *http.ServeMux, w *work) {
	const jobs = "/apis/batch/v1/namespaces/{namespace}/jobs"
	job := func(rw http.ResponseWriter, status int, name, conditions string) {
		answer(rw, status, `{"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": %q}, "spec": {}, "status": {%s}}`, name, conditions)
	}
	mux.HandleFunc("POST "+jobs, func(rw http.ResponseWriter, r *http.Request) {
		var wanted struct{ Metadata struct{ Name string } }
		if json.NewDecoder(r.Body).Decode(&wanted) != nil || wanted.Metadata.Name == "" {
			answer(rw, http.StatusBadRequest, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "BadRequest", "code": 400}`)
			return
		}
		if _, made := w.submit(wanted.Metadata.Name); !made {
			answer(rw, http.StatusConflict, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409}`)
			return
		}
		job(rw, http.StatusCreated, wanted.Metadata.Name, "")
	})
	mux.HandleFunc("GET "+jobs+"/{name}", func(rw http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		w.mu.Lock()
		id := w.known[name]
		w.mu.Unlock()
		if conditions, ok := w.state(rw, id, `"active": 1`, `"conditions": [{"type": "Complete", "status": "True"}]`); ok {
			job(rw, http.StatusOK, name, conditions)
		}
	})
}
