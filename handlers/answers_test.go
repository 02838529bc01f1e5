package handlers

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

const answersFile = "testdata/answers.txt"

var update = flag.Bool("update", false, "write "+answersFile)

var shownHeaders = []string{"Location", "Link", "Content-Type", "Content-Language", "ETag", "Retry-After", "Vary", "Cache-Control"}

// TestAnswers requests all routes in each of these states of the database. If `below` is set, it sends only GET requests to paths under
// `below`.
var scenes = []struct {
	name, below string
	prepare     func(*world)
}{
	{"usual", "", func(*world) {}},
	{"a failed job", failedSelf, func(*world) {}},
	{"a running job", jobSelf, func(w *world) {
		w.Exec(running+`, batch_id = $1, schedule_id = $2 WHERE job_id = $3`, backend.Batch.String(), backend.Schedule.String(),
			backend.Job.String())
		w.Queue.Publish(job.Notification{JobID: backend.Job, Attempt: 1, Progress: &job.Progress{Percentage: 40, Phase: "render",
			StepsCompleted: 2, StepsTotal: 5, ItemsProcessed: 4, ItemsTotal: 10, UpdatedAt: job.Time(now.In(time.FixedZone("x", 3600)))}})
	}},
	{"a job that waits for its time", jobSelf, func(w *world) { w.Exec(scheduled+` WHERE job_id = $1`, backend.Job.String()) }},
	{"a canceled job", jobSelf, func(w *world) {
		w.Exec(`DELETE FROM results; UPDATE jobs SET state = 'CANCELED', outcome = 'CANCELED' WHERE outcome = 'SUCCESS'`)
	}},
	{"a result that has expired", jobSelf, func(w *world) { w.Exec(`UPDATE results SET expires_at = '2030-01-31 12:00Z', body = NULL`) }},
	{"a deleted job", jobSelf, func(w *world) { require.NoError(w.t, w.Jobs.Delete(w.t.Context(), backend.ClientA, backend.Job)) }},
	{"a failed batch", batchSelf, func(w *world) { w.failBatch() }},
	{"a disabled webhook", webhookSelf, func(w *world) {
		w.Exec(`UPDATE webhooks SET disabled_at = '2030-01-31 12:00:05Z', disabled_reason = 'FAILING', consecutive_failures = 21,
			failing_since = '2030-01-31 12:00:03Z', old_secrets = '{old}', old_secrets_until = '{2030-01-31 12:00:09Z}'`)
	}},
}

const (
	running = `UPDATE jobs SET state = 'RUNNING', outcome = NULL, finished_at = NULL, event_seq = 4,
		worker_id = '01890000-0000-7000-8000-0000000000f2'`
	scheduled = `UPDATE jobs SET type = 'DEFERRED', state = 'CREATED', outcome = NULL, event_seq = 1, queued_at = NULL, started_at = NULL,
		finished_at = NULL, execution_at = '2030-01-31 12:00:10.123456Z', run_at = '2030-01-31 12:00:10.123456Z'`
)

func (w *world) failBatch() {
	w.t.Helper()
	w.Exec(`UPDATE jobs SET state = 'FAILED', outcome = 'FAILED', started_at = run_at, finished_at = run_at,
		failure_reason = 'job-timed-out', failure_code = 'RFA_EXEC_TIMEOUT', failure_retryable = true, failure_stage = 'processing',
		failure_detail = 'In English.' WHERE job_id = $1`, backend.QueuedJob.String())
	w.Exec(`UPDATE batches SET correlation_id = 'corr-1'`)
	n, err := w.Completer.Complete(w.t.Context(), []job.ID{backend.Batch})
	require.NoError(w.t, err)
	require.Equal(w.t, 1, n)
}

var varying = []struct {
	form  *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`"next_cursor":"[^"]*"`), `"next_cursor":"CURSOR"`},
	{regexp.MustCompile(`\b20(2\d|3[1-9])-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`"offset":"[^"]*"`), `"offset":"OFFSET"`},
	{regexp.MustCompile(`"frk_\w+"`), `"KEY"`},
	{regexp.MustCompile(`"key_id":"\w+"`), `"key_id":"KEY_ID"`},
}

func withoutVarying(text string) string {
	for _, part := range varying {
		text = part.form.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasPrefix(found, "01890000-0000-7000-8000") || strings.HasPrefix(found, "00000000-0000-4000-8000") {
				return found
			}
			return part.shown
		})
	}
	return text
}

// TestAnswers compares the responses of all routes with testdata/answers.txt. The flag -update rewrites that file. After an update, review
// the file's diff: clients see every change.
// Promise: contract 8b
// Promise: contract 14h
// Promise: draft 3.1
// Promise: draft 6.1, 10.3
// Promise: draft 10.1
// Promise: patterns Job Resource Model
// Promise: patterns Results
func TestAnswers(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	w := newWorld(t, func(c *Config, _ *Deps) { c.TimeScale, c.RetentionJobs = 2, time.Hour })
	for _, scene := range scenes {
		fmt.Fprintf(&got, "# %s\n", scene.name)
		w.Seed()
		w.dirty = false
		scene.prepare(w)
		for _, rt := range w.server.Routes {
			path := examplePath(rt)
			if scene.below == failedSelf {
				path = strings.Replace(path, jobSelf, failedSelf, 1)
			}
			of := strings.HasPrefix(path, scene.below) || path == "/v1/webhooks"
			if strings.HasSuffix(path, "/verdict") || scene.below != "" && (rt.Method != httpkit.Get || !of) {
				continue
			}
			seen, accepts := map[string]bool{}, []string{"application/json", httpkit.ProblemMedia, "*/*"}
			if rt.Method != httpkit.Get && rt.Action != "cancel_batch" { // responses to other writes have only one format
				accepts = accepts[:1]
			}
			for _, accept := range accepts {
				w.freshen()
				a := w.send(rt.Method, path, exampleBody(rt), "X-Request-Id", backend.Job.String(), "Accept", accept)
				text := fmt.Sprintln(a.StatusCode)
				for _, name := range shownHeaders {
					if value := a.Header.Get(name); value != "" && !(name == "Cache-Control" && value == "no-store") {
						text += name + ": " + value + "\n"
					}
				}
				text = withoutVarying(text + strings.TrimSuffix(a.text, "\n") + "\n")
				if !seen[text] && len(text) < 6000 && a.StatusCode != 406 { // skip repetitions, long pages and 406
					fmt.Fprintf(&got, "\n%s %s (%s)\n%s", rt.Method, path, accept, text)
				}
				seen[text] = true
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(answersFile, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "run go test ./handlers -run TestAnswers -update")
}
