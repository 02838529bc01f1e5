package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

func TestResponsesStall(t *testing.T) {
	t.Parallel()
	for framing, target := range targets {
		for _, e := range []fault.Effect{{Close: fault.CloseStall}, {Close: fault.CloseStall, Extensions: true}} {
			for _, version := range []string{"1.0", "1.1", "2"} {
				t.Run(fmt.Sprint(framing, e.Extensions, version), func(t *testing.T) {
					t.Parallel()
					address := disturbing(t, target(t), e)
					b := benchAt(t, address)
					id := b.session("")
					if version == "2" {
						r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/x", strings.NewReader("{}"))
						require.NoError(t, err)
						b.byHTTP2()
						res, err := b.client.Do(r)
						require.NoError(t, err)
						require.Equal(t, 202, res.StatusCode)
						one := make([]byte, 1)
						_, err = io.ReadFull(res.Body, one)
						require.NoError(t, err)
						require.Equal(t, "{", string(one))
						require.NoError(t, res.Body.Close()) // with HTTP/2, this resets the stream
					} else {
						c := dial(t, address)
						c.send("POST /x HTTP/" + version + "\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
						got := c.until("{")
						require.Contains(t, got, " 202 Accepted\r\n")
						require.NoError(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite()) // the client can still read
						require.NotContains(t, got+c.all(), "true}")
					}
					b.recorded(id, 1)
					require.Contains(t, string(b.own("GET", "sessions/"+id+"/journal", "", 200)), "the client hung up")
				})
			}
		}
	}
}

// If a response without a body stalls, the client gets nothing, although the target has processed the request. A stalled stream sends only
// the header.
func TestResponsesWithoutBodyStall(t *testing.T) {
	t.Parallel()
	var worked atomic.Int64
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if worked.Add(1); r.URL.Path == "/events" {
			events(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	b := newBench(t, "", target)
	id := b.session("")
	for n, want := range []string{"", "HTTP/1.1 200 OK"} {
		b.faults(nth("GET /{any}", 1, fault.Effect{Close: fault.CloseStall}))
		c := dial(t, b.url[len("http://"):])
		c.send("GET /" + []string{"x", "events"}[n] + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if want != "" {
			require.Contains(t, c.until("\r\n\r\n"), want)
		}
		require.Eventually(t, func() bool { return worked.Load() == int64(n)+1 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite())
		require.NotContains(t, c.all(), "data")
		b.recorded(id, n+1)
	}
}

// After a response without "Connection: close", the proxy closes its side of the connection. A later request on the connection is not
// processed.
func TestHalfClosedConnections(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		var asked atomic.Int64
		target := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			_, _ = io.WriteString(w, "whole")
		})
		b := benchOf(t, newProxy(t, serverOf(t, target), ""), secure)
		id := b.session("")
		b.faults(nth("GET /{any}", 1, fault.Effect{NextRequest: fault.CloseHalf}))
		c := dial(t, strings.TrimPrefix(strings.TrimPrefix(b.url, "http://"), "https://"))
		if secure {
			by1 := b.client.Transport.(*http.Transport).TLSClientConfig.Clone()
			by1.ServerName, by1.NextProtos = "localhost", nil // by HTTP/1.1
			c = over(tls.Client(c.Conn, by1))
		}
		const get = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
		c.send(get)
		got := c.all() // ends when the proxy closes its side
		require.True(t, strings.HasSuffix(got, "\r\n\r\nwhole"), got)
		require.NotContains(t, got, "Connection: close")
		c.send(get)
		b.recorded(id, 2)
		require.EqualValues(t, 1, asked.Load())

		b.faults(nth("GET /{any}", 1, fault.Effect{NextRequest: fault.CloseHalf}))
		for range 3 { // net/http's client sees no error
			require.Equal(t, "whole", b.do("GET", "/x", "").text)
		}
		b.faults(nth("GET /{any}", 1, fault.Effect{NextRequest: fault.CloseHalf}))
		if !secure { // an HTTP/2 connection stays open
			b.byHTTP2()
			for range 3 {
				require.Equal(t, 2, b.do("GET", "/x", "").ProtoMajor)
			}
		}
	}
}
