package handlers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

const patience = 20 * time.Second

// dial opens a raw connection to the server.
func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	require.NoError(w.t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.TCPConn)
}

// read reads one answer.
func (w *world) read(r *bufio.Reader) *answer {
	w.t.Helper()
	res, err := http.ReadResponse(r, nil)
	require.NoError(w.t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	switch res.StatusCode {
	case 400, 408, 413, 431: // whatever was asked for
		require.NoError(w.t, apitest.New(w.t, docs.OpenAPI).Verify("POST", "/v1/jobs", res, text))
	}
	return &answer{res, string(text)}
}

const submitHead = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + goodKey + "\r\nContent-Type: application/json\r\n"

// writeBody sends n bytes, as one body or in chunks; it gives up on an error.
func writeBody(c io.Writer, n int, chunked bool) error {
	block := bytes.Repeat([]byte(" "), 64<<10)
	for n > 0 {
		part := block[:min(n, len(block))]
		n -= len(part)
		var err error
		if chunked {
			_, err = fmt.Fprintf(c, "%x\r\n%s\r\n", len(part), part)
		} else {
			_, err = c.Write(part)
		}
		if err != nil {
			return err
		}
	}
	if chunked {
		_, err := io.WriteString(c, "0\r\n\r\n")
		return err
	}
	return nil
}

func framing(n int, chunked bool) string {
	if chunked {
		return "Transfer-Encoding: chunked\r\n\r\n"
	}
	return fmt.Sprintf("Content-Length: %d\r\n\r\n", n)
}

// TestTooLargeBodyIsAnswered sends 5 MiB as a client does that writes
// everything before it reads: it must find the answer, not a reset.
func TestTooLargeBodyIsAnswered(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		w := newWorld(t).start()
		c := w.dial()
		const size = 5 << 20
		_, err := io.WriteString(c, submitHead+framing(size, chunked))
		require.NoError(t, err)
		require.NoError(t, writeBody(c, size, chunked), "the server reads on")
		r := bufio.NewReader(c)
		a := w.read(r)
		a.requireProblem(t, job.CodePayloadTooLarge)
		require.True(t, a.Close, "Connection: close")
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, "and then an orderly end")
	}
}

func TestTooLargeBodyFromGoClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for key, code := range map[string]job.Code{goodKey: job.CodePayloadTooLarge, "nobody's": job.CodeInvalidCredentials} {
		for _, chunked := range []bool{false, true} {
			for range 5 {
				var body io.Reader = bytes.NewReader(make([]byte, 5<<20))
				if chunked {
					body = io.MultiReader(body)
				}
				r, err := http.NewRequest("POST", w.url+"/v1/jobs", body)
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer "+key)
				r.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				(&answer{res, string(text)}).requireProblem(t, code)
			}
		}
	}
}

// TestDrainingIsBounded sends without end: the server answers and hangs up.
func TestDrainingIsBounded(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		w := newWorld(t).start()
		c := w.dial()
		_, err := io.WriteString(c, submitHead+framing(1<<40, chunked))
		require.NoError(t, err)
		require.Error(t, writeBody(c, 1<<32, chunked), "the server stops reading")
	}
}

// Extensions of chunks, and chunks of one byte, are no way to send more than a body may take.
func TestFramingOfChunksIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodyBytes = limit }).start()
	for name, part := range map[string]string{"extension": "x", "chunks": "1\r\n \r\n"} {
		c := w.dial()
		_, err := io.WriteString(c, submitHead+"Transfer-Encoding: chunked\r\n\r\n")
		require.NoError(t, err)
		sent := strings.Repeat(part, (2*limit+(100<<10))/len(part))
		if name == "extension" {
			sent = "1;" + sent
		}
		_, err = io.WriteString(c, sent) // and no end
		require.NoError(t, err)
		a := w.read(bufio.NewReader(c))
		a.requireProblem(t, job.CodePayloadTooLarge)
		require.True(t, a.Close, "Connection: close")
	}
	c := w.dial()
	r := bufio.NewReader(c)
	for range 20 { // each request has all of it
		_, err := fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n12;%s\r\n%s\r\n0\r\n\r\n",
			submitHead, strings.Repeat("x", limit), `{"type":"EXECUTE"}`)
		require.NoError(t, err)
		require.Equal(t, 202, w.read(r).StatusCode)
	}
}

func TestBodyAtTheLimitIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodyBytes = 1000 }).start()
	for size, status := range map[int]int{1000: 202, 1001: 413} {
		for _, chunked := range []bool{false, true} {
			c := w.dial()
			_, err := io.WriteString(c, submitHead+framing(size, chunked))
			require.NoError(t, err)
			body := `{"type":"EXECUTE"}`
			body += strings.Repeat(" ", size-len(body))
			if chunked {
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)
			}
			_, err = io.WriteString(c, body)
			require.NoError(t, err)
			require.Equal(t, status, w.read(bufio.NewReader(c)).StatusCode)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	c := w.dial()
	r := bufio.NewReader(c)
	const body = `{"type":"EXECUTE"}`
	_, err := io.WriteString(c, submitHead+"Expect: 100-continue\r\n"+framing(len(body), false))
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = r.ReadString('\n')
	require.NoError(t, err)
	_, err = io.WriteString(c, body)
	require.NoError(t, err)
	require.Equal(t, 202, w.read(r).StatusCode)

	_, err = io.WriteString(c, submitHead+"Expect: 100-continue\r\n"+framing(5<<20, false))
	require.NoError(t, err)
	a := w.read(r)
	a.requireProblem(t, job.CodePayloadTooLarge)
	require.True(t, a.Close)
}

// TestUnreadableRequests sends what is not a request: it must be answered
// with a problem, and nothing of it may reach headers or log lines.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	tests := []struct {
		name, text string
		status     int
	}{
		{"no HTTP", "hello\r\n\r\n", 400},
		{"bad version", "GET / HTTPX/1\r\nHost: x\r\n\r\n", 400},
		{"space in name", "GET /nowhere HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 404},
		{"space before colon", "GET / HTTP/1.1\r\nHost: x\r\nA : c\r\n\r\n", 400},
		{"NUL in value", "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\x00b\r\n\r\n", 400},
		{"escape in value", "GET / HTTP/1.1\r\nHost: x\r\nX-Correlation-ID: \x1b[31m\r\n\r\n", 400},
		{"bare CR in value", "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\rSet-Cookie: evil=1\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
		{"two lengths", submitHead + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400},
		{"negative length", submitHead + "Content-Length: -1\r\n\r\n{}", 400},
		{"odd coding", submitHead + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
		{"bad chunk", submitHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400},
		{"long chunk", submitHead + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
		{"large header", "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("z", 20<<10) + "\r\n\r\n", 431},
		{"many headers", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 10_000) + "\r\n", 431},
		{"large path", "GET /" + strings.Repeat("z", 20<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		{"odd method, too large", "BREW /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\nx", 405},
	}
	for _, test := range tests {
		c := w.dial()
		_, err := io.WriteString(c, test.text)
		require.NoError(t, err)
		a := w.read(bufio.NewReader(c))
		require.Equal(t, test.status, a.StatusCode, test.name)
		p := a.problem(t)
		require.Empty(t, a.Header.Get("Set-Cookie"), test.name)
		if test.status == 400 || test.status == 431 {
			require.Equal(t, job.CodeMalformed, p.Code)
		}
		_ = c.Close()
	}
	for _, part := range []string{goodKey, "evil", "\x1b", `\u001b`, "BREW", "zzzz"} {
		require.NotContains(t, w.log.String(), part)
	}
}

// TestHeaderInjection tries line breaks in all spellings that get past the
// parser, wherever a header's text could come back.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	for _, value := range []string{"a%0d%0aSet-Cookie: evil=1", `a\r\nSet-Cookie: evil=1`, "a\r\n Set-Cookie: evil=1",
		"a\u2028Set-Cookie: evil=1", "a\u0085Set-Cookie: evil=1"} {
		for _, name := range []string{"X-Request-Id", "X-Correlation-ID", "Prefer", "Idempotency-Key", "Accept-Language", "Traceparent",
			"Accept"} {
			c := w.dial()
			const body = `{"type":"EXECUTE"}`
			_, err := io.WriteString(c, submitHead+name+": "+value+"\r\n"+framing(len(body), false)+body)
			require.NoError(t, err)
			a := w.read(bufio.NewReader(c))
			require.Less(t, a.StatusCode, 500)
			for key, values := range a.Header {
				require.NotContains(t, key+strings.Join(values, " "), "evil", name)
				require.NotEqual(t, "Set-Cookie", key)
			}
			_ = c.Close()
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(w.log.String()), "\n") {
		require.True(t, strings.HasPrefix(line, `{"time":`), line)
	}
}

// TestSlowClients hold connections open without sending a whole request.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) {
		c.ReadTimeout, c.IdleTimeout = 150*time.Millisecond, 150*time.Millisecond
	}).start()
	for name, start := range map[string]string{
		"nothing": "", "half a head": "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-", "half a body": submitHead + "Content-Length: 10\r\n\r\n{",
		"half a chunk": submitHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		c := w.dial()
		_, err := io.WriteString(c, start)
		require.NoError(t, err)
		r := bufio.NewReader(c)
		require.Equal(t, 408, w.read(r).problem(t).Status, name)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	// A byte at a time does not help: the limit is on the whole request.
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
	// A kept-alive connection ends in silence.
	c := w.dial()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	require.Equal(t, 200, w.read(r).StatusCode)
	_, err = r.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	c := w.dial()
	const body = `{"type":"EXECUTE"}`
	one := submitHead + framing(len(body), false) + body
	bad := submitHead + framing(2, false) + "{}"
	_, err := io.WriteString(c, one+bad+"GET /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET"+one)
	require.NoError(t, err)
	r := bufio.NewReader(c)
	for _, status := range []int{202, 400, 404, 202} {
		require.Equal(t, status, w.read(r).StatusCode)
	}
}

// TestClientsDoNotMix keeps every request that the use cases get, while many
// clients send at once over few connections, and sees afterwards that each is
// still what its client sent: Fiber's strings would have changed by then.
func TestClientsDoNotMix(t *testing.T) {
	t.Parallel()
	const senders, each = 16, 60
	w := newWorld(t)
	var mu sync.Mutex
	var kept []job.Request
	var tokens []string
	w.jobs.submit = func(_ context.Context, r job.Request) (job.Receipt, error) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, r)
		id := mustID(r.RequestID)
		return job.Receipt{JobID: id, State: job.Queued, CreatedAt: now}, nil
	}
	w.server.deps.Clients = recordingClients{w.clients, func(token string) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, token)
	}}
	w.start()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 8}, Timeout: patience}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			for n := range each {
				mark := fmt.Sprintf("%06d%06d", sender, n)
				body := fmt.Sprintf(`{"type":"EMIT_EVENT","callback":"http://%s.example","params":{"m":"%s"},"idempotency_key":"k%s",`+
					`"event":{"name":"e%s","data":"%s"}}`, mark, mark, mark, mark, mark)
				r, _ := http.NewRequest("POST", w.url+"/v1/jobs", strings.NewReader(body))
				id := "00000000-0000-4000-8000-" + mark
				r.Header = http.Header{
					"Authorization": {"Bearer " + goodKey + mark}, "Content-Type": {"application/json"},
					"X-Request-Id": {id}, "X-Correlation-Id": {"c" + mark},
				}
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.Header.Get("X-Request-Id") != id || !strings.Contains(string(text), id) || res.Header.Get("Location") != "/v1/jobs/"+id {
					t.Errorf("sent %s, got %s %s", id, res.Header, text)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, kept, senders*each)
	require.Len(t, tokens, senders*each)
	want := map[string]bool{}
	for _, r := range kept {
		mark := r.RequestID[24:]
		require.False(t, want[mark], "%s came twice", mark)
		want[mark] = true
		require.Equal(t, "c"+mark, r.CorrelationID)
		require.Equal(t, "k"+mark, r.IdempotencyKey)
		require.Equal(t, "http://"+mark+".example", r.Callback)
		require.Equal(t, `{"m":"`+mark+`"}`, string(r.Params))
		require.Equal(t, "e"+mark, r.Emit.Name)
		require.Equal(t, `"`+mark+`"`, string(r.Emit.Data))
	}
	for _, token := range tokens {
		mark := strings.TrimPrefix(token, goodKey)
		require.True(t, want[mark], token)
		delete(want, mark)
	}
}

// recordingClients keeps the tokens it sees, and takes any that starts with
// the good key.
type recordingClients struct {
	*fakeClients
	see func(token string)
}

func (c recordingClients) Authenticate(ctx context.Context, token string) (job.Caller, error) {
	c.see(token)
	return c.fakeClients.Authenticate(ctx, token[:len(goodKey)])
}
