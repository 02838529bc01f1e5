package experiments

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An endpoint answers at once and counts a delivery once, however often it comes. One that hangs lets go when it is closed.
func TestReceivers(t *testing.T) {
	t.Parallel()
	r := newReceivers()
	urls := map[string]string{}
	for _, path := range []string{"/", hangPath} {
		url, err := r.open(path)
		require.NoError(t, err)
		urls[path] = url
	}
	send := func(path, id string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, urls[path], http.NoBody)
		require.NoError(t, err)
		request.Header.Set("webhook-id", id)
		request.Header.Set("ce-time", time.Now().Add(-time.Second).Format(time.RFC3339Nano))
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	hung := make(chan error, 1)
	go func() { hung <- send(hangPath, "c") }()
	for _, id := range []string{"a", "b", "a"} {
		require.NoError(t, send("/", id))
	}
	require.NoError(t, r.await(t.Context(), 2))
	require.EqualValues(t, 2, r.latency.TotalCount())
	require.GreaterOrEqual(t, r.latency.Min(), time.Second.Microseconds()*99/100)
	require.Positive(t, r.rate())
	require.NoError(t, r.close())
	require.Error(t, <-hung)
}
