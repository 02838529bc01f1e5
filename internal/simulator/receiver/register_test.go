package receiver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
)

// TestMessagesBeforeTheRegistrationResponse sends a message before the service has responded to the registration. This happens when an
// event of another job occurs meanwhile.
func TestMessagesBeforeTheRegistrationResponse(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	const secret = "whsec_c2VjcmV0LW9mLXRlbmFudC0yLXNlY3JldC0y"
	type answer struct {
		status int
		err    error
	}
	answers := make(chan answer, 1)
	require.NoError(t, b.Register(2, "hook", func(url string) (string, string, error) {
		require.Equal(t, b.URL(2, "hook"), url)
		d := of(url, "d-1", "job-1")
		d.secret = secret
		go func() {
			status, err := d.send(t.Context(), t)
			answers <- answer{status, err}
		}()
		select {
		case early := <-answers:
			t.Errorf("answered %d before the webhook was known (%v)", early.status, early.err)
		case <-time.After(100 * time.Millisecond): // a receiver that does not wait usually responds within this time
		}
		return "webhook-2", secret, nil
	}))
	got := <-answers
	require.NoError(t, got.err)
	require.Equal(t, http.StatusNoContent, got.status)
	facts := b.facts()
	require.Len(t, facts, 1)
	require.Equal(t, history.Received, facts[0].Kind, facts[0].Note)
	require.Equal(t, "webhook-2", facts[0].Delivery.Webhook)
}

// The receiver accepts the handshake of "HTTP 1.1 Web Hooks for Event Delivery" and does not count it as a message.
func TestReceiversAcceptHandshake(t *testing.T) {
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
	require.Empty(t, ask(b.URL(0, "hook"), "").Header.Get("WebHook-Allowed-Origin"), "no Origin header was sent")
	require.Equal(t, http.StatusNotFound, ask(strings.Replace(b.URL(0, "hook"), "hook", "unknown", 1), "forgerun.example").StatusCode)
	require.Empty(t, b.facts())
}
