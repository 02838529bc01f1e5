package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReceiverAddresses(t *testing.T) {
	t.Parallel()
	r, err := listenReceiver("127.0.0.1:0", "")
	require.NoError(t, err)
	defer r.close()
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, r.url)
	_, err = listenReceiver(strings.TrimPrefix(r.url, "http://"), "")
	require.ErrorContains(t, err, "choose another --receiver-addr")
	_, err = listenReceiver(":0", "")
	require.ErrorContains(t, err, "say with --receiver-url how the service reaches this machine")
	everywhere, err := listenReceiver(":0", "https://hooks.example.com/tour/")
	require.NoError(t, err)
	defer everywhere.close()
	require.True(t, strings.HasPrefix(everywhere.hook("X").url, "https://hooks.example.com/tour/x/"))
	for _, wrong := range []string{"hooks.example.com", "ftp://hooks.example.com", "http://", "http://x/?a", "http://x/#a"} {
		_, err = listenReceiver("127.0.0.1:0", wrong)
		require.ErrorContains(t, err, "give --receiver-url such as", wrong)
	}
}

// TestReceiverFollowsItsScript: tries are answered in turn, those of other jobs
// and at other places are not counted, one that must not be answered is left
// until the sender or the tour ends.
func TestReceiverFollowsItsScript(t *testing.T) {
	t.Parallel()
	r, err := listenReceiver("127.0.0.1:0", "")
	require.NoError(t, err)
	defer r.close()
	h := r.hook("WEBHOOK_5XX", unavailable, accepted, unanswered)
	send := func(ctx context.Context, url, body string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	first := make(chan int, 1)
	go func() { // comes before the answer to the submission
		status, _ := send(t.Context(), h.url, `{"jobId":"1"}`)
		first <- status
	}()
	time.AfterFunc(50*time.Millisecond, func() { h.expect("1") })
	require.Equal(t, http.StatusServiceUnavailable, <-first)

	for _, c := range []struct {
		url, body string
		status    int
	}{
		{r.url + "/elsewhere", `{"jobId":"1"}`, http.StatusNotFound},
		{h.url, `{"jobId":"2"}`, http.StatusNoContent},
		{h.url, `{"jobId":"1"}`, http.StatusNoContent},
	} {
		status, err := send(t.Context(), c.url, c.body)
		require.NoError(t, err)
		require.Equal(t, c.status, status)
	}
	seen, open := h.received()
	require.Len(t, seen, 2, "the other job's is not counted")
	require.False(t, open)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = send(ctx, h.url, `garbage`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	seen, _ = h.received()
	require.Len(t, seen, 3, "what is of no job counts as this one's, to be judged")

	ended := make(chan error, 1)
	go func() {
		_, err := send(t.Context(), h.url, `{"jobId":"1"}`)
		ended <- err
	}()
	require.Eventually(t, func() bool { seen, open := h.received(); return len(seen) == 4 && open }, 10*time.Second, time.Millisecond)
	r.close()
	require.Error(t, <-ended)
}
