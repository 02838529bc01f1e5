package operator_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/operator"
)

// What reads is sent again when Retry-After has passed; what changes is sent once.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	var reads, changes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && reads.Add(1) == 2 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"ok": true}`)
			return
		}
		if r.Method == http.MethodPost {
			changes.Add(1)
		}
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(server.Close)
	c, err := operator.New(server.URL+"/admin/v1/", "token-of-the-operator", "test")
	require.NoError(t, err)
	began := time.Now()
	answer, err := c.Get(t.Context(), "/system", nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"ok": true}`, string(answer))
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	_, err = c.Do(t.Context(), http.MethodPost, "/jobs/x/retry", nil)
	problem, ok := errors.AsType[*client.Problem](err)
	require.True(t, ok)
	require.Equal(t, time.Second, problem.RetryAfter)
	require.Equal(t, int64(1), changes.Load())
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", c, c, c), "token-of-the-operator")
}

func TestListReadsPages(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := map[string]string{"": `"a"`, "a": `"b"`, "b": "null"}[r.URL.Query().Get("cursor")]
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"data": [1, 2], "page": {"next_cursor": %s}}`, next)
	}))
	t.Cleanup(server.Close)
	c, err := operator.New(server.URL, "", "test")
	require.NoError(t, err)
	entries := 0
	for _, err := range c.List(t.Context(), "/jobs", url.Values{}, 3) {
		require.NoError(t, err)
		entries++
	}
	require.Equal(t, 6, entries)
	for _, address := range []string{"127.0.0.1:8081", "ftp://x", "http://user:secret@x"} {
		_, err := operator.New(address, "", "test")
		require.ErrorContains(t, err, "must look like")
		require.NotContains(t, err.Error(), "secret")
	}
}
