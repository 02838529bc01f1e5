package operator_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func (w *world) serve() string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	served := make(chan error, 1)
	go func() { served <- w.api.Serve(l) }()
	w.t.Cleanup(func() {
		w.stop()
		require.NoError(w.t, <-served)
	})
	return "http://" + l.Addr().String()
}

func (w *world) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	require.NoError(w.t, w.api.Shutdown(ctx))
}

func (w *world) stream(url string) <-chan string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testkit.Patience)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/admin/v1/live", http.NoBody)
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

func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := w.stream(w.serve())
	for _, event := range []string{"changed", "beat"} {
		for line := ""; line != "event: "+event; {
			var open bool
			line, open = <-lines
			require.True(t, open, "the stream has ended")
		}
	}
	w.stop()
	w.stop()
	for range lines {
	}
}

func TestLiveIsForOperatorsAndBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, http.StatusUnauthorized, w.send("", "GET", "/admin/v1/live", "").StatusCode)
	require.Equal(t, http.StatusUnauthorized, w.send("frk_a_b", "GET", "/admin/v1/live", "").StatusCode)
	require.Equal(t, http.StatusBadRequest, w.get("/admin/v1/live?x=1").StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, w.post("/admin/v1/live", "").StatusCode)
	require.Equal(t, http.StatusOK, w.send(readToken, "HEAD", "/admin/v1/live", "").StatusCode)

	url := w.serve()
	for range 100 {
		w.stream(url)
	}
	refused := w.get("/admin/v1/live").requireStatus(t, http.StatusServiceUnavailable)
	require.Equal(t, "15", refused.Header.Get("Retry-After"))
	require.Contains(t, refused.text, "another process")
}

func TestGetOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for query, step := range map[string]string{"": "10", "?window=15m": "10", "?window=1h": "60", "?window=24h": "300"} {
		text := w.get("/admin/v1/overview" + query).text
		for _, part := range []string{`"QUEUED":2`, `"alive":1,"slots":4,"held":0`, `"history":{"step_seconds":` + step} {
			require.Contains(t, text, part)
		}
	}
}
