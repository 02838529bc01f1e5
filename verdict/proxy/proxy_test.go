package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Without a description of the API, the proxy finds a job by standard headers such as Location. The address of the job
// in the response leads through the proxy.
func TestJobsAreFoundByStandards(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(r *http.Request, id int64) http.Header{
		"Location": location,
		"Operation-Location": func(_ *http.Request, id int64) http.Header {
			return http.Header{"Operation-Location": {fmt.Sprint("/operations/", id)}}
		},
		"Link": func(_ *http.Request, id int64) http.Header {
			return http.Header{"Link": {fmt.Sprintf(`</other>; rel="self", <operations/%d>; rel="status"`, id)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "rules: [outcome-learned, stop-at-end]", things(at))
			id := b.session("")
			a := b.do("POST", "/things", `{"a": 1}`)
			if name == "Location" {
				require.Equal(t, b.url+"/operations/1", a.Header.Get("Location"))
			}
			for range 3 {
				a = b.do("GET", "/operations/1", "", "If-None-Match", `"1"`)
			}
			require.JSONEq(t, `{"status": "Succeeded"}`, a.text)
			_, rules := b.verdict(id)
			require.Equal(t, verdict.OK, rules["outcome-learned"].Status)
			require.Equal(t, verdict.OK, rules["stop-at-end"].Status)
			require.Equal(t, verdict.OK, rules["conditional-requests"].Status)
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	own := "errors:\n  429: {content_type: application/vnd.x+json, body: '{\"mine\": true}'}\n"
	for name, c := range map[string]struct {
		effect fault.Effect
		check  func(t *testing.T, a response)
	}{
		"closed before": {fault.Effect{Close: fault.CloseBefore}, func(t *testing.T, a response) { require.ErrorIs(t, a.err, io.EOF) }},
		"lost":          {fault.Effect{Close: fault.AfterCommit}, func(t *testing.T, a response) { require.ErrorIs(t, a.err, io.EOF) }},
		"cut in the middle": {fault.Effect{Close: fault.CloseMidBody}, func(t *testing.T, a response) {
			require.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
			require.Equal(t, `{"acce`+`pte`, a.text)
		}},
		"error": {fault.Effect{Status: 503, RetryAfter: new(2)}, func(t *testing.T, a response) {
			require.Equal(t, 503, a.StatusCode)
			require.Equal(t, "2", a.Header.Get("Retry-After"))
			require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
		}},
		"error document of the API": {fault.Effect{Status: 429}, func(t *testing.T, a response) {
			require.Equal(t, "application/vnd.x+json", a.Header.Get("Content-Type"))
			require.JSONEq(t, `{"mine": true}`, a.text)
		}},
		"error page": {fault.Effect{HTML: true}, func(t *testing.T, a response) {
			require.Equal(t, 502, a.StatusCode)
			require.Contains(t, a.text, "<h1>502 Bad Gateway</h1>")
		}},
		"moved": {fault.Effect{Moved: 308}, func(t *testing.T, a response) {
			require.Equal(t, 308, a.StatusCode)
			require.Equal(t, "/things", a.Header.Get("Location"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, own, things(location))
			id := b.session("")
			b.faults(nth("submit", 1, c.effect))
			c.check(t, b.do("POST", "/things", `{"a": 1}`))
			second := b.do("POST", "/things", `{"a": 1}`)
			require.NoError(t, second.err)
			require.Equal(t, 202, second.StatusCode)
			made := map[bool]string{true: "1", false: "2"}[c.effect.Replaces()]
			require.True(t, strings.HasSuffix(second.Header.Get("Location"), "/operations/"+made), second.Header.Get("Location"))
			v, rules := b.verdict(id)
			require.Equal(t, 2, v.Recorded)
			repeated := c.effect.Close != "" || c.effect.HTML
			require.Equal(t, repeated, rules["idempotency-key"].Status.Broken())
			journal := strings.Split(strings.TrimSpace(string(b.own("GET", "sessions/"+id+"/journal", "", 200))), "\n")
			require.Len(t, journal, 2)
			require.Equal(t, repeated, strings.Contains(journal[1], `"idempotency-key"`))
		})
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", things(location))
	id := b.session("")
	b.faults(nth("GET /{any}", 1, fault.Effect{HalfEventAfter: new(2)}), nth("POST /{any}", 1, fault.Effect{CutAfter: new(0)}))
	a := b.do("GET", "/events", "", "Accept", "text/event-stream")
	require.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
	require.Equal(t, "id: 1\r\ndata: {\"n\": 1}\r\n\r\nid: 2\r\ndata: {\"n\": 2}\r\n\r\nid: 3\r\ndata:", a.text)
	a = b.do("GET", "/events", "", "Accept", "text/event-stream", "Last-Event-ID", "3")
	require.NoError(t, a.err)
	require.NotContains(t, a.text, "id: 3")
	_, rules := b.verdict(id)
	require.True(t, rules["half-events"].Status.Broken())
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	target := rawTarget(t, func(c *wireEnd) {
		c.until("\r\n\r\n")
		c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
		c.send(strings.ToUpper(c.until("\n")))
	})
	c := dial(t, before(t, target))
	c.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
	require.Contains(t, c.until("\r\n\r\n"), "101 Switching Protocols")
	c.send("hello\n")
	require.Equal(t, "HELLO\n", c.until("\n"))
}

func TestOwnRoutesRefuse(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", http.NotFoundHandler())
	require.Contains(t, string(b.own("POST", "sessions", `{"profile": "calm"}`, 400)), "flaky-network")
	b.own("POST", "sessions", `{"speed": 1}`, 400)
	b.own("POST", "sessions", `{"rules": ["politeness"]}`, 400)
	for effect, at := range map[string]string{
		`"status": 200`: "status", `"tls": "expired"`: "tls", `"refuse": "11s"`: "refuse", `"reset": true`: "reset",
		`"next_request": "never", "close": "before"`: "next_request",
	} {
		require.Contains(t, string(b.own("PUT", "faults", `[{"effect": {`+effect+`}}]`, 400)), "/0/effect/"+at)
	}
	b.own("GET", "sessions/none/verdict", "", 404)
	id := b.session(`{"profile": "overloaded"}`)
	b.own("POST", "sessions", "", 409)
	b.own("PUT", "faults", `[]`, 409)
	b.own("POST", "sessions/"+id+"/end", "", 200)
	b.own("PUT", "faults", `[]`, 200)
	require.NotContains(t, string(b.own("GET", "nowhere", "", 404)), "<")
}

// A response that the target itself cuts counts as lost.
func TestTargetCutsResponse(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/operations/1")
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "{")
	}))
	id := b.session("")
	for range 2 {
		require.Error(t, b.do("POST", "/things", `{"a": 1}`).err)
	}
	_, rules := b.verdict(id)
	require.True(t, rules["idempotency-key"].Status.Broken())
}

func TestTargetIsDown(t *testing.T) {
	t.Parallel()
	a := benchAt(t, listen(t, newProxy(t, "http://127.0.0.1:1", ""))).do("GET", "/", "")
	require.NoError(t, a.err)
	require.Equal(t, 502, a.StatusCode)
	require.Contains(t, a.text, "did not answer")
}
