package main

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The whole life of a job as a client sees it: submit, watch, see progress,
// see the end, download the result, lose it by its time, delete the job.
func TestEndToEndFlow(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "1"}) // LARGE_OUTPUT takes 9 s
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)

	// 1. The client submits a job and receives 202 with its id and address.
	submitted := u.trySubmit(api, execute("LARGE_OUTPUT", `"params":{"format":"csv"}`),
		"Idempotency-Key", "8d0bb8a6", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Prefer", "respond-async")
	require.Equal(t, http.StatusAccepted, submitted.status, submitted.body)
	path := submitted.header.Get("Location")
	require.Equal(t, "/v1/jobs/"+submitted.text("job_id"), path)
	require.Equal(t, `<`+path+`>; rel="status"`, submitted.header.Get("Link"))
	require.Equal(t, "respond-async", submitted.header.Get("Preference-Applied"))

	// 2. It polls, as often as it is told to, and opens a stream.
	polled := u.call(api, "GET", path, "")
	require.Equal(t, http.StatusOK, polled.status, polled.body)
	require.NotEmpty(t, polled.header.Get("Retry-After"))
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", polled.text("correlation_id"))
	watching := u.stream(api, path+"/events", "")
	require.Equal(t, http.StatusOK, watching.status)
	require.Equal(t, "text/event-stream", watching.header.Get("Content-Type"))

	// 3. It sees progress, on the stream and by polling, never backwards.
	seen := -1.0
	first := watching.until("job-progress")
	require.Equal(t, []string{"job-created", "job-queued", "job-assigned", "job-running"}, frameNames(first))
	polled = u.call(api, "GET", path, "")
	require.Equal(t, "RUNNING", polled.text("state"), polled.body)
	require.NotNil(t, polled.value("progress.percentage"), polled.body)
	require.NotEmpty(t, polled.text("estimated_completion"))
	rest := watching.rest()
	for _, f := range append(first, rest...) {
		if f.event == "job-progress" {
			percentage := f.value("progress.percentage").(float64)
			require.Greater(t, percentage, seen)
			require.Empty(t, f.id, "progress is not resumed")
			seen = percentage
		}
	}
	require.Equal(t, 100.0, seen)

	// 4. The job completes; the stream's last event is its outcome document.
	last := rest[len(rest)-1]
	require.Equal(t, "job-succeeded", last.event)
	require.Equal(t, "COMPLETED", last.text("jobStatus"))
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", last.text("correlationId"))
	done := u.call(api, "GET", path, "")
	require.Equal(t, "SUCCEEDED", done.text("state"), done.body)
	require.Empty(t, done.header.Get("Retry-After"))
	require.Equal(t, http.StatusNotModified, u.call(api, "GET", path, "", "If-None-Match", done.header.Get("ETag")).status)
	require.Equal(t, "AVAILABLE", done.text("result.state"))
	report := u.call(api, "GET", path+"/report", "")
	require.Equal(t, "SUCCESS", report.text("outcome"), report.body)

	// 5. The client downloads the result, and checks it.
	result := u.call(api, "GET", done.text("result.download_url"), "")
	require.Equal(t, http.StatusOK, result.status)
	require.Equal(t, done.text("result.media_type"), result.header.Get("Content-Type"))
	require.Len(t, result.body, int(done.value("result.size_bytes").(float64)))
	sum := sha256.Sum256([]byte(result.body))
	require.Equal(t, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":", result.header.Get("Content-Digest"))
	require.Regexp(t, `^private, max-age=\d+$`, result.header.Get("Cache-Control"))
	expires, err := http.ParseTime(result.header.Get("Expires"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), expires, time.Hour)
	part := u.call(api, "GET", path+"/result", "", "Range", "bytes=10-19")
	require.Equal(t, http.StatusPartialContent, part.status)
	require.Equal(t, result.body[10:20], part.body)
	require.Equal(t, "bytes 10-19/"+strconv.Itoa(len(result.body)), part.header.Get("Content-Range"))

	// 6. The result expires; the job stays and says so.
	s.exec(`UPDATE results SET expires_at = clock_timestamp()`) // as if the time had passed
	eventually(t, "the result expires", func() bool {
		return u.call(api, "GET", path+"/result", "").status == http.StatusGone
	})
	gone := u.call(api, "GET", path+"/result", "")
	gone.requireProblem(t, http.StatusGone, "RFA_RESULT_GONE")
	require.NotEmpty(t, gone.text("expired_at"))
	expired := u.call(api, "GET", path, "")
	require.Equal(t, "EXPIRED", expired.text("result.state"), expired.body)
	require.NotEqual(t, done.header.Get("ETag"), expired.header.Get("ETag"))

	// 7. The client deletes the job, which is safe to repeat; it is gone for
	// its owner and never was for anybody else.
	for range 2 {
		deleted := u.call(api, "DELETE", path, "")
		require.Equal(t, http.StatusNoContent, deleted.status, deleted.body)
		require.Empty(t, deleted.body)
	}
	gone = u.call(api, "GET", path, "")
	gone.requireProblem(t, http.StatusGone, "RFA_JOB_GONE")
	require.NotEmpty(t, gone.text("expired_at"))
	s.newUser(api).call(api, "GET", path, "").requireProblem(t, http.StatusNotFound, "RFA_JOB_NOT_FOUND")
}
