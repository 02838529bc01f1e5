package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
	w.jobs.result = storedResult
	a := w.send("GET", resultPath(jobID), "")
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
	head := w.send("HEAD", resultPath(jobID), "", "Range", "bytes=0-1")
	require.Equal(t, 200, head.StatusCode, "only GET has ranges")
	require.Equal(t, "10", head.Header.Get("Content-Length"))
	require.Empty(t, head.text)
}

func TestRangesOfAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.result = storedResult
	tests := []struct{ header, want, contentRange string }{
		{"bytes=0-0", "0", "bytes 0-0/10"},
		{"bytes=2-4", "234", "bytes 2-4/10"},
		{"bytes=7-", "789", "bytes 7-9/10"},
		{"bytes=7-99", "789", "bytes 7-9/10"},
		{"bytes=7-99999999999999999999999999", "789", "bytes 7-9/10"},
		{"bytes=-3", "789", "bytes 7-9/10"},
		{"bytes=-99", resultText, "bytes 0-9/10"},
		{"bytes=-99999999999999999999999999", resultText, "bytes 0-9/10"},
		{"bytes=0-", resultText, "bytes 0-9/10"},
		{"Bytes=2-4", "234", "bytes 2-4/10"},
		{"bytes= 2-4 ", "234", "bytes 2-4/10"},
		{"bytes=,2-4,,", "234", "bytes 2-4/10"},
		{"bytes=002-0004", "234", "bytes 2-4/10"},
		// Outside.
		{"bytes=10-", "", "bytes */10"},
		{"bytes=10-12", "", "bytes */10"},
		{"bytes=99999999999999999999999999-", "", "bytes */10"},
		{"bytes=99999999999999999999999998-99999999999999999999999999", "", "bytes */10"},
		{"bytes=-0", "", "bytes */10"},
		{"bytes=-00", "", "bytes */10"},
		// Ignored.
		{"bytes=0-1,3-4", resultText, ""},
		{"bytes=0-1,x", resultText, ""},
		{"bytes=4-2", resultText, ""},
		{"bytes=99999999999999999999999999-9999999999999999999999999", resultText, ""},
		{"bytes=", resultText, ""},
		{"bytes=-", resultText, ""},
		{"bytes=--1", resultText, ""},
		{"bytes=1", resultText, ""},
		{"bytes=a-b", resultText, ""},
		{"bytes=+1-2", resultText, ""},
		{"bytes=1 -2", resultText, ""},
		{"bytes=1-2-3", resultText, ""},
		{"bytes=0x1-2", resultText, ""},
		{"bytes=1.0-2", resultText, ""},
		{"bytes =1-2", resultText, ""},
		{"bytes 1-2", resultText, ""},
		{"bytes:1-2", resultText, ""},
		{"items=1-2", resultText, ""},
		{"1-2", resultText, ""},
		{"", resultText, ""},
		{"bytes=\u0661-2", resultText, ""},
		{"bytes=" + strings.Repeat("0-0,", 2000), resultText, ""},
	}
	for _, test := range tests {
		a := w.send("GET", resultPath(jobID), "", "Range", test.header)
		require.Equal(t, test.contentRange, a.Header.Get("Content-Range"), test.header)
		switch {
		case test.want == "":
			p := a.problem(t)
			require.Equal(t, 416, p.Status, test.header)
			require.Equal(t, job.CodeMalformed, p.Code)
			require.Contains(t, p.Detail, "some of the result's 10 bytes")
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			continue
		case test.contentRange == "":
			require.Equal(t, 200, a.StatusCode, test.header)
		default:
			require.Equal(t, 206, a.StatusCode, test.header)
		}
		require.Equal(t, test.want, a.text, test.header)
		require.Equal(t, fmt.Sprint(len(test.want)), a.Header.Get("Content-Length"))
		require.Equal(t, digestOf(test.want), a.Header.Get("Content-Digest"))
		require.Equal(t, digestOf(resultText), a.Header.Get("Repr-Digest"))
		require.Equal(t, resultTag(), a.Header.Get("ETag"))
	}
}

func TestEmptyResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.result = func(context.Context, job.ID, job.ID) (*job.StoredResult, error) {
		return &job.StoredResult{Result: job.Result{MediaType: "text/plain", SHA256: sha256.Sum256(nil)}, ExpiresAt: now.Add(-time.Second)}, nil
	}
	for _, header := range []string{"", "bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"} {
		a := w.send("GET", resultPath(jobID), "", "Range", header)
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
	tests := []struct {
		name, value string
		status      int // with Range: bytes=0-1
	}{
		{"If-None-Match", tag, 304},
		{"If-None-Match", "W/" + tag, 304},
		{"If-None-Match", `"x", ` + tag, 304},
		{"If-None-Match", "*", 304},
		{"If-None-Match", `"x"`, 206},
		{"If-None-Match", "", 206},
		{"If-Match", tag, 206},
		{"If-Match", `"x",` + tag, 206},
		{"If-Match", "*", 206},
		{"If-Match", "W/" + tag, 412},
		{"If-Match", `"x"`, 412},
		{"If-Match", "x", 412},
		{"If-Range", tag, 206},
		{"If-Range", "W/" + tag, 200},
		{"If-Range", `"x"`, 200},
		{"If-Range", "*", 200},
		{"If-Range", tag + ", " + tag, 200},
		{"If-Range", "Thu, 31 Jan 2030 12:01:30 GMT", 200},
		{"If-Modified-Since", "Thu, 31 Jan 2030 12:01:30 GMT", 206},
		{"If-Unmodified-Since", "Thu, 31 Jan 2000 12:01:30 GMT", 206},
	}
	for _, test := range tests {
		a := w.send("GET", resultPath(jobID), "", "Range", "bytes=0-1", test.name, test.value)
		require.Equal(t, test.status, a.StatusCode, "%s: %s", test.name, test.value)
		switch test.status {
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

func TestAcceptOfAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.result = storedResult
	for accept, status := range map[string]int{
		"-": 200, "*/*": 200, "text/*": 200, "text/plain": 200, "text/plain;q=0.1, text/html": 200,
		"application/json": 406, "text/html": 406, "text/plain;q=0": 406, "text/plain;q=0, */*": 406,
	} {
		require.Equal(t, status, w.send("GET", resultPath(jobID), "", "Accept", accept).StatusCode, accept)
	}
}

func TestNoResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", resultPath(jobID), "").requireProblem(t, job.CodeJobNotFound)

	since := now.Add(-time.Hour)
	w.jobs.result = func(context.Context, job.ID, job.ID) (*job.StoredResult, error) {
		err := job.Errorf(job.CodeResultGone, "The result has expired.")
		err.ExpiredAt = &since
		return nil, err
	}
	a := w.send("GET", resultPath(jobID), "")
	a.requireProblem(t, job.CodeResultGone)
	require.Contains(t, a.text, `"expired_at":"2030-01-31T11:00:00.123456Z"`)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
}

func TestGoneJobsTellSinceWhen(t *testing.T) {
	t.Parallel()
	since := now.Add(-time.Hour)
	gone := job.Errorf(job.CodeJobGone, "The job was deleted.")
	gone.ExpiredAt = &since
	w := newWorld(t)
	w.jobs.job = func(context.Context, job.ID, job.ID) (*job.Job, error) { return nil, fmt.Errorf("wrapped: %w", gone) }
	a := w.send("GET", jobPath(jobID), "")
	a.requireProblem(t, job.CodeJobGone)
	require.Contains(t, a.text, `"expired_at":"2030-01-31T11:00:00.123456Z"`)

	gone.ExpiredAt = nil
	require.NotContains(t, w.send("GET", jobPath(jobID), "").text, "expired_at")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var client, id job.ID
	var err error
	w.jobs.remove = func(_ context.Context, c, i job.ID) error { client, id = c, i; return err }
	for range 2 {
		a := w.send("DELETE", jobPath(jobID), "")
		require.Equal(t, 204, a.StatusCode)
		require.Empty(t, a.text)
		require.Empty(t, a.Header.Get("Content-Type"))
	}
	require.Equal(t, clientA, client)
	require.Equal(t, jobID, id)
	require.Equal(t, 204, w.send("DELETE", jobPath(jobID), "{}").StatusCode)
	w.send("DELETE", jobPath(jobID), `{"a":1}`).requireProblem(t, job.CodeMalformed)
	w.send("DELETE", jobPath(jobID)+"?force=true", "").requireProblem(t, job.CodeMalformed)
	w.send("DELETE", jobPath(job.ID{}), "")
	require.Zero(t, id)

	err = job.Errorf(job.CodeConflict, "The job is RUNNING; cancel it first.")
	w.send("DELETE", jobPath(jobID), "").requireProblem(t, job.CodeConflict)
	require.Equal(t, http.StatusMethodNotAllowed, w.send("DELETE", resultPath(jobID), "").StatusCode)
}
