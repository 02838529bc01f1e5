package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

// Promise: draft 3.1
func TestDraftView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failBatch()
	const document, plain = "application/problem+json", "application/json"
	for accept, want := range map[string]string{
		"-": plain, "*/*": plain, "application/problem+json": document, "application/problem+json, application/json": plain,
		"application/problem+json, application/json;q=0.9": document, "application/problem+json;q=0.5, */*;q=0.1": document,
		"application/problem+json;q=0.1, */*;q=0.5": plain, "application/json;q=0, application/*": document,
		"text/html, application/problem+json;q=0.2, application/json;q=0.1999": plain, // 0.1999 is rounded to 0.2
	} {
		for path, member := range map[string]string{failedSelf: `"job_id"`, batchSelf: `"batch_id"`} {
			a := w.send("GET", path, "", "Accept", accept)
			require.Equal(t, want, a.Header.Get("Content-Type"), accept)
			require.NotEqual(t, want == document, strings.Contains(a.text, member), "never both spellings in one object")
		}
	}
}

func TestJobTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]string{}
	progress := func(percentage int, at time.Time) {
		w.Exec(running+` WHERE job_id = $1`, backend.Job.String())
		p := &job.Progress{Percentage: percentage, UpdatedAt: job.Time(at)}
		w.Queue.Publish(job.Notification{JobID: backend.Job, Attempt: 1, Progress: p})
	}
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"unchanged", func() {}},
		{"another event", func() { w.Exec(`UPDATE jobs SET event_seq = event_seq + 1`) }},
		{"expired", func() { w.Exec(`UPDATE results SET expires_at = '2030-01-31 12:00Z'`) }},
		{"running", func() { w.Exec(running+` WHERE job_id = $1`, backend.Job.String()) }},
		{"progress", func() { progress(1, now) }}, {"more progress", func() { progress(2, now.Add(time.Microsecond)) }},
		{"scheduled", func() { w.Exec(scheduled+`, worker_id = NULL WHERE job_id = $1`, backend.Job.String()) }},
	} {
		step.change()
		tag := func(accept string) string { return w.send("GET", jobSelf, "", "Accept", accept).Header.Get("ETag") }
		got := tag("application/json")
		require.Regexp(t, `^W/"[0-9A-Za-z_-]+"$`, got)
		require.Empty(t, seen[got], step.name)
		seen[got] = step.name
		require.NotEqual(t, got, tag("application/problem+json"), step.name)
		require.Equal(t, got, tag("*/*"))
	}
}

const resultText = "0123456789"

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
	path := jobSelf + "/result"
	a := w.send("GET", path, "").requireStatus(t, 200)
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
	for header, test := range map[string]struct {
		status             int
		text, contentRange string
	}{
		"bytes=2-4": {206, "234", "bytes 2-4/10"}, "bytes=7-99": {206, "789", "bytes 7-9/10"},
		"bytes=10-": {416, "", "bytes */10"}, "bytes=0-1,3-4": {200, resultText, ""},
	} {
		a := w.send("GET", jobSelf+"/result", "", "Range", header)
		require.Equal(t, test.status, a.StatusCode, header)
		require.Equal(t, test.contentRange, a.Header.Get("Content-Range"), header)
		if test.status == 416 {
			require.Contains(t, a.problem(t).Detail, "some of the result's 10 bytes")
			continue
		}
		require.Equal(t, test.text, a.text, header)
		require.Equal(t, []string{strconv.Itoa(len(test.text)), digestOf(test.text), digestOf(resultText), resultTag()}, []string{
			a.Header.Get("Content-Length"), a.Header.Get("Content-Digest"), a.Header.Get("Repr-Digest"), a.Header.Get("ETag")})
	}
	w.Exec(`UPDATE results SET body = '', size = 0, sha256 = sha256(''), expires_at = '2030-01-31 12:00Z'`)
	for _, header := range []string{"", "bytes=0-", "bytes=-0"} {
		a := w.send("GET", jobSelf+"/result", "", "Range", header)
		require.Equal(t, []any{200, "", "private, max-age=0"}, []any{a.StatusCode, a.text, a.Header.Get("Cache-Control")}, "no ranges")
	}
}

func TestConditionsOnAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tag := resultTag()
	for name, values := range map[string]map[string]int{ // expected statuses with Range: bytes=0-1
		"If-None-Match":       {tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 206, "": 206},
		"If-Match":            {tag: 206, `"x",` + tag: 206, "*": 206, "W/" + tag: 412, `"x"`: 412, "x": 412},
		"If-Range":            {tag: 206, "W/" + tag: 200, `"x"`: 200, "*": 200, tag + ", " + tag: 200, "Thu, 31 Jan 2030 12:01:30 GMT": 200},
		"If-Modified-Since":   {"Thu, 31 Jan 2030 12:01:30 GMT": 206},
		"If-Unmodified-Since": {"Thu, 31 Jan 2000 12:01:30 GMT": 206},
	} {
		for value, status := range values {
			a := w.send("GET", jobSelf+"/result", "", "Range", "bytes=0-1", name, value)
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

// If a condition fails, the change is not made. Otherwise the condition has no effect.
func TestConditionsOnChanges(t *testing.T) {
	t.Parallel()
	const date = "Thu, 31 Jan 2000 12:01:30 GMT" // before all changes
	w := newWorld(t)
	for _, rt := range w.server.Routes {
		if rt.Method == httpkit.Get {
			continue
		}
		shown := w.server.Shown[rt.Path]
		there, tag := shown != nil, ""
		if there && !strings.HasSuffix(shown.Path, "/faults/:id") {
			shown := *shown
			shown.Action = rt.Action
			tag = w.try(httpkit.Route{Method: httpkit.Get, Path: shown.Path, Action: rt.Action}).Header.Get("ETag")
		}
		held := map[bool]int{true: rt.Success, false: 412}
		for _, test := range []struct {
			name, value string
			status      int
		}{
			{"If-Match", "*", held[there]}, {"If-Match", `"bogus"`, 412}, {"If-Match", "", 412}, {"If-Match", `"bogus", ` + tag, 412},
			{"If-None-Match", "*", held[!there]}, {"If-None-Match", tag + " , x", held[tag == ""]}, {"If-Unmodified-Since", date, rt.Success},
		} {
			a := w.try(rt, test.name, test.value)
			require.Equal(t, test.status, a.StatusCode, "%s %s: %s: %s: %s", rt.Method, rt.Path, test.name, test.value, a.text)
			if test.status == 412 {
				require.Equal(t, job.CodeMalformed, a.problem(t).Code)
				require.Empty(t, a.Header.Get("ETag"))
			}
		}
		require.Equal(t, 412, w.try(rt, "If-Match", "*", "If-None-Match", "*", "Prefer", "wait=1").StatusCode, "both conditions must hold")
	}
}

// A request with a failed condition has no effect. The condition is checked before the body, but after everything else.
func TestConditionsAreCheckedLastBeforeBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("DELETE", jobSelf, "", "If-Match", `W/"9"`).requireStatus(t, 412)
	require.Contains(t, a.problem(t).Detail, "needs a strong entity tag")
	require.Equal(t, 412, w.send("DELETE", jobSelf, "not JSON", "If-Match", `"9"`).StatusCode)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Authorization", "-").requireProblem(t, job.CodeInvalidCredentials)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Authorization", "Bearer "+backend.ReaderKey).requireProblem(t, job.CodeForbidden)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Accept", "text/csv").requireProblem(t, job.CodeNotAcceptable)
	w.send("DELETE", jobSelf+"?x=1", "", "If-Match", `"9"`).requireProblem(t, job.CodeMalformed)
	w.send("DELETE", nobodysSelf, "", "If-Match", `"9"`).requireProblem(t, job.CodeJobNotFound)
	w.send("PUT", jobSelf, "", "If-Match", `"9"`).requireProblem(t, job.CodeMethodNotAllowed)
	require.Equal(t, 204, w.send("DELETE", jobSelf, "", "If-Match", "*").StatusCode)
	require.Equal(t, 204, w.send("DELETE", jobSelf, "", "If-Match", "*").StatusCode, "the job is already deleted")
}

func TestIfMatchOfGet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, rt := range w.server.Routes {
		if rt.Method != httpkit.Get {
			continue
		}
		path := examplePath(rt)
		tag := w.send(httpkit.Get, path, "").Header.Get("ETag")
		for _, method := range []string{httpkit.Get, "HEAD"} {
			require.Equal(t, 200, w.send(method, path, "", "If-Match", "*").StatusCode, path)
			require.Equal(t, 412, w.send(method, path, "", "If-Match", `"x"`).StatusCode, path)
			named := w.send(method, path, "", "If-Match", `"x",`+tag)
			require.Equal(t, map[bool]int{true: 200, false: 412}[strings.HasPrefix(tag, `"`)], named.StatusCode, path)
			if named.StatusCode == 412 {
				require.Empty(t, named.Header.Get("ETag"))
			}
		}
	}
}
