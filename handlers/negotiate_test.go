package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestDraftView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = failedJob
	const document, plain = "application/problem+json", "application/json"
	for accept, want := range map[string]string{
		"-": plain, "*/*": plain, "application/problem+json": document, "application/problem+json, application/json": plain,
		"application/problem+json, application/json;q=0.9": document, "application/problem+json;q=0.5, */*;q=0.1": document,
		"application/problem+json;q=0.1, */*;q=0.5": plain, "application/json;q=0, application/*": document,
		"text/html, application/problem+json;q=0.2, application/json;q=0.1999": plain, // equal in thousandths
	} {
		a := w.send("GET", jobSelf, "", "Accept", accept)
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, want, a.Header.Get("Content-Type"), accept)
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.Equal(t, "2", a.Header.Get("Retry-After"))
		require.Equal(t, "de", a.Header.Get("Content-Language"))
		if want == document {
			require.JSONEq(t, failureDocument, a.text)
			require.Equal(t, `W/"9-document"`, a.Header.Get("ETag"))
		}
	}
	w.jobs.job = finishedJob
	a := w.send("GET", jobSelf, "", "Accept", document)
	require.Equal(t, plain, a.Header.Get("Content-Type"), "nothing failed")
	require.Empty(t, a.Header.Get("Content-Language"))
	require.Contains(t, a.text, `"jobStatus":"COMPLETED"`)
	require.NotContains(t, a.text, "job_id", "never both spellings in one object")
}

func TestJobTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]string{}
	for name, change := range map[string]func(*job.Job){
		"as it is":      func(*job.Job) {},
		"another event": func(j *job.Job) { j.EventSeq++ },
		"expired":       func(j *job.Job) { j.Result.ExpiresAt = now },
		"running":       func(j *job.Job) { j.State, j.EventSeq = job.Running, 4 },
		"progress":      func(j *job.Job) { j.State, j.EventSeq, j.Progress = job.Running, 4, &job.Progress{UpdatedAt: now} },
		"more progress": func(j *job.Job) {
			j.State, j.EventSeq, j.Progress = job.Running, 4, &job.Progress{UpdatedAt: now.Add(time.Microsecond)}
		},
		"queued":     func(j *job.Job) { j.State, j.EventSeq, j.Waiting = job.Queued, 2, job.WaitingQueue },
		"no workers": func(j *job.Job) { j.State, j.EventSeq, j.Waiting = job.Queued, 2, job.WaitingNoWorkers },
	} {
		w.changed(change)
		tag := func(accept string) string { return w.send("GET", jobSelf, "", "Accept", accept).Header.Get("ETag") }
		got := tag("application/json")
		require.Regexp(t, `^W/"[0-9A-Za-z_-]+"$`, got)
		require.Empty(t, seen[got], name)
		seen[got] = name
		require.Empty(t, seen[tag("application/problem+json")], name)
		require.Equal(t, got, tag("*/*"))
	}
}

// changed makes the job one that succeeded, but for a change.
func (w *world) changed(change func(*job.Job)) {
	w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
		j, err := finishedJob(ctx, client, id)
		change(j)
		return j, err
	}
}

func TestWaitingProgressAndEstimates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.TimeScale, c.RetentionJobs = 2, time.Hour })
	show := func(change func(*job.Job)) string {
		w.changed(change)
		return w.send("GET", jobSelf, "").text
	}
	text := show(func(j *job.Job) {
		j.State, j.FinishedAt, j.Waiting, j.BatchID = job.Created, nil, job.WaitingScheduled, batchID
	})
	require.Contains(t, text, `"waiting":{"reason":"SCHEDULED","until":"2030-01-31T12:00:00.123456Z"}`)
	require.Contains(t, text, `"estimated_completion":"2030-01-31T12:00:02.123456Z"`)
	require.Contains(t, text, `"expires_at":null`)
	require.Contains(t, text, `"batch_id":"`+batchID.String()+`"`)
	require.Contains(t, text, `"batch":"`+batchSelf+`"`)
	require.NotContains(t, text, `"progress"`)
	require.NotContains(t, text, `"result"`)

	progress := &job.Progress{Percentage: 40, Phase: "render", StepsCompleted: 2, StepsTotal: 5, ItemsProcessed: 4, ItemsTotal: 10,
		UpdatedAt: now.In(time.FixedZone("x", 3600))}
	text = show(func(j *job.Job) { j.State, j.FinishedAt, j.Progress = job.Running, nil, progress })
	require.Contains(t, text,
		`"progress":{"percentage":40,"phase":"render","steps_completed":2,"steps_total":5,"items_processed":4,"items_total":10,`+
			`"updated_at":"2030-01-31T12:00:00.123456Z"}`)
	require.Contains(t, text, `"estimated_completion":"2030-01-31T12:00:03.123456Z"`)
	require.NotContains(t, text, `"waiting"`)

	text = show(func(j *job.Job) { j.Progress, j.Waiting = progress, job.WaitingQueue })
	require.NotContains(t, text, `"progress"`, "of an attempt that has ended")
	require.NotContains(t, text, `"waiting"`)
	require.Contains(t, text, `"expires_at":"2030-01-31T13:00:02.123456Z"`)

	text = show(func(j *job.Job) { j.Result.ExpiresAt = now })
	require.Contains(t, text, `"result":{"state":"EXPIRED","expired_at":"2030-01-31T12:00:00.123456Z"}`)
	require.NotContains(t, text, "/result")
	require.Empty(t, w.send("GET", jobSelf, "").Header.Get("Link"))
	text = show(func(j *job.Job) { j.Result.Removed = true })
	require.Contains(t, text, `"state":"EXPIRED"`)
	text = show(func(j *job.Job) { j.Result = nil })
	require.NotContains(t, text, `"result":`)
}
