package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server calls `handle` for each connection and then closes the connection.
func rawTarget(t *testing.T, handle func(c *wireEnd)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(&wireEnd{c, bufio.NewReader(c)})
			}()
		}
	}()
	return l.Addr().String()
}

func before(t *testing.T, target string) (address string) {
	t.Helper()
	return listen(t, newProxy(t, "http://"+target, ""))
}

type wireEnd struct {
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *wireEnd {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return over(c)
}

func over(c net.Conn) *wireEnd { return &wireEnd{c, bufio.NewReader(c)} }

func (e *wireEnd) send(text string) { _, _ = io.WriteString(e, text) }

func (e *wireEnd) until(end string) string {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), end) {
		c, err := e.r.ReadByte()
		if err != nil {
			break
		}
		b.WriteByte(c)
	}
	return b.String()
}

func (e *wireEnd) all() string {
	text, _ := io.ReadAll(e.r)
	return string(text)
}

func (e *wireEnd) request() string {
	head := e.until("\r\n\r\n")
	h := fields(head)
	switch {
	case strings.Contains(h.Get("Transfer-Encoding"), "chunked"):
		body, last := "", false
		for { // chunks, then trailers, to the empty line
			line := e.until("\n")
			body += line
			if last = last || line == "0\r\n"; line == "" || last && line == "\r\n" {
				return head + body
			}
		}
	case h.Get("Content-Length") != "":
		var n int
		_, _ = fmt.Sscan(h.Get("Content-Length"), &n)
		body := make([]byte, n)
		_, _ = io.ReadFull(e.r, body)
		return head + string(body)
	}
	return head
}

func fields(head string) textproto.MIMEHeader {
	_, lines, _ := strings.Cut(head, "\r\n")
	h, _ := textproto.NewReader(bufio.NewReader(strings.NewReader(lines))).ReadMIMEHeader()
	return h
}

func plain(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
