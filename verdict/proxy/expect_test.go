package proxy_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The proxy does not send 100 Continue by itself.
func TestExpectations(t *testing.T) {
	t.Parallel()
	const ask = "POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
	const done, refused = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"
	for name, s := range map[string]struct {
		target func(c *wireEnd, step chan string)
		client func(t *testing.T, c *wireEnd, step chan string)
	}{
		"asked": {func(c *wireEnd, step chan string) {
			step <- c.until("\r\n\r\n")
			<-step
			c.send("HTTP/1.1 100 Continue\r\n\r\n")
			step <- c.until("abc")
			c.send(done)
		}, func(t *testing.T, c *wireEnd, step chan string) {
			require.Contains(t, <-step, "Expect: 100-continue")
			step <- ""
			require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", c.until("\r\n\r\n"))
			c.send("abc")
			require.Equal(t, "abc", <-step)
			require.Equal(t, endToEnd(done), endToEnd(c.all()))
		}},
		"refused": {func(c *wireEnd, step chan string) {
			step <- c.until("\r\n\r\n")
			c.send(refused)
			step <- c.all()
		}, func(t *testing.T, c *wireEnd, step chan string) {
			<-step
			require.Equal(t, endToEnd(refused), endToEnd(c.all()))
			require.Empty(t, <-step)
		}},
		"sent unasked": {func(c *wireEnd, step chan string) {
			step <- c.until("\r\n\r\n")
			step <- c.until("abc")
			c.send(done)
		}, func(t *testing.T, c *wireEnd, step chan string) {
			<-step
			c.send("abc")
			require.Equal(t, "abc", <-step)
			got := c.all()
			if _, secure := c.Conn.(*tls.Conn); secure { // with TLS, the proxy sends 100 Continue even if the client did not wait for it
				got = strings.TrimPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			require.Equal(t, endToEnd(done), endToEnd(got))
		}},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", TLS: ", secure), func(t *testing.T) {
				t.Parallel()
				step := make(chan string)
				p := newProxy(t, "http://"+rawTarget(t, func(c *wireEnd) { s.target(c, step) }), "")
				var config *tls.Config
				if secure {
					config = trusting(t, p)
				}
				c := dial(t, listen(t, p))
				if secure {
					config.ServerName = "localhost"
					c = over(tls.Client(c.Conn, config))
				}
				c.send(ask)
				s.client(t, c, step)
			})
		}
	}
}

// If the target refuses a request before its body is sent, the refusal reaches the client.
func TestEarlyResponses(t *testing.T) {
	t.Parallel()
	const refusal = "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\n\r\n"
	for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		target := rawTarget(t, func(c *wireEnd) {
			c.until("\r\n\r\n")
			c.send(refusal)
			c.all()
		})
		c := dial(t, before(t, target))
		c.send("POST /x HTTP/1.1\r\nHost: localhost\r\n" + framing + "\r\n\r\n")
		require.Equal(t, endToEnd(refusal), endToEnd(c.until("\r\n\r\n")))
	}
}

// Requests that offer HTTP/2 are served and recorded. A reverse proxy refuses CONNECT.
func TestH2COffersAndConnect(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	target := rawTarget(t, func(c *wireEnd) {
		got <- c.request()
		c.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	b := benchAt(t, before(t, target))
	id := b.session("")
	c := dial(t, strings.TrimPrefix(b.url, "http://"))
	c.send("GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
	require.Contains(t, c.until("\r\n\r\n"), "200 OK")
	require.NotContains(t, strings.ToLower(<-got), "upgrade")
	v, _ := b.verdict(id)
	require.Equal(t, 1, v.Recorded)
	c = dial(t, strings.TrimPrefix(b.url, "http://"))
	c.send("CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n")
	require.Contains(t, c.until("\r\n\r\n"), "405 Method Not Allowed")
}
