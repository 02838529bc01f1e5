package handlers

import (
	"bufio"
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

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
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

func TestShutdownFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
		close(entered)
		<-leave
		return finishedJob(ctx, client, id)
	}
	w.start()
	answers := w.overNetwork()
	within(t, entered)
	stopped := make(chan error, 1)
	go func() { stopped <- w.server.Shutdown(context.Background()) }()
	require.NoError(t, within(t, w.served), "Serve ends as soon as it accepts no more")
	_, err := http.Get(w.url + "/healthz")
	require.Error(t, err)
	require.Empty(t, stopped, "a request is under way")
	close(leave)
	a := within(t, answers)
	require.Equal(t, 200, a.StatusCode)
	require.True(t, a.Close, "the answer says that the connection ends")
	require.NoError(t, within(t, stopped))
}

// overNetwork asks for a job on a connection of its own and gives the answer later.
func (w *world) overNetwork(headers ...string) chan *answer {
	w.t.Helper()
	c := w.dial()
	answers := make(chan *answer, 1)
	w.write(c, w.request("GET", jobSelf, append(headers, "Accept", "")...))
	go func() { answers <- w.read(bufio.NewReader(c)) }()
	return answers
}

func TestShutdownEndsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = time.Hour })
	entered := make(chan struct{})
	w.jobs.job = func(ctx context.Context, _, _ job.ID) (*job.Job, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.start()
	answers := w.overNetwork()
	within(t, entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, w.server.Shutdown(ctx), context.Canceled)
	within(t, answers).requireProblem(t, job.CodeStorageUnavailable)
}

// TestClientsDoNotMix keeps every request that the use cases get, while many clients send at once over few connections, and sees
// afterwards that each is still what its client sent: Fiber's strings would have changed by then.
func TestClientsDoNotMix(t *testing.T) {
	t.Parallel()
	const senders, each = 16, 60
	w := newWorld(t)
	var mu sync.Mutex
	kept, tokens := map[string]job.Request{}, map[string]bool{}
	w.jobs.submit = func(_ context.Context, r job.Request) (job.Receipt, error) {
		mu.Lock()
		defer mu.Unlock()
		kept[r.RequestID] = r
		return job.Receipt{JobID: mustID(r.RequestID), State: job.Queued, CreatedAt: now}, nil
	}
	w.clients.seen = func(_ context.Context, token string) {
		mu.Lock()
		defer mu.Unlock()
		tokens[token] = true
	}
	w.start()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 8}, Timeout: testkit.Patience}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	send := func(mark string) {
		body := strings.ReplaceAll(`{"type":"EMIT_EVENT","callback":"http://#.example","params":{"m":"#"},"idempotency_key":"k#",`+
			`"event":{"name":"e#","data":"#"}}`, "#", mark)
		r, _ := http.NewRequest("POST", w.url+"/v1/jobs", strings.NewReader(body))
		id := "00000000-0000-4000-8000-" + mark
		r.Header = http.Header{"Authorization": {"Bearer " + goodKey + mark}, "Content-Type": {"application/json"}, "X-Request-Id": {id},
			"X-Correlation-Id": {"c" + mark}}
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
	for sender := range senders {
		wg.Go(func() {
			for n := range each {
				send(fmt.Sprintf("%06d%06d", sender, n))
			}
		})
	}
	wg.Wait()
	require.Len(t, kept, senders*each)
	require.Len(t, tokens, senders*each)
	for id, r := range kept {
		mark := id[24:]
		require.True(t, tokens[goodKey+mark], mark)
		require.Equal(t, strings.ReplaceAll(`c# k# http://#.example {"m":"#"} e# "#"`, "#", mark),
			strings.Join([]string{r.CorrelationID, r.IdempotencyKey, r.Callback, string(r.Params), r.Emit.Name, string(r.Emit.Data)}, " "))
	}
}

// shortBody is a usual submission.
const shortBody = `{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`

// A caller that is not known, and what is refused for the load of the service, is answered before the body has come: it would otherwise
// hold memory and a connection for as long as the caller likes.
func TestRefusedBodiesAreNotAwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) { d.Admission = &fakeAdmission{full: true} }).start()
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
	for range 2 { // a small body is skipped, and the connection used again
		w.write(c, unknownKeyHead+framing(len(shortBody), false)+shortBody)
		w.read(r).requireProblem(t, job.CodeInvalidCredentials)
	}
}

// Memory is taken for what has arrived, not for what was announced, and all
// bodies together have a bound, as have those of one client.
func TestMemoryForBodiesIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodiesBytes = 4 * 70 << 10 }).start()
	announce := func(arrived int) io.ReadWriteCloser {
		c := w.dial()
		w.write(c, submitHead+framing(1<<20, false)+strings.Repeat(" ", arrived))
		return c
	}
	taken := func(n int, what string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return w.server.BodyMemory() == n })
	}
	small := announce(100)
	require.Zero(t, w.server.BodyMemory(), "a small part of a body costs nothing but its connection")
	first := announce(20 << 10)
	taken(64<<10, "memory is taken")
	a := w.read(bufio.NewReader(announce(20 << 10)))
	a.requireProblem(t, job.CodeQueueFull)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", shortBody).StatusCode, "small ones pass")

	require.NoError(t, first.Close())
	require.NoError(t, small.Close())
	taken(0, "what was taken is given back")
	large := fmt.Sprintf(`{"type":"EXECUTE","params":{"a":%q}}`, strings.Repeat("a", 60<<10))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", large).StatusCode)
	taken(0, "and that of a good one")
}

// The time of a request is for its work: it does not run out while its body
// arrives.
func TestSlowBodyKeepsTheTimeOfItsRequest(t *testing.T) {
	t.Parallel()
	known, deadline := make(chan struct{}, 1), make(chan time.Time, 1)
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = time.Minute })
	w.clients.seen = func(context.Context, string) { known <- struct{}{} }
	w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
		at, _ := ctx.Deadline()
		deadline <- at
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
	}
	w.start()
	c := w.dial()
	w.write(c, submitHead+framing(len(shortBody), false)+shortBody[:1])
	within(t, known)
	time.Sleep(5 * time.Millisecond) // the body takes its time
	last := time.Now()
	w.write(c, shortBody[1:])
	require.Equal(t, 202, w.read(bufio.NewReader(c)).StatusCode)
	require.False(t, within(t, deadline).Before(last.Add(time.Minute)), "it begins anew")
}
