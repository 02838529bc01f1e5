package proxy_test

import (
	"bufio"
	"crypto/tls"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

// Only the target decides whether the client is asked for a body that it holds back.
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
			require.Equal(t, endToEnd(done), endToEnd(c.all()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := make(chan string)
			target := rawTarget(t, func(c *wireEnd) { s.target(c, step) })
			c := dial(t, before(t, target))
			c.send(ask)
			s.client(t, c, step)
		})
	}
}

// If the target refuses a request before its body is sent, the refusal reaches the client.
func TestEarlyAnswers(t *testing.T) {
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

// Clients that offer HTTP/2 are answered, judged and disturbed like others. A reverse proxy refuses CONNECT.
func TestOffersAndTunnels(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	target := rawTarget(t, func(c *wireEnd) {
		got <- c.request()
		c.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	b := &bench{t: t, url: "http://" + before(t, target), client: plain(t)}
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

// With TLS, the proxy does not ask the client for its body before the target does either, and the client may send it unasked.
func TestExpectationsByTLS(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{true, false} {
		step := make(chan string)
		target := rawTarget(t, func(c *wireEnd) {
			step <- c.until("\r\n\r\n")
			if asks {
				<-step
				c.send("HTTP/1.1 100 Continue\r\n\r\n")
			}
			step <- c.until("abc")
			c.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
		p := proxy.New(must(url.Parse("http://"+target)), must(api.Parse(nil)), slog.New(slog.DiscardHandler))
		_, err := p.UseTLS("127.0.0.1")
		require.NoError(t, err)
		server := p.Server()
		l, err := p.Listen("127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		secured, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		t.Cleanup(func() { _ = secured.Close() })
		c := &wireEnd{secured, bufio.NewReader(secured)}
		c.send("POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
		require.Contains(t, <-step, "Expect: 100-continue")
		if asks {
			step <- ""
			require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", c.until("\r\n\r\n"))
		}
		c.send("abc")
		require.Equal(t, "abc", <-step)
		require.Contains(t, c.all(), "HTTP/1.1 200 OK\r\n")
	}
}
