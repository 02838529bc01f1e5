package operator_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const patience = 30 * time.Second

// stream opens a stream and gives its lines; the channel is closed at its end.
func (w *world) stream(server *httptest.Server) <-chan string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/admin/v1/live", http.NoBody)
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+readToken)
	response, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	require.Equal(w.t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer func() { _ = response.Body.Close() }()
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func next(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for {
		select {
		case line, open := <-lines:
			require.True(t, open, "the stream has ended")
			if line == want {
				return
			}
		case <-time.After(patience):
			require.Fail(t, "not told", want)
		}
	}
}

// Everybody who listens is told that something has happened, and storage is asked for all of them together.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	w.store.mark("1")
	one, two := w.stream(server), w.stream(server)
	next(t, one, "event: changed")
	w.store.mark("2")
	next(t, one, "event: changed")
	next(t, two, "event: changed")
	w.store.failMark(job.Errorf(job.CodeStorageUnavailable, "The database is away."))
	w.store.mark("3")
	w.store.failMark(nil)
	next(t, two, "event: changed")
	w.api.Close()
	w.api.Close()
	for _, lines := range []<-chan string{one, two} {
		for range lines { // to its end
		}
	}
	require.Eventually(t, func() bool { return !w.store.askedFor() }, patience, 10*time.Millisecond, "nobody listens, and nobody asks")
}

func TestLiveIsForOperatorsAndBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, http.StatusUnauthorized, w.send("", "GET", "/admin/v1/live", "").StatusCode)
	require.Equal(t, http.StatusUnauthorized, w.send("frk_a_b", "GET", "/admin/v1/live", "").StatusCode)
	require.Equal(t, http.StatusBadRequest, w.get("/admin/v1/live?x=1").StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, w.send(changeToken, "POST", "/admin/v1/live", "").StatusCode)
	head := w.send(readToken, "HEAD", "/admin/v1/live", "")
	require.Equal(t, http.StatusOK, head.StatusCode)

	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	t.Cleanup(w.api.Close)
	for range 100 {
		w.stream(server)
	}
	refused := w.get("/admin/v1/live")
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.Equal(t, "15", refused.Header.Get("Retry-After"))
	require.True(t, strings.Contains(refused.text, "another process"), refused.text)
}
