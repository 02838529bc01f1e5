package handlers

import (
	"bufio"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// TestAmbiguousFraming sends what two servers could read differently, with a
// second request where one of them would find it: it is answered with 400 and
// the connection closes, so that the second one is never read.
func TestAmbiguousFraming(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	const start, second = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, text := range map[string]string{
		"length and coding":               start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"coding and length":               start + "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
		"identity and length":             start + "Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
		"coding in HTTP/1.0":              "POST /v1/jobs HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two codings":                     start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two equal lengths":               start + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
		"signed length":                   start + "Content-Length: +0\r\n\r\n",
		"bare LF":                         start + "A: b\nC: d\r\n\r\n",
		"bare LF before a length":         start + "A: b\nContent-Length: 0\r\n\r\n",
		"folded line":                     start + "A: b\r\n c\r\n\r\n",
		"folded line with a tab":          start + "A: b\r\n\tc\r\n\r\n",
		"folded length":                   start + "Content-Length:\r\n 0\r\n\r\n",
		"space before the colon":          start + "A : b\r\n\r\n",
		"space before a length's colon":   start + "Content-Length : 0\r\n\r\n",
		"space before the coding's colon": start + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	} {
		c := w.dial()
		_, err := io.WriteString(c, text+second)
		require.NoError(t, err)
		r := bufio.NewReader(c)
		a := w.read(r)
		require.Equal(t, 400, a.StatusCode, name)
		require.Equal(t, job.CodeMalformed, a.problem(t).Code, name)
		require.True(t, a.Close, name)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, name)
	}
}

func TestConnectionCloseInAnyCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for _, value := range []string{"close", "Close", "CLOSE", "keep-alive, Close"} {
		c := w.dial()
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: "+value+"\r\n\r\n")
		require.NoError(t, err)
		r := bufio.NewReader(c)
		require.Equal(t, 200, w.read(r).StatusCode, value)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, value)
	}
}
