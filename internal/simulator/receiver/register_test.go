package receiver_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
)

// TestMessagesBeforeTheAnswerToTheRegistration sends while the service has not yet
// said what it registered, as another job's event may.
func TestMessagesBeforeTheAnswerToTheRegistration(t *testing.T) {
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
		case <-time.After(200 * time.Millisecond): // long enough for an answer that does not wait
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

// TestARefusedRegistration leaves the address without a webhook.
func TestARefusedRegistration(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	refused := errors.New("refused")
	require.ErrorIs(t, b.Register(2, "hook", func(string) (string, string, error) { return "webhook-2", secretText, refused }), refused)
	status, err := of(b.URL(2, "hook"), "d-1", "job-1").send(t.Context(), t)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, status)
	require.Empty(t, b.facts()[0].Delivery.Webhook)
}
