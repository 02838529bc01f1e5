package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that is silent is given up and the stream resumed; heartbeats
// keep one alive, and a slow reader does not end it.
func TestAStalledStreamIsResumed(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := connections.Add(1)
		if n == 1 {
			<-r.Context().Done() // not even a status
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if n == 2 {
			_, _ = fmt.Fprint(w, "retry: 1\n\nid: 1\ndata: {}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		for range 15 { // heartbeats for longer than the limit
			_, _ = fmt.Fprint(w, ":\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
		_, _ = fmt.Fprint(w, "id: 2\ndata: {}\n\n")
	}))
	defer server.Close()
	c, err := New(Config{URL: server.URL})
	require.NoError(t, err)
	c.stall = 250 * time.Millisecond
	var ids []string
	for m, err := range c.Stream(t.Context(), StreamOptions{JobID: "j"}) {
		require.NoError(t, err)
		ids = append(ids, m.ID)
		time.Sleep(c.stall + 50*time.Millisecond) // a reader that is busy
		if m.ID == "2" {
			break
		}
	}
	require.Equal(t, []string{"1", "2"}, ids)
	require.EqualValues(t, 3, connections.Load())
}
