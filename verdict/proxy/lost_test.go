package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/proxy"
)

const accepted = `{"accepted": true}`

var targets = map[string]func(t *testing.T) (address string){
	"length":            replying("Content-Length: 18\r\n\r\n" + accepted),
	"length, in pieces": replying("Content-Length: 18\r\n\r\n", accepted[:4], accepted[4:]),
	"chunks":            replying("Transfer-Encoding: chunked\r\n\r\n12\r\n" + accepted + "\r\n0\r\n\r\n"),
	"chunks, in pieces": replying("Transfer-Encoding: chunked\r\n\r\n", "4\r\n"+accepted[:4]+"\r\n", "e\r\n"+accepted[4:]+"\r\n",
		"0\r\n\r\n"),
	"trailers":              replying("Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n12\r\n"+accepted+"\r\n", "0\r\nX-Sum: 1\r\n\r\n"),
	"trailers, unannounced": replying("Transfer-Encoding: chunked\r\n\r\n12\r\n"+accepted+"\r\n", "0\r\nX-Sum: 1\r\n\r\n"),
	"HTTP/1.0": func(t *testing.T) string {
		return "http://" + rawTarget(t, func(c *wireEnd) {
			c.request()
			c.send("HTTP/1.0 202 Accepted\r\nContent-Type: application/json\r\nX-Own: 1\r\n\r\n" + accepted)
		})
	},
	"after Early Hints": func(t *testing.T) string {
		return "http://" + rawTarget(t, func(c *wireEnd) {
			c.request()
			c.send("HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n")
			c.send("HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nX-Own: 1\r\nContent-Length: 18\r\n\r\n" + accepted)
		})
	},
	"HTTP/2": func(t *testing.T) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Own", "1")
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, accepted)
		}))
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	},
}

func replying(pieces ...string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return "http://" + rawTarget(t, func(c *wireEnd) {
			c.request()
			c.send("HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nX-Own: 1\r\n")
			for _, piece := range pieces {
				c.send(piece)
			}
		})
	}
}

// The status is 0 if the client must get nothing.
var effects = map[string]struct {
	effect fault.Effect
	status int
	body   string // empty: not compared
}{
	"none":              {fault.Effect{Delay: 1}, 202, accepted},
	"lost":              {fault.Effect{Close: fault.AfterCommit}, 0, ""},
	"lost and extended": {fault.Effect{Close: fault.AfterCommit, Extensions: true, ContentType: "text/odd"}, 0, ""},
	"before":            {fault.Effect{Close: fault.CloseBefore}, 0, ""},
	"middle":            {fault.Effect{Close: fault.CloseMidBody}, 202, ""},
	"slow":              {fault.Effect{SlowBytes: 1 << 20}, 202, accepted},
	"extensions":        {fault.Effect{Extensions: true}, 202, ""},
	"state":             {fault.Effect{JobStatus: "PONDERING"}, 202, `{"accepted":true}`},
	"unfinished":        {fault.Effect{Unfinished: true, OtherEnd: true}, 202, `{"accepted":true}`},
	"another type":      {fault.Effect{ContentType: "text/odd"}, 202, accepted},
	"status":            {fault.Effect{Status: 503, RetryAfter: new(2)}, 503, ""},
}

// A fault works with every framing of the target's response. No byte of a lost response reaches the client.
func TestEffectsByFraming(t *testing.T) {
	t.Parallel()
	for framing, target := range targets {
		for name, e := range effects {
			for _, version := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%s/HTTP %d", framing, name, version), func(t *testing.T) {
					t.Parallel()
					address := disturbing(t, target(t), e.effect)
					if version == 2 {
						byHTTP2(t, address, e.effect.Close, e.status, e.body)
						return
					}
					c := dial(t, address)
					c.send("POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
					got := c.all()
					if e.status == 0 {
						require.Empty(t, got)
						return
					}
					if framing == "after Early Hints" && !e.effect.Replaces() {
						require.Contains(t, got, "103 Early Hints\r\nX-Early: 1\r\n\r\n")
						_, got, _ = strings.Cut(got, "\r\n\r\n")
					}
					require.True(t, strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", e.status)), got)
					checkResponse(t, e.effect, framing, got, e.body)
				})
			}
		}
	}
}

func checkResponse(t *testing.T, e fault.Effect, framing, got, body string) {
	t.Helper()
	head, _, _ := strings.Cut(got, "\r\n\r\n")
	if !e.Replaces() {
		want := "application/json"
		if e.ContentType != "" {
			want = e.ContentType
		}
		require.Equal(t, want, fields(head+"\r\n\r\n").Get("Content-Type"))
		require.Equal(t, "1", fields(head+"\r\n\r\n").Get("X-Own"))
		require.NotContains(t, head, "X-Sum: ")
	}
	end := endToEnd(got)
	switch {
	case e.Close == fault.CloseMidBody:
		require.NotContains(t, got, "true}")
		require.Contains(t, got, "{")
	case e.Extensions:
		require.Contains(t, end, "x_extension")
	case body != "":
		require.Contains(t, end, "\n\n"+body+"\n")
	}
	if strings.HasPrefix(framing, "trailers") && !e.Replaces() && e.Close == "" {
		require.Contains(t, end, "X-Sum 0: 1")
	}
}

func disturbing(t *testing.T, target string, e fault.Effect) (address string) {
	t.Helper()
	p := newProxy(t, target, "")
	proxy.TrustAny(p)
	address = listen(t, p)
	benchAt(t, address).faults(nth("submit", 1, e))
	return address
}

func byHTTP2(t *testing.T, address string, end fault.Close, status int, body string) {
	t.Helper()
	received := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { received = true }})
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+address+"/x", strings.NewReader("{}"))
	require.NoError(t, err)
	b := benchAt(t, address)
	b.byHTTP2()
	res, err := b.client.Transport.RoundTrip(r)
	if status == 0 {
		require.Error(t, err)
		require.False(t, received)
		return
	}
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, 2, res.ProtoMajor)
	require.Equal(t, status, res.StatusCode)
	text, err := io.ReadAll(res.Body)
	if end == fault.CloseMidBody {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	if body != "" {
		require.Equal(t, body, string(text))
	}
}

func TestLostStreams(t *testing.T) {
	t.Parallel()
	target := rawTarget(t, func(c *wireEnd) {
		c.request()
		c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		c.all()
	})
	for effect, want := range map[fault.Effect]string{{Close: fault.AfterCommit}: "", {CutAfter: new(0)}: "HTTP/1.1 200 OK"} {
		address := before(t, target)
		b := benchAt(t, address)
		id := b.session("")
		b.faults(fault.Rule{Match: fault.Match{Operation: "stream"}, Effect: effect})
		c := dial(t, address)
		c.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		if want != "" {
			require.Contains(t, c.until("\r\n\r\n"), want)
			continue
		}
		require.Empty(t, c.all())
		b.recorded(id, 1)
		require.Contains(t, string(b.own("GET", "sessions/"+id+"/journal", "", 200)), "after_commit")
	}
}
