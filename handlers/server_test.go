package handlers

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestShutdownBeforeServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.server.Shutdown(context.Background()))
	require.NoError(t, w.server.Shutdown(context.Background()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(l) }()
	require.NoError(t, within(t, served), "a server that was shut down does not start")
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}

// serving starts a server without a cleanup; the channel gets Serve's error.
func serving(t *testing.T, w *world) (string, chan error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(l) }()
	return "http://" + l.Addr().String(), served
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
	url, served := serving(t, w)
	status := make(chan int, 1)
	go func() {
		r, _ := http.NewRequest("GET", url+jobPath(jobID), nil)
		r.Header.Set("Authorization", "Bearer "+goodKey)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			status <- 0
			return
		}
		_ = res.Body.Close()
		if !res.Close {
			t.Error("the answer does not say that the connection ends")
		}
		status <- res.StatusCode
	}()
	within(t, entered)
	stopped := make(chan error, 1)
	go func() { stopped <- w.server.Shutdown(context.Background()) }()
	require.NoError(t, within(t, served), "Serve ends as soon as it accepts no more")
	_, err := http.Get(url + "/healthz")
	require.Error(t, err)
	select {
	case err := <-stopped:
		t.Fatal("a request is under way, but Shutdown returned", err)
	default:
	}
	close(leave)
	require.Equal(t, 200, within(t, status))
	require.NoError(t, within(t, stopped))
	require.NoError(t, w.server.Shutdown(context.Background()), "twice is fine")
}

// HTTP clients open connections in advance. One on which nothing has come must
// not hold the shutdown up until fasthttp takes it for idle, after 5 s.
func TestShutdownDoesNotWaitForSilentConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, served := serving(t, w)
	silent, err := net.Dial("tcp", url[len("http://"):])
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	res, err := http.Get(url + "/healthz") // the listener has taken the one before
	require.NoError(t, err)
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	require.NoError(t, w.server.Shutdown(ctx))
	require.NoError(t, within(t, served))
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
	url, served := serving(t, w)
	answers := make(chan *answer, 1)
	go func() {
		defer close(answers)
		c, err := net.Dial("tcp", url[len("http://"):])
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "GET "+jobPath(jobID)+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+"\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return
		}
		text, _ := io.ReadAll(res.Body)
		answers <- &answer{res, string(text)}
	}()
	within(t, entered)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.server.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, within(t, served))
	a := within(t, answers)
	require.NotNil(t, a)
	a.requireProblem(t, job.CodeStorageUnavailable)
}

// within receives, and gives up on what does not come.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "it did not come in time")
		panic("unreachable")
	}
}
