package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// ending returns an API with a job that ends at the second read. `done` writes the response to this read and to later reads.
func ending(done func(w http.ResponseWriter)) http.Handler {
	var reads atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /things", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/operations/1")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /operations/1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"1"`)
		if reads.Add(1) > 1 {
			done(w)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"progress": 40, "status": "cooking"}`)
	})
	return mux
}

// The proxy can show an ended job as unfinished, regardless of how the API shows the end. A client passes if it reads on, or if it stops at
// another final state of the API.
func TestEndsAreHidden(t *testing.T) {
	t.Parallel()
	body := func(status int, kind, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", "/results/1")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	open, other := fault.Effect{Unfinished: true}, fault.Effect{OtherEnd: true}
	described := "\njob: {state: [/status], final: [done, gone]}"
	for name, c := range map[string]struct {
		api          string
		done         func(http.ResponseWriter)
		e            fault.Effect
		status       int
		want, result string // want: body of a read with the fault; result: body without the fault
	}{
		"state": {"", body(200, "application/json", `{"status": "done", "result": 7}`), open, 200,
			`{"status":"cooking"}`, `{"status": "done", "result": 7}`},
		"state, shown as an unknown one": {"", body(200, "application/json", `{"status": "done", "result": 7}`),
			fault.Effect{Unfinished: true, JobStatus: "PONDERING", Extensions: false}, 200,
			`{"status":"PONDERING"}`, `{"status": "done", "result": 7}`},
		"state, shown as another end": {described, body(200, "application/json", `{"status": "done", "result": 7}`), other, 200,
			`{"status":"gone","result":7}`, `{"status": "done", "result": 7}`},
		"200 after 202": {"", body(200, "application/json", `{"total": 3}`), open, 202,
			`{"progress":40,"status":"cooking"}`, `{"total": 3}`},
		"200 with CSV after 202": {"", body(200, "text/csv", "a,b\n"), open, 202, `{"progress":40,"status":"cooking"}`, "a,b\n"},
		"303":                    {"", body(303, "text/html", "There."), open, 202, `{"progress":40,"status":"cooking"}`, "There."},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(name, version), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, "rules: [stop-at-end, outcome-learned]"+c.api, ending(c.done))
				if version == 2 {
					b.byHTTP2()
				}
				id := b.session("")
				b.faults(fault.Rule{Match: fault.Match{Operation: "read", Nth: 2, Times: 2}, Effect: c.e})
				require.Equal(t, 202, b.do("POST", "/things", `{}`).StatusCode)
				require.Equal(t, 202, b.do("GET", "/operations/1", "").StatusCode)
				for range 2 {
					a := b.do("GET", "/operations/1", "")
					require.NoError(t, a.err)
					require.Equal(t, c.status, a.StatusCode)
					require.Equal(t, c.want, a.text)
					require.Empty(t, a.Header.Get("ETag"))
					if c.status == 202 {
						require.Equal(t, "application/json", a.Header.Get("Content-Type"))
						require.Equal(t, "1", a.Header.Get("Retry-After"))
						require.Empty(t, a.Header.Get("Location"))
					}
					if c.e.OtherEnd {
						break
					}
				}
				if !c.e.OtherEnd {
					a := b.do("GET", "/operations/1", "")
					require.Equal(t, c.result, a.text)
				}
				_, rules := b.verdict(id)
				require.Equal(t, verdict.OK, rules["stop-at-end"].Status, "%+v", rules["stop-at-end"])
				require.Equal(t, verdict.OK, rules["outcome-learned"].Status, "%+v", rules["outcome-learned"])
			})
		}
	}
}

// If no earlier response showed the job as unfinished, the proxy changes nothing.
func TestEndsThatCannotBeHidden(t *testing.T) {
	t.Parallel()
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Location", "/operations/1")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/csv")
		_, _ = io.WriteString(w, "a,b\n")
	})
	b := newBench(t, "", target)
	b.session("")
	b.faults(fault.Rule{Match: fault.Match{Operation: "read"}, Effect: fault.Effect{Unfinished: true}})
	b.do("POST", "/things", `{}`)
	a := b.do("GET", "/operations/1", "")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, "a,b\n", a.text)
}

// A read with a rewritten response never gets 304, because the proxy removes If-None-Match.
func TestRewrittenReadsAreUnconditional(t *testing.T) {
	t.Parallel()
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Modified-Since") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, `{"status": "done", "labels": [1]}`)
	})
	for text, e := range map[string]fault.Effect{
		`{"status":"processing","labels":[1]}`: {Unfinished: true}, `{"status":"done","labels":null}`: {NullOptional: true},
		"": {RetryAfterAs: fault.AsDate},
	} {
		b := newBench(t, "", target)
		b.faults(nth("GET /{any}", 1, e))
		for _, want := range []string{text, ""} {
			a := b.do("GET", "/x", "", "If-None-Match", `"1"`, "If-Modified-Since", "Tue, 01 Jan 2030 00:00:00 GMT")
			require.Equal(t, want, a.text)
			require.Equal(t, want == "", a.StatusCode == http.StatusNotModified)
		}
	}
}

// A body with a digest is not rewritten, because that would invalidate the digest.
func TestDigestsStayValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Repr-Digest", "Content-Digest", "Digest", "Content-MD5", "X-Other"} {
		b := newBench(t, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(name, "sha-256=:x:")
			_, _ = io.WriteString(w, `{"a": 1}`)
		}))
		b.faults(fault.Rule{Effect: fault.Effect{Extensions: true}})
		require.Equal(t, name == "X-Other", b.do("GET", "/x", "").text != `{"a": 1}`, name)
	}
}

// In a list, the proxy rewrites only the jobs of the session.
func TestListsAreRewritten(t *testing.T) {
	t.Parallel()
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"id": "batch_1", "status": "validating"}`)
			return
		}
		_, _ = io.WriteString(w, `{"data": [{"id": "batch_1", "status": "completed", "output_file_id": "f"},
			{"id": "b", "status": "completed"}]}`)
	})
	b := newBench(t, "openai", target)
	b.session("")
	b.do("POST", "/v1/batches", `{}`)
	b.faults(nth("list", 1, fault.Effect{Unfinished: true}), nth("list", 2, fault.Effect{OtherEnd: true}))
	require.JSONEq(t, `{"data": [{"id": "batch_1", "status": "validating"}, {"id": "b", "status": "completed"}]}`,
		b.do("GET", "/v1/batches", "").text)
	require.JSONEq(t, `{"data": [{"id": "batch_1", "status": "expired", "output_file_id": "f"}, {"id": "b", "status": "completed"}]}`,
		b.do("GET", "/v1/batches", "").text)
}

// A list may name a job by the last segment of its address, unless the segment is short or several jobs share it.
func TestListsNameJobsByLastSegment(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]verdict.Status{"0190-abcdef": verdict.OK, "7": verdict.Warn} {
		target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				w.Header().Set("Location", r.URL.Path+"/"+id+"?v=1")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			if r.URL.Path != "/list" {
				time.Sleep(verdict.Tolerance) // the client must learn of the end before the proxy reads the job
			}
			_, _ = fmt.Fprintf(w, `{"data": [{"id": %q, "status": "done"}], "status": "done"}`, id)
		})
		for _, submissions := range [][]string{{"/a"}, {"/a", "/b"}} {
			b := newBench(t, "rules: [outcome-learned]", target)
			session := b.session("")
			for _, path := range submissions {
				b.do("POST", path, `{}`)
			}
			b.do("GET", "/list", "")
			_, rules := b.verdict(session)
			if len(submissions) > 1 {
				want = verdict.Warn
			}
			require.Equal(t, want, rules["outcome-learned"].Status, id)
		}
	}
}

// A rewritten stream arrives completely over each version of HTTP, even if the target sent a Content-Length.
func TestRewrittenStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", http.HandlerFunc(events))
	b.faults(fault.Rule{Effect: fault.Effect{ExtraEvents: true, StreamRetry: 10_000, Extensions: true}})
	read := func() string {
		a := b.do("GET", "/events", "", "Accept", "text/event-stream")
		require.NoError(t, a.err)
		return a.text
	}
	c := dial(t, b.url[len("http://"):])
	c.send("GET /events HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	_, by10, _ := strings.Cut(c.all(), "\r\n\r\n")
	by11 := read()
	b.byHTTP2()
	for _, got := range []string{by10, by11, read()} {
		require.True(t, strings.HasPrefix(got, "retry: 10000\n\nid: 1\r\ndata: {\"n\":1,\"xNumber\""), "%q", got)
		require.Equal(t, 5, strings.Count(got, "id: later\x00version\nevent: forgerun.later-version\ndata: {}\n\n"), "%q", got)
	}
}
