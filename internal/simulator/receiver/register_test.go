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
		case <-time.After(100 * time.Millisecond): // in which one that does not wait mostly comes
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

func TestAddresses(t *testing.T) {
	t.Parallel()
	b := start(t, receiver.Options{})
	require.Equal(t, "http://"+b.Addr()+"/3/hook", b.URL(3, "hook"))
	_, err := receiver.Listen(b.Addr(), "", receiver.Options{})
	require.ErrorContains(t, err, "cannot listen")
	_, err = receiver.Listen(":0", "", receiver.Options{})
	require.ErrorContains(t, err, "say with --receiver-url how the service reaches this machine")
	for _, wrong := range []string{"hooks.example.com", "ftp://hooks.example.com", "http://", "http://x/?a", "http://x/#a"} {
		require.ErrorContains(t, b.SetURL("", wrong), "is not an address of the receiver", wrong)
		_, err := receiver.Listen("127.0.0.1:0", wrong, receiver.Options{})
		require.Error(t, err, wrong)
	}
	for _, path := range []string{"/", "/hook", "/0/other", "/x/hook", "/-1/hook", "/0/hook/"} {
		status, err := delivery{url: "http://" + b.Addr() + path, at: time.Now()}.send(t.Context(), t)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, status, path)
	}

	// Behind proxies, of which one cuts the path of the public address off.
	require.NoError(t, b.SetURL("", "https://hooks.example.com/run/"))
	require.Equal(t, "https://hooks.example.com/run/0/hook", b.URL(0, "hook"))
	for _, path := range []string{"/run/0/hook", "/0/hook"} {
		d := of("http://"+b.Addr()+path, "d-1", "job-1")
		d.signedURL = b.URL(0, "hook")
		status, err := d.send(t.Context(), t)
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, status, path)
	}
	require.Len(t, b.facts(), 2, "what comes elsewhere is nobody's")
}

// Receivers with addresses of their own are reached there, and others where all are.
func TestReceiversOfTheirOwn(t *testing.T) {
	t.Parallel()
	facts, err := history.Create(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, facts.Close()) })
	r, err := receiver.Listen("127.0.0.1:0", "", receiver.Options{Names: map[string][]receiver.Answer{"one": nil, "two": nil}, History: facts})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	own, err := r.Open("one")
	require.NoError(t, err)
	require.NotEqual(t, "http://"+r.Addr(), own)
	require.Equal(t, own+"/0/one", r.URL(0, "one"))
	require.Equal(t, "http://"+r.Addr()+"/0/two", r.URL(0, "two"))
	for _, address := range []string{r.URL(0, "one"), r.URL(0, "two")} {
		answer, err := http.Get(address)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
	require.NoError(t, r.SetURL("one", "http://127.0.0.1:1/proxied/"))
	require.Equal(t, "http://127.0.0.1:1/proxied/2/one", r.URL(2, "one"))
	require.ErrorContains(t, r.SetURL("one", "127.0.0.1:1"), "not an address")
}
