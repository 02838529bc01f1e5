package handlers

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// A condition that does not hold keeps every change from being made, and no other request from being answered as ever.
func TestConditionsOnChanges(t *testing.T) {
	t.Parallel()
	const date = "Thu, 31 Jan 2000 12:01:30 GMT" // before everything
	shown := newWorld(t).server.shown
	for _, rt := range newWorld(t).server.routes() {
		if rt.method == get {
			continue
		}
		t.Run(rt.method+" "+rt.path, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).full()
			there, tag := shown[rt.path] != nil, ""
			if there && !strings.HasSuffix(shown[rt.path].path, "/faults/:id") {
				tag = w.send(get, examplePath(*shown[rt.path]), "").Header.Get("ETag")
			}
			held := map[bool]int{true: rt.success, false: 412}
			for _, test := range []struct {
				name, value string
				status      int
			}{
				{"If-Match", "*", held[there]}, {"If-Match", `"bogus"`, 412}, {"If-Match", "bogus", 412}, {"If-Match", `"a", *, "b"`, 412},
				{"If-Match", ",", 412}, {"If-Match", "", 412}, {"If-None-Match", "", rt.success}, {"If-Match", `"bogus", ` + tag, 412},
				{"If-Match", strings.TrimPrefix(tag, "W/") + ",", 412},
				{"If-None-Match", "*", held[!there]}, {"If-None-Match", `"bogus"`, rt.success}, {"If-None-Match", tag + " , x", held[tag == ""]},
				{"If-None-Match", `"a", *`, rt.success}, {"If-Unmodified-Since", date, rt.success}, {"If-Modified-Since", date, rt.success},
			} {
				a := w.try(rt, test.name, test.value)
				require.Equal(t, test.status, a.StatusCode, "%s: %s: %s", test.name, test.value, a.text)
				if test.status == 412 {
					require.Equal(t, job.CodeMalformed, a.problem(t).Code)
					require.Empty(t, a.Header.Get("ETag"))
				}
			}
			require.Equal(t, 412, w.try(rt, "If-Match", "*", "If-None-Match", "*", "Prefer", "wait=1").StatusCode, "both must hold")
		})
	}
}

// What is refused for its condition has no effect, and is refused before its body is looked at, but after all else.
func TestConditionsComeLastAndBeforeTheWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done := 0
	w.jobs.job, w.lookups.strict = finishedJob, true
	w.jobs.remove = func(context.Context, job.ID, job.ID) (struct{}, error) { done++; return struct{}{}, nil }
	a := w.send("DELETE", jobSelf, "", "If-Match", `W/"9"`)
	require.Equal(t, 412, a.StatusCode)
	require.Contains(t, a.problem(t).Detail, "no strong entity tag")
	require.Equal(t, 412, w.send("DELETE", jobSelf, "not JSON", "If-Match", `"9"`).StatusCode)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Authorization", "-").requireProblem(t, job.CodeInvalidCredentials)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Authorization", "Bearer read").requireProblem(t, job.CodeForbidden)
	w.send("DELETE", jobSelf, "", "If-Match", `"9"`, "Accept", "text/csv").requireProblem(t, job.CodeNotAcceptable)
	w.send("DELETE", jobSelf+"?x=1", "", "If-Match", `"9"`).requireProblem(t, job.CodeMalformed)
	w.send("DELETE", jobPath(webhookID), "", "If-Match", `"9"`).requireProblem(t, job.CodeJobNotFound)
	w.send("PUT", jobSelf, "", "If-Match", `"9"`).requireProblem(t, job.CodeMethodNotAllowed)
	require.Zero(t, done)
	require.Equal(t, 204, w.send("DELETE", jobSelf, "", "If-Match", "*").StatusCode)
	require.Equal(t, 1, done)
	w.jobs.job = nil
	require.Equal(t, 204, w.send("DELETE", jobSelf, "", "If-Match", "*").StatusCode, "it was done already")
}

// GET has the same conditions: what it would answer must have one of the tags.
func TestIfMatchOfGet(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, rt := range w.server.routes() {
		if rt.method != get {
			continue
		}
		path := examplePath(rt)
		tag := w.send(get, path, "").Header.Get("ETag")
		for _, method := range []string{get, "HEAD"} {
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
