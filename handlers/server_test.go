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

// TestClientsDoNotMix keeps every request that the use cases get, while many
// clients send at once over few connections, and sees afterwards that each is
// still what its client sent: Fiber's strings would have changed by then.
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
	for sender := range senders {
		wg.Go(func() {
			for n := range each {
				mark := fmt.Sprintf("%06d%06d", sender, n)
				body := strings.ReplaceAll(`{"type":"EMIT_EVENT","callback":"http://#.example","params":{"m":"#"},"idempotency_key":"k#",`+
					`"event":{"name":"e#","data":"#"}}`, "#", mark)
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
	for id, r := range kept {
		mark := id[24:]
		require.True(t, tokens[goodKey+mark], mark)
		require.Equal(t, strings.ReplaceAll(`c# k# http://#.example {"m":"#"} e# "#"`, "#", mark),
			strings.Join([]string{r.CorrelationID, r.IdempotencyKey, r.Callback, string(r.Params), r.Emit.Name, string(r.Emit.Data)}, " "))
	}
}
