package proxy_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func TestConnectionsEnd(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 1\ndata: {}\n\nid: 2\ndata: {}\n\n")
	}
	for name, c := range map[string]struct {
		effect fault.Effect
		first  error
		second error
		text   string
	}{
		"reset before":        {fault.Effect{Close: fault.CloseBefore, Reset: true}, syscall.ECONNRESET, nil, ""},
		"reset after":         {fault.Effect{Close: fault.AfterCommit, Reset: true}, syscall.ECONNRESET, nil, ""},
		"reset in the middle": {fault.Effect{Close: fault.CloseMidBody, Reset: true}, syscall.ECONNRESET, nil, `{"accepte`},
		"closed while idle":   {fault.Effect{NextRequest: fault.CloseBefore}, nil, io.EOF, `{"accepted": true}`},
		"reset while idle":    {fault.Effect{NextRequest: fault.CloseBefore, Reset: true}, nil, syscall.ECONNRESET, `{"accepted": true}`},
		"dead while idle":     {fault.Effect{NextRequest: fault.CloseNever}, nil, context.DeadlineExceeded, `{"accepted": true}`},
		"no response":         {fault.Effect{Close: fault.CloseNever}, context.DeadlineExceeded, nil, ""},
		"a stream":            {fault.Effect{CutAfter: new(1), Reset: true}, syscall.ECONNRESET, nil, "id: 1\ndata: {}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.Handle("/", things(location))
			mux.HandleFunc("GET /events", stream)
			b := newBench(t, "rules: [time-outs]", mux)
			id := b.session("")
			operation, ask := "submit", func() response { return b.do("POST", "/things", `{"a": 1}`) }
			if name == "a stream" {
				operation, ask = "stream", func() response { return b.do("GET", "/events", "", "Accept", "text/event-stream") }
			}
			b.faults(nth(operation, 1, c.effect))
			var last response
			for _, want := range []error{c.first, c.second, nil} {
				b.client.Timeout = 0
				if want == context.DeadlineExceeded { //nolint:errorlint // want is from the table
					b.client.Timeout = 100 * time.Millisecond
				}
				last = ask()
				require.ErrorIs(t, last.err, want)
				if want == c.first && c.text != "" { //nolint:errorlint // both are from the table
					require.Equal(t, c.text, last.text)
					c.text = ""
				}
			}
			if name != "a stream" {
				made := map[bool]string{true: "2", false: "3"}[c.effect.Unanswered() || c.effect.NextRequest != ""]
				require.True(t, strings.HasSuffix(last.Header.Get("Location"), "/operations/"+made), last.Header.Get("Location"))
			}
			b.recorded(id, 3)
			_, rules := b.verdict(id)
			hangs := c.first == context.DeadlineExceeded || c.second == context.DeadlineExceeded //nolint:errorlint // compares the exact value
			require.Equal(t, hangs, rules["time-outs"].Status == verdict.OK, "%+v", rules)
		})
	}
}

// After a hang-up, it takes a moment until the exchange is recorded.
func (b *bench) recorded(id string, n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var v verdict.Verdict
		require.NoError(b.t, json.Unmarshal(b.own("GET", "sessions/"+id+"/verdict", "", 200), &v))
		return v.Recorded == n
	}, time.Minute, 10*time.Millisecond)
}

// While a fault refuses connections, the socket is closed, even for clients with an idle connection. It opens again after the duration
// of the fault, or when the session ends.
func TestConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	p := newProxy(t, serverOf(t, things(location)), "")
	b := benchOf(t, p, false)
	control := &bench{t, serverOf(t, p.Own()), plain(t)}
	session := control.session("")
	b.faults(nth("submit", 1, fault.Effect{Close: fault.AfterCommit, Refuse: fault.Duration(3 * time.Second)}),
		nth("submit", 2, fault.Effect{Refuse: fault.Duration(fault.MaxRefuse)}))
	idle := &bench{t, b.url, plain(t)}
	refuse := func(want error) {
		require.NoError(t, idle.do("GET", "/operations/1", "").err)
		require.ErrorIs(t, b.do("POST", "/things", `{}`).err, want)
		for _, client := range []*bench{b, idle} { // with GET, because Go repeats a GET on a new connection if the idle connection was closed
			require.ErrorIs(t, client.do("GET", "/operations/1", "").err, syscall.ECONNREFUSED)
		}
	}
	refuse(io.EOF)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	refuse(nil)
	control.own("POST", "sessions/"+session+"/end", "", 200)
	again := b.do("POST", "/things", `{}`)
	require.NoError(t, again.err)
	require.Equal(t, 202, again.StatusCode)
}

// With a TLS fault, only the next connection fails.
func TestTLSFails(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		b := benchOf(t, newProxy(t, serverOf(t, things(location)), ""), true)
		b.client.Transport.(*http.Transport).ForceAttemptHTTP2 = version == "HTTP/2.0"
		for wrong, is := range map[fault.TLS]func(error) bool{
			fault.TLSExpired: func(err error) bool {
				invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
				return ok && invalid.Reason == x509.Expired
			},
			fault.TLSWrongHost: func(err error) bool { _, ok := errors.AsType[x509.HostnameError](err); return ok },
			fault.TLSHandshake: func(err error) bool {
				alert, ok := errors.AsType[*net.OpError](err)
				return ok && alert.Op == "remote error" && strings.Contains(alert.Error(), "handshake failure")
			},
		} {
			b.faults(nth("submit", 1, fault.Effect{TLS: wrong}))
			first := b.do("POST", "/things", `{}`)
			require.NoError(t, first.err)
			require.Equal(t, version, first.Proto)
			require.True(t, strings.HasPrefix(first.Header.Get("Location"), b.url), first.Header.Get("Location"))
			err := b.do("POST", "/things", `{}`).err
			require.True(t, is(err), "%s, %s: %v", version, wrong, err)
			require.NoError(t, b.do("POST", "/things", `{}`).err)
		}
		b.faults(nth("submit", 1, fault.Effect{Close: fault.AfterCommit, Reset: true}))
		require.ErrorIs(t, b.do("POST", "/things", `{}`).err, syscall.ECONNRESET, version)
		require.NoError(t, b.do("POST", "/things", `{}`).err)
	}
}

func TestClientHangsUpDuringSlowResponse(t *testing.T) {
	t.Parallel()
	for _, replaced := range []int{0, 503} {
		b := newBench(t, "", things(location))
		id := b.session("")
		b.faults(nth("submit", 1, fault.Effect{SlowBytes: 1, Status: replaced}))
		c := dial(t, strings.TrimPrefix(b.url, "http://"))
		c.send("POST /things HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
		c.until("\r\n\r\n")
		c.until("{")
		require.NoError(t, c.Close())
		b.recorded(id, 1)
		require.Contains(t, string(b.own("GET", "sessions/"+id+"/journal", "", 200)), "the client hung up")
	}
}
