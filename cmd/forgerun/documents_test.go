package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// documentTools is the folder of common tools for API documents.
const documentTools = "../../tools/documents"

// requireNodePackages skips the test if the packages of a folder are not installed.
func requireNodePackages(t *testing.T, dir string) {
	t.Helper()
	missing := missingProgram("node", "install Node 18 or later")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); missing == "" && err != nil {
		missing = "run npm ci in " + strings.TrimPrefix(dir, "../../")
	}
	if missing == "" {
		return
	}
	require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
	t.Skip(missing)
}

// The client libraries in other languages.
const (
	typeScript = "../../clients/typescript"
	python     = "../../clients/python"
)

// requirePython skips the test if Python is not installed.
func requirePython(t *testing.T) {
	t.Helper()
	const remedy = "install Python 3.11 or later"
	missing := missingProgram("python3", remedy)
	if missing == "" && exec.CommandContext(t.Context(), "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
		missing = "python3 is too old; " + remedy
	}
	if missing != "" {
		require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
		t.Skip(missing)
	}
}

// runIn runs a program in a folder and returns its output.
func runIn(t *testing.T, dir string, environment []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Dir, program.Env, program.WaitDelay = dir, append(os.Environ(), environment...), time.Second
	said, err := program.CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(command, " "), said)
	return string(said)
}

// TestDocumentationTypesOfClients checks that the types of the libraries equal the types of the OpenAPI document.
func TestDocumentationTypesOfClients(t *testing.T) {
	t.Parallel()
	for _, library := range []struct {
		name, file, remedy string
		require            func(*testing.T)
		generate           func(file string) (dir string, command []string)
	}{
		{"typescript", typeScript + "/src/openapi.ts", "npm run generate", func(t *testing.T) { requireNodePackages(t, typeScript) },
			func(file string) (string, []string) { return typeScript, []string{"node", "generate.mjs", file} }},
		{"python", python + "/src/forgerun/schemas.py", "go generate ./clients/...", func(*testing.T) {}, func(file string) (string, []string) {
			return python, []string{"go", "run", "./generate", file}
		}},
	} {
		t.Run(library.name, func(t *testing.T) {
			t.Parallel()
			library.require(t)
			file := filepath.Join(t.TempDir(), "types")
			dir, command := library.generate(file)
			runIn(t, dir, nil, command...)
			wanted := readText(t, file)
			found := readText(t, library.file)
			require.Equal(t, wanted, found, "run %s", library.remedy)
		})
	}
}

// documentedOperation is the part of a documented operation that is needed to send its requests.
type documentedOperation struct {
	ID        string         `yaml:"operationId"`
	Body      documentedBody `yaml:"requestBody"`
	Responses map[string]any
}

type documentedBody struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct {
		Examples map[string]struct{ Value any }
	}
}

// documentedRequest is an operation's request with an example as its body.
type documentedRequest struct {
	method, path, name, media string

	operation *documentedOperation
	body      any // nil for no body; a map for an object
}

// members returns the members of a body that is an object.
func (r *documentedRequest) members() map[string]any {
	members, _ := r.body.(map[string]any)
	return members
}

// documentedRequests returns the requests in a document.
func documentedRequests(t *testing.T, text string) (requests []documentedRequest) {
	t.Helper()
	type item struct{ Get, Post, Put, Patch, Delete *documentedOperation }
	var document struct {
		Paths      map[string]item
		Components struct {
			RequestBodies map[string]documentedBody `yaml:"requestBodies"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	for path, i := range document.Paths {
		for method, o := range map[string]*documentedOperation{"GET": i.Get, "POST": i.Post, "PUT": i.Put, "PATCH": i.Patch,
			"DELETE": i.Delete} {
			if o == nil {
				continue
			}
			body := o.Body
			if body.Ref != "" {
				body = document.Components.RequestBodies[body.Ref[strings.LastIndexByte(body.Ref, '/')+1:]]
			}
			if len(body.Content) == 0 {
				requests = append(requests, documentedRequest{method: method, path: path, operation: o})
			}
			for media, content := range body.Content {
				for name, example := range content.Examples {
					requests = append(requests, documentedRequest{method, path, name, media, o, example.Value})
				}
			}
		}
	}
	// Requests that move the clock come last, because after them all earlier keys are expired.
	movesClock := func(r documentedRequest) bool { return r.operation.ID == "moveClock" }
	others := slices.DeleteFunc(slices.Clone(requests), movesClock)
	return append(others, slices.DeleteFunc(requests, func(r documentedRequest) bool { return !movesClock(r) })...)
}

// status returns the lowest documented status of success. It skips 200 for submissions that do not wait, and for bulk operations that are
// not dry runs.
func (r *documentedRequest) status(t *testing.T) int {
	t.Helper()
	if id := r.operation.ID; id == "submitJob" || id == "beginBulk" && r.members()["dry_run"] != true {
		return http.StatusAccepted
	}
	status, err := strconv.Atoi(slices.Min(slices.Collect(maps.Keys(r.operation.Responses))))
	require.NoError(t, err)
	return status
}

// documentedWorld has the resources for documented requests.
type documentedWorld struct {
	s     *stack
	api   *proc
	u     *user
	ended string // a job that has succeeded, with deliveries
	batch string
	hook  string
	sent  map[string]string // deliveries of that job: to "webhook" and "callback"
}

func newDocumentedWorld(t *testing.T) *documentedWorld {
	t.Helper()
	environment := env{"FORGERUN_ADMIN_TOKEN": operatorsToken, "FORGERUN_TESTBED": "true"}
	w := &documentedWorld{s: newStack(t, hooks, environment), sent: map[string]string{}}
	w.api, _, w.u = w.s.startDelivering()
	r := newReceiver(t, nil)
	w.hook = w.u.subscribe(w.api, r.url).id
	w.ended = w.u.submit(w.api, execute("SUCCESS_FAST", `"callback":"`+r.url+`"`))
	w.batch = w.newBatch()
	w.s.await("SUCCEEDED", w.ended)
	w.s.awaitDeliveries()
	for _, d := range w.u.deliveries(w.api, "/v1/jobs/"+w.ended, "?event_name=job.succeeded") {
		to := "webhook"
		if d["webhook_id"] == nil {
			to = "callback"
		}
		w.sent[to] = d["delivery_id"].(string)
	}
	require.Len(t, w.sent, 2)
	return w
}

// newBatch submits jobs that wait.
func (w *documentedWorld) newBatch() string {
	w.s.t.Helper()
	const job = `{"type":"DEFERRED","execution_at":"2100-01-01T00:00:00Z"}`
	a := w.u.call(w.api, "POST", "/v1/jobs/batch", `{"jobs":[`+job+`,`+job+`]}`)
	require.Equal(w.s.t, http.StatusAccepted, a.status, a.body)
	return a.text("batch_id")
}

// newBulk begins a slow bulk operation.
func (w *documentedWorld) newBulk() string {
	w.s.t.Helper()
	w.newBatch()
	path := w.u.bulk(w.api, `{"action":"cancel","filter":{"state":"CREATED"},"rate":1}`)
	return strings.TrimPrefix(path, "/v1/bulk/")
}

// newJob submits a job and waits until it is in the state.
func (w *documentedWorld) newJob(state, body string) string {
	w.s.t.Helper()
	id := w.u.submit(w.api, body)
	w.s.await(state, id)
	return id
}

// prepare creates the resources for a request, and returns its sender and the values of its path. It replaces ids in the body by existing
// ids.
func (w *documentedWorld) prepare(r documentedRequest) (u *user, values map[string]string) {
	w.s.t.Helper()
	values = map[string]string{"n": "1", "slug": "conflict", "name": "job-result", "delivery_id": w.sent["webhook"]}
	switch {
	case strings.HasPrefix(r.path, "/v1/jobs/"):
		values["id"], values["delivery_id"] = w.ended, w.sent["callback"]
	case strings.HasPrefix(r.path, "/v1/batches/"):
		values["id"] = w.batch
	case strings.HasPrefix(r.path, "/v1/webhooks/"):
		values["id"] = w.hook
	case strings.HasPrefix(r.path, "/v1/bulk/"):
		values["id"] = w.newBulk()
	case strings.HasPrefix(r.path, "/v1/schedules/"):
		_, values["id"] = w.u.schedule(w.api, `{"cron":"0 4 * * *","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
	}
	u = w.u
	switch r.operation.ID {
	case "deleteJob":
		values["id"] = w.newJob("SUCCEEDED", execute("SUCCESS_FAST"))
	case "cancelJob":
		values["id"] = w.newJob("CREATED", `{"type":"DEFERRED","execution_at":"2100-01-01T00:00:00Z"}`)
	case "retryJob":
		values["id"] = w.newJob("FAILED", execute("FAIL_AFTER_RETRYABLE"))
	case "cancelBatch":
		values["id"] = w.newBatch()
	case "unregisterWebhook":
		values["id"] = w.u.subscribe(w.api, "http://127.0.0.1:10/", "batch.completed").id
	case "createClient":
		u = &user{s: w.s}
	case "registerWebhook":
		u = w.s.newUser(w.api) // a client without events that would be sent there
	case "cancelClient":
		u, values["id"] = &user{s: w.s, key: operatorsToken}, w.s.newUser(w.api).id
	case "replaceFaults":
		u = w.s.newUser(w.api) // the faults hit only this client
	case "removeFault":
		u = w.s.newUser(w.api)
		u.disturb(w.api, `[{"match":{"operation":"getBatch"},"effect":{"status":503}}]`)
		values["id"] = w.s.text(`SELECT rule_id::text FROM testbed_faults WHERE client_id = $1`, u.id)
	case "startSession", "reset", "makeFixtures":
		u = w.s.newUser(w.api)
	case "moveClock":
		u = w.s.newUser(w.api)
		w.s.exec(`DELETE FROM schedules`) // they would run at each due time in years of moved time
	case "getSession", "endSession", "getVerdict", "getJournal":
		u = w.s.newUser(w.api)
		values["id"] = u.call(w.api, "POST", "/v1/testbed/sessions", "").text("session_id")
	case "createKey", "renewKey", "revokeKey":
		u = w.s.newUser(w.api)
		values["id"] = u.id
	}
	if r.operation.ID == "revokeKey" {
		r.members()["key_id"] = u.call(w.api, "POST", "/v1/clients/"+u.id+"/keys", "").text("key_id")
	}
	return u, values
}

// TestDocumentedRequestsWork sends every request in the document's examples to a service, and checks the status. The stack's client checks
// responses against their schema.
func TestDocumentedRequestsWork(t *testing.T) {
	w := newDocumentedWorld(t)
	served := w.u.call(w.api, "GET", "/openapi.yaml", "")
	file := readText(t, "../../handlers/docs/openapi.yaml")
	require.Equal(t, file, served.body)
	requests := documentedRequests(t, served.body)
	require.Greater(t, len(requests), 50)
	for _, r := range requests {
		u, values := w.prepare(r)
		path := r.path
		for name, value := range values {
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		require.NotContains(t, path, "{", r.operation.ID)
		var body string
		if r.body != nil {
			text, err := json.Marshal(r.body)
			require.NoError(t, err)
			body = string(text)
		}
		var headers []string
		if body != "" {
			headers = []string{"Content-Type", r.media}
		}
		a := u.call(w.api, r.method, path, body, headers...)
		if r.operation.ID == "ready" { // with slow stores, the service may be unready for a moment
			eventually(t, "the service is ready", func() bool {
				a = u.call(w.api, r.method, path, "")
				return a.err != nil || a.status == r.status(t)
			})
		}
		require.NoError(t, a.err, "%s, %s", r.operation.ID, r.name)
		require.Equal(t, r.status(t), a.status, "%s, %s: %s", r.operation.ID, r.name, a.body)
	}
}
