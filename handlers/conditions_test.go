package handlers

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
)

// A condition that does not hold keeps every change from being made, and no other request from being answered as ever.
func TestConditionsOnChanges(t *testing.T) {
	t.Parallel()
	const date = "Thu, 31 Jan 2000 12:01:30 GMT" // before everything
	shown := newWorld(t).server.Shown
	for _, rt := range newWorld(t).server.Routes {
		if rt.Method == httpkit.Get {
			continue
		}
		t.Run(rt.Method+" "+rt.Path, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).full()
			there, tag := shown[rt.Path] != nil, ""
			if there && !strings.HasSuffix(shown[rt.Path].Path, "/faults/:id") {
				tag = w.send(httpkit.Get, examplePath(*shown[rt.Path]), "").Header.Get("ETag")
			}
			held := map[bool]int{true: rt.Success, false: 412}
			for _, test := range []struct {
				name, value string
				status      int
			}{
				{"If-Match", "*", held[there]}, {"If-Match", `"bogus"`, 412}, {"If-Match", "bogus", 412}, {"If-Match", `"a", *, "b"`, 412},
				{"If-Match", ",", 412}, {"If-Match", "", 412}, {"If-None-Match", "", rt.Success}, {"If-Match", `"bogus", ` + tag, 412},
				{"If-Match", strings.TrimPrefix(tag, "W/") + ",", 412},
				{"If-None-Match", "*", held[!there]}, {"If-None-Match", `"bogus"`, rt.Success}, {"If-None-Match", tag + " , x", held[tag == ""]},
				{"If-None-Match", `"a", *`, rt.Success}, {"If-Unmodified-Since", date, rt.Success}, {"If-Modified-Since", date, rt.Success},
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
	w.send("DELETE", views.JobPath(webhookID), "", "If-Match", `"9"`).requireProblem(t, job.CodeJobNotFound)
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
