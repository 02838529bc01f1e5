package handlers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	require.NoError(w.t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	return c.(*net.TCPConn)
}

func (w *world) write(c io.Writer, text string) {
	w.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(w.t, err)
}

func (w *world) read(r *bufio.Reader) *reply {
	w.t.Helper()
	res, err := http.ReadResponse(r, nil)
	require.NoError(w.t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	switch res.StatusCode {
	case 400, 408, 413, 431: // the OpenAPI document describes these responses for POST /v1/jobs
		require.NoError(w.t, apitest.New(w.t, docs.OpenAPI).Verify("POST", "/v1/jobs", res, text))
	}
	return &reply{res, string(text)}
}

func (w *world) raw(text string) (a *reply, rest *bufio.Reader) {
	w.t.Helper()
	c := w.dial()
	w.write(c, text)
	rest = bufio.NewReader(c)
	return w.read(rest), rest
}

func requireEnd(t testing.TB, r *bufio.Reader, what ...any) {
	t.Helper()
	_, err := r.ReadByte()
	require.ErrorIs(t, err, io.EOF, what...)
}

const (
	submitHead = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + goodKey + "\r\nContent-Type: application/json\r\n"
	getHealth  = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	leastBody  = `{"type":"EXECUTE"}`
)

func writeBody(c io.Writer, n int64, chunked bool) error {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer func() { _ = zeros.Close() }()
	end := ""
	to := c
	if chunked {
		to, end = httputil.NewChunkedWriter(c), "0\r\n\r\n"
	}
	if _, err = io.CopyN(to, zeros, n); err == nil {
		_, err = io.WriteString(c, end)
	}
	return err
}

func framing(n int, chunked bool) string {
	if chunked {
		return "Transfer-Encoding: chunked\r\n\r\n"
	}
	return fmt.Sprintf("Content-Length: %d\r\n\r\n", n)
}

// TestTooLargeBodyIsAnswered sends 5 MiB before reading the response. The client must get the response and not a reset. An endless body is
// also answered, and then the connection closes.
// Promise: contract 14a
func TestTooLargeBodyIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for _, chunked := range []bool{false, true} {
		for head, code := range map[string]job.Code{
			submitHead: job.CodePayloadTooLarge, strings.Replace(submitHead, goodKey, "nobody's", 1): job.CodeInvalidCredentials,
		} {
			c := w.dial()
			const size = 5 << 20
			w.write(c, head+framing(size, chunked))
			require.NoError(t, writeBody(c, size, chunked), "the server keeps reading")
			r := bufio.NewReader(c)
			a := w.read(r)
			a.requireProblem(t, code)
			require.True(t, a.Close, "Connection: close")
			requireEnd(t, r, "the connection ends without a reset")
		}
		c := w.dial()
		w.write(c, submitHead+framing(1<<40, chunked))
		require.Error(t, writeBody(c, 1<<32, chunked), "the server stops reading")
	}
}

// Chunk extensions and one-byte chunks cannot exceed the size limit of a body.
func TestFramingOfChunksIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodyBytes = limit }).start()
	for _, sent := range []string{"1;" + strings.Repeat("x", 2*limit+(100<<10)), strings.Repeat("1\r\n \r\n", (2*limit+(100<<10))/6)} {
		a, _ := w.raw(submitHead + "Transfer-Encoding: chunked\r\n\r\n" + sent)
		a.requireProblem(t, job.CodePayloadTooLarge)
		require.True(t, a.Close, "Connection: close")
	}
	c := w.dial()
	r := bufio.NewReader(c)
	for range 20 { // the limit is per request, not per connection
		w.write(c, fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n12;%s\r\n%s\r\n0\r\n\r\n", submitHead, strings.Repeat("x", limit), leastBody))
		require.Equal(t, 202, w.read(r).StatusCode)
	}
}

func TestBodyAtTheLimitIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodyBytes = 1000 }).start()
	for size, status := range map[int]int{1000: 202, 1001: 413} {
		body := leastBody + strings.Repeat(" ", size-len(leastBody))
		a, _ := w.raw(submitHead + framing(size, false) + body)
		require.Equal(t, status, a.StatusCode)
		a, _ = w.raw(submitHead + framing(size, true) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body))
		require.Equal(t, status, a.StatusCode)
	}
}

// Promise: contract 14h
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	c := w.dial()
	r := bufio.NewReader(c)
	w.write(c, submitHead+"Expect: 100-continue\r\n"+framing(len(leastBody), false))
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	w.write(c, leastBody)
	require.Equal(t, 202, w.read(r).StatusCode)

	w.write(c, submitHead+"Expect: 100-continue\r\n"+framing(5<<20, false))
	a := w.read(r)
	a.requireProblem(t, job.CodePayloadTooLarge)
	require.True(t, a.Close)
}

// Some of these requests are invalid, others could be read differently by a proxy and the server. No text of a request may reach headers or
// log lines. After 400 the connection must close, because the rest could be read as another request. Package conn has more tests of
// framing.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	const get, start = "GET / HTTP/1.1\r\nHost: x\r\n", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n"
	for status, texts := range map[int][]string{
		400: {
			"hello\r\n\r\n", "GET / HTTPX/1\r\nHost: x\r\n\r\n", get + "A : c\r\n\r\n", get + "X-Request-Id: a\x00b\r\n\r\n",
			get + "X-Correlation-ID: \x1b[31m\r\n\r\n", get + "X-Request-Id: a\rSet-Cookie: evil=1\r\n\r\n", get + "Host: y\r\n\r\n",
			start + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", start + "Content-Length: -1\r\n\r\n{}",
			submitHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", submitHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
			start + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"POST /v1/jobs HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", start + "A: b\nC: d\r\n\r\n",
			start + "A: b\r\n c\r\n\r\n", submitHead + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\n\r\n",
		},
		404: {"GET /no-such-path HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n"},
		501: {"BREW /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\nx"},
		431: {get + "X: " + strings.Repeat("z", 20<<10) + "\r\n\r\n", get + strings.Repeat("X: y\r\n", 10_000) + "\r\n",
			"GET /" + strings.Repeat("z", 20<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		for _, text := range texts {
			a, r := w.raw(text + map[bool]string{true: getHealth}[status == 400])
			require.Equal(t, status, a.StatusCode, "%.200q", text)
			p := a.problem(t)
			require.Empty(t, a.Header.Get("Set-Cookie"), "%.200q", text)
			if status == 400 || status == 431 {
				require.Equal(t, job.CodeMalformed, p.Code)
			}
			if status == 400 {
				require.True(t, a.Close, "%.200q", text)
				requireEnd(t, r, "%.200q", text)
			}
		}
	}
	for _, part := range []string{goodKey, "evil", "\x1b", `\u001b`, "BREW", "zzzz"} {
		require.NotContains(t, w.log.String(), part)
	}
	counts := series(t, w.registry)
	require.Equal(t, 3.0, counts["http_requests_total 431 GET unmatched"], "requests that reach no route are counted")
	require.Equal(t, 1.0, counts["http_requests_total 501 OTHER unmatched"], "an unknown method is no label value")
}

func TestConnectionCloseInAnyCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for _, value := range []string{"close", "Close", "CLOSE", "keep-alive, Close"} {
		a, r := w.raw("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: " + value + "\r\n\r\n")
		require.Equal(t, 200, a.StatusCode, value)
		requireEnd(t, r, value)
	}
}

// TestHeaderInjection tries line breaks in all encodings that the parser accepts, wherever client text may be echoed. Each request must
// get one response without injected headers.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	requireClean := func(text, evil string) {
		a, r := w.raw(text)
		require.Less(t, a.StatusCode, 500, text)
		require.NotContains(t, a.Header, "Set-Cookie", text)
		if evil != "" {
			require.NotContains(t, fmt.Sprint(a.Header), evil, text)
		}
		requireEnd(t, r, text)
	}
	for _, value := range []string{"a%0d%0aSet-Cookie: evil=1", `a\r\nSet-Cookie: evil=1`, "a\r\n Set-Cookie: evil=1",
		"a\u2028Set-Cookie: evil=1", "a\u0085Set-Cookie: evil=1"} {
		for _, name := range []string{"X-Request-Id", "X-Correlation-ID", "Idempotency-Key", headerSession, "Prefer", "Accept", "Accept-Language",
			"Traceparent"} {
			requireClean(submitHead+"Connection: close\r\n"+name+": "+value+"\r\n"+framing(len(leastBody), false)+leastBody, "evil")
		}
	}
	for _, line := range []string{"%0d%0aSet-Cookie:evil=1", "%0D%0A%0D%0AHTTP/1.1%20200%20OK", "%E2%80%A8Set-Cookie:evil=1"} {
		for _, path := range []string{"/" + line, "/v1/jobs/" + line, "/v1/jobs?cursor=" + line, "/v1/jobs?correlation_id=" + line} {
			for _, fault := range []string{"", `{"moved":308}`} { // Location echoes the path
				requireClean(w.request("GET", path, "Accept", "", headerFault, fault, "Connection", "close"), "")
			}
		}
	}
	w.log.Lines(t, nil) // fails unless each entry is one line
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.ReadTimeout, c.IdleTimeout = 150*time.Millisecond, 150*time.Millisecond }).start()
	for name, start := range map[string]string{
		"nothing": "", "half a head": "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-", "half a body": submitHead + "Content-Length: 10\r\n\r\n{",
		"half a chunk": submitHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		a, r := w.raw(start)
		require.Equal(t, 408, a.problem(t).Status, name)
		requireEnd(t, r, name)
	}
	// The time limit is for the whole request, so sending a byte at a time does not extend it.
	slow := w.dial()
	go func() {
		for {
			if _, err := slow.Write([]byte("a")); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	require.Equal(t, 408, w.read(bufio.NewReader(slow)).StatusCode)
	a, r := w.raw(getHealth)
	require.Equal(t, 200, a.StatusCode)
	requireEnd(t, r, "an idle connection is closed without a response")
}

// Percent-encoded unreserved characters are decoded once (RFC 3986, section 6.2.2.2). A decoded percent sign does not start another
// escape, and an encoded slash does not separate segments.
func TestEquivalentPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := backend.Job.String()
	for path, same := range map[string]string{
		"/v1/jobs/" + strings.ReplaceAll(id, "-", "%2D"): jobSelf, "/v1/jobs/" + strings.ReplaceAll(id, "-", "%2d"): jobSelf,
		"/%761/%6Aobs/" + id: jobSelf, jobSelf + "/attempts/%31": jobSelf + "/attempts/1", "/problems/%63onflict": "/problems/conflict",
		"/%2Ewell%2Dknown/http-message-signatures-directory": "/.well-known/http-message-signatures-directory",
		"/v1/jobs%2F" + id: "", "/v1/jobs/" + strings.ReplaceAll(id, "-", "%252D"): "", jobSelf + "%2Freport": "", "/v1/jobs/%2e%2e": "",
		jobSelf + "%3Fx": "", jobSelf + "%2": "", jobSelf + "%": "", jobSelf + "%zz": "",
	} {
		r, err := http.NewRequest("GET", "http://forgerun.test/", nil)
		require.NoError(t, err)
		r.URL.Opaque = "//forgerun.test" + path // net/http would normalize the path of a parsed URL
		r.Header.Set("Authorization", "Bearer "+goodKey)
		res, err := w.server.Test(r)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if same == "" {
			require.Equal(t, 404, res.StatusCode, path)
			continue
		}
		require.Equal(t, 200, res.StatusCode, path)
		require.Equal(t, w.send("GET", same, "").text, string(text), path)
	}
}

func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	one := submitHead + framing(len(leastBody), false) + leastBody
	a, r := w.raw(one + submitHead + framing(2, false) + "{}" + "GET /no-such-path HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET" + one)
	require.Equal(t, 202, a.StatusCode)
	for _, status := range []int{400, 404, 202} {
		require.Equal(t, status, w.read(r).StatusCode)
	}
}
