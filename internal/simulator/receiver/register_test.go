package receiver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
)

// A service may send messages for other jobs before it responds to the registration.
func TestMessagesBeforeTheRegistrationResponse(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	const secret = "whsec_c2VjcmV0LW9mLXRlbmFudC0yLXNlY3JldC0y"
	type result struct {
		status int
		err    error
	}
	results := make(chan result, 1)
	require.NoError(t, b.Register(2, "hook", func(url string) (string, string, error) {
		require.Equal(t, b.URL(2, "hook"), url)
		d := of(url, "d-1", "job-1")
		d.secret = secret
		go func() {
			status, err := d.send(t.Context(), t)
			results <- result{status, err}
		}()
		select {
		case early := <-results:
			t.Errorf("answered %d before the webhook was known (%v)", early.status, early.err)
		case <-time.After(100 * time.Millisecond): // a receiver that does not wait usually responds within this time
		}
		return "webhook-2", secret, nil
	}))
	got := <-results
	require.NoError(t, got.err)
	require.Equal(t, http.StatusNoContent, got.status)
	facts := b.facts()
	require.Len(t, facts, 1)
	require.Equal(t, history.Received, facts[0].Kind, facts[0].Note)
	require.Equal(t, "webhook-2", facts[0].Delivery.Webhook)
}

func TestReceiversAcceptHandshake(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, b.URL(0, "hook"), nil)
	require.NoError(t, err)
	r.Header.Set("WebHook-Request-Origin", "forgerun.example")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusNoContent, response.StatusCode)
	require.Equal(t, []string{"forgerun.example", "*", "POST, OPTIONS"}, []string{
		response.Header.Get("WebHook-Allowed-Origin"), response.Header.Get("WebHook-Allowed-Rate"), response.Header.Get("Allow"),
	})
	status, err := of(b.URL(0, "hook")+"s", "d-1", "job-1").send(t.Context(), t)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status)
	require.Empty(t, b.facts())
}
