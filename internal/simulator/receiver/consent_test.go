package receiver_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/receiver"
)

// A service that asks first, as "HTTP 1.1 Web Hooks for Event Delivery" says, may
// send; the question is no message.
func TestReceiversSayThatTheyWantEvents(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	ask := func(url, origin string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil)
		require.NoError(t, err)
		if origin != "" {
			r.Header.Set("WebHook-Request-Origin", origin)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer
	}
	answer := ask(b.URL(0, "hook"), "forgerun.example")
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
	require.Equal(t, []string{"forgerun.example", "*", "POST, OPTIONS"}, []string{
		answer.Header.Get("WebHook-Allowed-Origin"), answer.Header.Get("WebHook-Allowed-Rate"), answer.Header.Get("Allow"),
	})
	require.Empty(t, ask(b.URL(0, "hook"), "").Header.Get("WebHook-Allowed-Origin"), "nobody asked")
	require.Equal(t, http.StatusNotFound, ask(b.URL(0, "unknown"), "forgerun.example").StatusCode)
	require.Empty(t, b.facts())
}
