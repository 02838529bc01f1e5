package handlers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestShutdownBeforeServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shutdown()
	w.shutdown()
	w.start()
	require.NoError(t, within(t, w.served), "a server that was shut down does not start")
	_, err := net.Dial("tcp", w.url[len("http://"):])
	require.Error(t, err)
}

func (w *world) overNetwork(headers ...string) chan *reply {
	w.t.Helper()
	c := w.dial()
	answers := make(chan *reply, 1)
	w.write(c, w.request("GET", jobSelf, append(headers, "Accept", "")...))
	go func() { answers <- w.read(bufio.NewReader(c)) }()
	return answers
}

func TestShutdownCancelsSlowRequests(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	w := newKit(t, func(r *httpkit.Request) error {
		close(entered)
		<-r.Ctx.Done()
		return r.Ctx.Err()
	}, func(c *Config, _ *Deps) { c.RequestTimeout = time.Hour }).start()
	answers := w.overNetwork()
	within(t, entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, w.server.Shutdown(ctx), context.Canceled)
	within(t, answers).requireProblem(t, job.CodeStorageUnavailable)
}

// TestClientsDoNotMix sends requests of many clients at the same time over few connections. Each stored job must have the data of its own
// request: Fiber reuses buffers between requests.
func TestClientsDoNotMix(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 20
	w := newWorld(t).start()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 4}, Timeout: testkit.Patience}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	send := func(mark string) {
		body := strings.ReplaceAll(`{"type":"EMIT_EVENT","callback":"http://#.example","params":{"m":"#"},"idempotency_key":"k#",`+
			`"event":{"name":"e#","data":"#"}}`, "#", mark)
		r, _ := http.NewRequest("POST", w.url+"/v1/jobs", strings.NewReader(body))
		id := "00000000-0000-4000-8000-" + mark
		r.Header = http.Header{"Authorization": {"Bearer " + goodKey}, "Content-Type": {"application/json"}, "X-Request-Id": {id},
			"X-Correlation-Id": {"c" + mark}}
		res, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.Header.Get("X-Request-Id") != id || res.StatusCode != 202 {
			t.Errorf("sent %s, got %s %s", id, res.Status, res.Header)
		}
	}
	for sender := range senders {
		wg.Go(func() {
			for n := range each {
				send(fmt.Sprintf("%06d%06d", sender, n))
			}
		})
	}
	wg.Wait()
	kept := repotest.All[string](t, w.URL(), `SELECT concat_ws(' ', right(request_id, 12), correlation_id, key, callback, params,
		definition -> 'emit' ->> 'name', definition -> 'emit' ->> 'data')
		FROM jobs JOIN idempotency_keys ON resource_id = job_id WHERE type = 'EMIT_EVENT'`)
	require.Len(t, kept, senders*each)
	for _, line := range kept {
		require.Equal(t, strings.ReplaceAll(`# c# k# http://#.example {"m":"#"} e# #`, "#", line[:12]), line)
	}
}

// Unknown callers, and submissions that are refused because of overload, get their response before the body has arrived. Otherwise a
// slow body would hold memory and a connection.
func TestRefusedBodiesAreNotAwaited(t *testing.T) {
	t.Parallel()
	backlog := jobs.NewBacklog(1, func() time.Time { return now }, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, backlog.Enter())
	w := newWorld(t, backlogs(backlog)).start()
	unknownKeyHead := strings.Replace(submitHead, goodKey, "nobody's", 1)
	for head, code := range map[string]job.Code{
		unknownKeyHead + framing(1<<20, false):                               job.CodeInvalidCredentials,
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + framing(0, true) + "1\r\n": job.CodeInvalidCredentials,
		submitHead + framing(1<<20, false):                                   job.CodeQueueFull,
	} {
		a, _ := w.raw(head + "{")
		a.requireProblem(t, code)
		require.True(t, a.Close || code == job.CodeQueueFull)
	}
	c := w.dial()
	r := bufio.NewReader(c)
	for range 2 { // the server skips a small body and keeps the connection
		w.write(c, unknownKeyHead+framing(len(leastBody), false)+leastBody)
		w.read(r).requireProblem(t, job.CodeInvalidCredentials)
	}
}

// Memory is reserved for received bytes, not for the Content-Length. One limit is for all bodies together, another for each client's
// bodies.
func TestMemoryForBodiesIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodiesBytes = 4 * 70 << 10 }).start()
	announce := func(arrived int) io.ReadWriteCloser {
		c := w.dial()
		w.write(c, submitHead+framing(1<<20, false)+strings.Repeat(" ", arrived))
		return c
	}
	reserved := func(n int, what string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return w.server.BodyMemory() == n })
	}
	small := announce(100)
	require.Zero(t, w.server.BodyMemory(), "a small part of a body costs nothing but its connection")
	first := announce(20 << 10)
	reserved(64<<10, "memory is reserved")
	a := w.read(bufio.NewReader(announce(20 << 10)))
	a.requireProblem(t, job.CodeQueueFull)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", leastBody).StatusCode, "small bodies are accepted")

	require.NoError(t, first.Close())
	require.NoError(t, small.Close())
	reserved(0, "memory of an aborted body is released")
	large := fmt.Sprintf(`{"type":"EXECUTE","params":{"a":%q}}`, strings.Repeat("a", 60<<10))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", large).StatusCode)
	reserved(0, "memory of an accepted body is released")
}

func TestTimeLimitRestartsAfterSlowBody(t *testing.T) {
	t.Parallel()
	deadline := make(chan time.Time, 1)
	w := newKit(t, func(r *httpkit.Request) error {
		if _, err := r.JSONBody(false); err != nil {
			return err
		}
		at, _ := r.Ctx.Deadline()
		deadline <- at
		return r.JSON(202, "done")
	}, func(c *Config, _ *Deps) { c.RequestTimeout = time.Minute }).start()
	c := w.dial()
	w.write(c, submitHead+framing(len(leastBody), false)+leastBody[:1])
	testkit.Eventually(t, "the request has begun", func() bool { return series(t, w.registry)["http_requests_in_flight"] == 1 })
	time.Sleep(5 * time.Millisecond)
	last := time.Now()
	w.write(c, leastBody[1:])
	require.Equal(t, 202, w.read(bufio.NewReader(c)).StatusCode)
	require.False(t, within(t, deadline).Before(last.Add(time.Minute)), "the time limit restarts")
}
