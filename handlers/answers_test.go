package handlers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

const answersFile = "testdata/answers.txt"

var update = flag.Bool("update", false, "write "+answersFile)

// shownHeaders are those that depend on what is shown.
var shownHeaders = []string{"Location", "Link", "Content-Type", "Content-Language", "ETag", "Retry-After", "Vary", "Cache-Control"}

// scenes are what there may be to show. Below the path of a scene only GET is sent.
var scenes = []struct {
	name, below string
	prepare     func(*world)
}{
	{"usual", "", func(*world) {}},
	{"a failed job", jobSelf, func(w *world) {
		w.jobs.job, w.jobs.report, w.jobs.attempts = failedJob, failedReport, failedAttempts
	}},
	{"a running job", jobSelf, func(w *world) {
		progress := &job.Progress{Percentage: 40, Phase: "render", StepsCompleted: 2, StepsTotal: 5, ItemsProcessed: 4, ItemsTotal: 10,
			UpdatedAt: now.In(time.FixedZone("x", 3600))}
		w.changed(func(j *job.Job) {
			j.State, j.Outcome, j.FinishedAt, j.Progress, j.BatchID, j.ScheduleID = job.Running, "", nil, progress, batchID, scheduleID
		})
	}},
	{"a job that waits for its time", jobSelf, func(w *world) {
		w.changed(func(j *job.Job) {
			j.State, j.Outcome, j.FinishedAt, j.RunAt, j.Waiting = job.Created, "", nil, now.Add(10*time.Second), job.WaitingScheduled
		})
	}},
	{"a canceled job", jobSelf, func(w *world) {
		w.changed(func(j *job.Job) { j.State, j.Outcome, j.Result = job.Canceled, job.OutcomeCanceled, nil })
	}},
	{"a result that has expired", jobSelf, func(w *world) { w.changed(func(j *job.Job) { j.Result.ExpiresAt = now }) }},
	{"a deleted job", jobSelf, func(w *world) {
		w.jobs.job = func(context.Context, job.ID, job.ID) (*job.Job, error) {
			return nil, fmt.Errorf("wrapped: %w", &job.Error{Code: job.CodeJobGone, Detail: "The job was deleted.", ExpiredAt: at(-3600)})
		}
	}},
	{"a failed batch", batchSelf, func(w *world) { w.batches.batch = failedBatch }},
	{"a disabled webhook", webhookSelf, func(w *world) {
		w.webhooks.find = func(context.Context, job.ID, job.ID) (*job.Webhook, error) {
			hook := aWebhook()
			hook.Disabled = &job.Disabled{At: *at(5), Reason: job.DisabledFailing}
			hook.Failures, hook.FailingFrom = 21, at(3)
			hook.Secrets = append(hook.Secrets, job.SealedSecret{Sealed: []byte("old"), Until: at(9)})
			return hook, nil
		}
	}},
}

// TestAnswers holds what each route answers against testdata/answers.txt, which -update writes. Look at what has changed in it: it is
// what clients see.
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
	for _, scene := range scenes {
		fmt.Fprintf(&got, "# %s\n", scene.name)
		w := newWorld(t, func(c *Config, _ *Deps) { c.TimeScale, c.RetentionJobs = 2, time.Hour }).full()
		scene.prepare(w)
		for _, rt := range w.server.Routes {
			path := examplePath(rt)
			of := strings.HasPrefix(path, scene.below) || path == "/v1/webhooks"
			if strings.HasSuffix(path, "/verdict") || scene.below != "" && (rt.Method != httpkit.Get || !of) {
				continue
			}
			seen := map[string]bool{}
			for _, accept := range []string{"application/json", httpkit.ProblemMedia, "*/*"} {
				a := w.try(rt, "X-Request-Id", jobID.String(), "Accept", accept)
				text := fmt.Sprintln(a.StatusCode)
				for _, name := range shownHeaders {
					if value := a.Header.Get(name); value != "" && !(name == "Cache-Control" && value == "no-store") {
						text += name + ": " + value + "\n"
					}
				}
				text += strings.TrimSuffix(a.text, "\n") + "\n"
				if !seen[text] && len(text) < 6000 && a.StatusCode != 406 { // documents and pages are long
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
