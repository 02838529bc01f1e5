package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
)

// Promise: draft 3.1
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

const resultText = "0123456789"

func storedResult(context.Context, job.ID, job.ID) (*job.StoredResult, error) {
	body := []byte(resultText)
	return &job.StoredResult{
		Result:    job.Result{MediaType: "text/plain; charset=utf-8", Body: body, SHA256: sha256.Sum256(body)},
		ExpiresAt: now.Add(90*time.Second + 700*time.Millisecond),
	}, nil
}

// resultTag is the strong entity tag of storedResult.
func resultTag() string {
	sum := sha256.Sum256([]byte(resultText))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func TestResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := views.ResultPath(jobID)
	w.send("GET", path, "").requireProblem(t, job.CodeJobNotFound)
	w.jobs.result = storedResult
	a := w.send("GET", path, "")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, resultText, a.text)
	for name, value := range map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "Content-Length": "10", "ETag": resultTag(), "Accept-Ranges": "bytes",
		"Repr-Digest": digestOf(resultText), "Content-Digest": digestOf(resultText),
		"Cache-Control": "private, max-age=90", "Expires": "Thu, 31 Jan 2030 12:01:30 GMT", "X-Content-Type-Options": "nosniff",
		"Vary": "Accept, Authorization", "Content-Range": "",
	} {
		require.Equal(t, value, a.Header.Get(name), name)
	}
	head := w.send("HEAD", path, "", "Range", "bytes=0-1")
	require.Equal(t, 200, head.StatusCode, "only GET has ranges")
	require.Equal(t, "10", head.Header.Get("Content-Length"))
	require.Empty(t, head.text)
	for accept, status := range map[string]int{
		"-": 200, "text/*": 200, "text/plain;q=0.1, text/html": 200,
		"application/json": 406, "text/html": 406, "text/plain;q=0": 406, "text/plain;q=0, */*": 406,
	} {
		require.Equal(t, status, w.send("GET", path, "", "Accept", accept).StatusCode, accept)
	}
}

func TestRangesOfAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.result = storedResult
	for header, test := range map[string]struct {
		status             int
		text, contentRange string
	}{
		"bytes=2-4": {206, "234", "bytes 2-4/10"}, "bytes=7-99": {206, "789", "bytes 7-9/10"}, "bytes=0-": {206, resultText, "bytes 0-9/10"},
		"bytes=10-": {416, "", "bytes */10"}, "bytes=0-1,3-4": {200, resultText, ""}, "items=1-2": {200, resultText, ""},
	} {
		a := w.send("GET", views.ResultPath(jobID), "", "Range", header)
		require.Equal(t, test.status, a.StatusCode, header)
		require.Equal(t, test.contentRange, a.Header.Get("Content-Range"), header)
		if test.status == 416 {
			p := a.problem(t)
			require.Equal(t, job.CodeMalformed, p.Code)
			require.Contains(t, p.Detail, "some of the result's 10 bytes")
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			continue
		}
		require.Equal(t, test.text, a.text, header)
		require.Equal(t, []string{strconv.Itoa(len(test.text)), digestOf(test.text), digestOf(resultText), resultTag()}, []string{
			a.Header.Get("Content-Length"), a.Header.Get("Content-Digest"), a.Header.Get("Repr-Digest"), a.Header.Get("ETag")})
	}
	w.jobs.result = func(context.Context, job.ID, job.ID) (*job.StoredResult, error) {
		return &job.StoredResult{Result: job.Result{MediaType: "text/plain", SHA256: sha256.Sum256(nil)}, ExpiresAt: now.Add(-time.Second)}, nil
	}
	for _, header := range []string{"", "bytes=0-", "bytes=-1", "bytes=-0"} {
		a := w.send("GET", views.ResultPath(jobID), "", "Range", header)
		require.Equal(t, 200, a.StatusCode, "no range of nothing")
		require.Empty(t, a.text)
		require.Equal(t, digestOf(""), a.Header.Get("Content-Digest"))
		require.Equal(t, "private, max-age=0", a.Header.Get("Cache-Control"))
	}
}

func TestConditionsOnAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.result = storedResult
	tag := resultTag()
	for name, values := range map[string]map[string]int{ // statuses with Range: bytes=0-1
		"If-None-Match":       {tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 206, "": 206},
		"If-Match":            {tag: 206, `"x",` + tag: 206, "*": 206, "W/" + tag: 412, `"x"`: 412, "x": 412},
		"If-Range":            {tag: 206, "W/" + tag: 200, `"x"`: 200, "*": 200, tag + ", " + tag: 200, "Thu, 31 Jan 2030 12:01:30 GMT": 200},
		"If-Modified-Since":   {"Thu, 31 Jan 2030 12:01:30 GMT": 206},
		"If-Unmodified-Since": {"Thu, 31 Jan 2000 12:01:30 GMT": 206},
	} {
		for value, status := range values {
			a := w.send("GET", views.ResultPath(jobID), "", "Range", "bytes=0-1", name, value)
			require.Equal(t, status, a.StatusCode, "%s: %s", name, value)
			switch status {
			case 304:
				require.Empty(t, a.text)
				require.Equal(t, tag, a.Header.Get("ETag"))
				require.Equal(t, "private, max-age=90", a.Header.Get("Cache-Control"))
				require.NotEmpty(t, a.Header.Get("Expires"))
			case 412:
				require.Equal(t, job.CodeMalformed, a.problem(t).Code)
			case 206:
				require.Equal(t, "01", a.text)
			}
		}
	}
}

func TestGoneJobsTellSinceWhen(t *testing.T) {
	t.Parallel()
	since := now.Add(-time.Hour)
	gone := job.Errorf(job.CodeJobGone, "The job was deleted.")
	gone.ExpiredAt = &since
	w := newWorld(t)
	w.jobs.job = func(context.Context, job.ID, job.ID) (*job.Job, error) { return nil, fmt.Errorf("wrapped: %w", gone) }
	a := w.send("GET", jobSelf, "")
	a.requireProblem(t, job.CodeJobGone)
	require.Contains(t, a.text, `"expired_at":"2030-01-31T11:00:00.123456Z"`)
	gone.ExpiredAt = nil
	require.NotContains(t, w.send("GET", jobSelf, "").text, "expired_at")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var client, id job.ID
	var err error
	w.jobs.remove = func(_ context.Context, c, i job.ID) (struct{}, error) { client, id = c, i; return struct{}{}, err }
	for _, body := range []string{"", "{}"} {
		a := w.send("DELETE", jobSelf, body)
		require.Equal(t, 204, a.StatusCode)
		require.Empty(t, a.text)
		require.Empty(t, a.Header.Get("Content-Type"))
		require.Equal(t, []job.ID{clientA, jobID}, []job.ID{client, id})
	}
	w.send("DELETE", jobSelf, `{"a":1}`).requireProblem(t, job.CodeMalformed)
	w.send("DELETE", views.JobPath(job.ID{}), "")
	require.Zero(t, id)
	err = job.Errorf(job.CodeConflict, "The job is RUNNING; cancel it first.")
	w.send("DELETE", jobSelf, "").requireProblem(t, job.CodeConflict)
}
