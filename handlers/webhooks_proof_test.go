package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestRegistrationAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhooks.asks = true
	const body = `{"url":"https://example.com/x","events":["*"]}`
	for i, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		a := w.send("POST", "/v1/webhooks", body, headers...)
		require.Equal(t, 201, a.StatusCode, a.text)
		require.Contains(t, a.text, testSecret)
		require.Len(t, w.webhooks.proved, i+1)
		require.True(t, w.webhooks.request.Proven)
	}
	a := w.send("POST", "/v1/webhooks", body, "Idempotency-Key", "k")
	require.Equal(t, 201, a.StatusCode, a.text)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	require.Len(t, w.webhooks.proved, 2, "for a known key nobody is asked")
	a = w.send("POST", "/v1/webhooks", `{"url":1,"events":["*"]}`)
	a.requireProblem(t, job.CodeMalformed)
	require.Len(t, w.webhooks.proved, 2, "nor for what is refused anyhow")

	w.webhooks.says = func() error {
		return job.Invalid(job.Violation{Pointer: "/url", Detail: "The receiver said nothing."})
	}
	for _, headers := range [][]string{nil, {"Idempotency-Key", "l"}} {
		a = w.send("POST", "/v1/webhooks", body, headers...)
		a.requireProblem(t, job.CodeValidationFailed)
		require.Contains(t, a.text, "The receiver said nothing.")
		require.Empty(t, a.Header.Get("Location"))
	}
	w.webhooks.says = nil
	a = w.send("POST", "/v1/webhooks", body, "Idempotency-Key", "l")
	require.Equal(t, 201, a.StatusCode, "a refusal leaves the key free")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
}

func TestChangeOfTheURLAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.full()
	w.webhooks.asks = true
	require.Equal(t, 200, w.send("PATCH", webhookSelf, `{"enabled":true}`).StatusCode)
	require.Empty(t, w.webhooks.proved)
	a := w.send("PATCH", webhookSelf, `{"url":"https://example.com/y"}`)
	require.Equal(t, 200, a.StatusCode, a.text)
	require.Equal(t, []string{"https://example.com/y"}, w.webhooks.proved)
	require.True(t, w.webhooks.patch.Proven)
}

// While a receiver is asked, the client's place at the storage is free: receivers
// that hang keep nobody's changes waiting.
func TestWhileAReceiverIsAskedNoPlaceIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhooks.asks = true
	before := free(w)
	asked, answered := make(chan struct{}), make(chan struct{})
	w.webhooks.says = func() error {
		close(asked)
		<-answered
		return nil
	}
	done := make(chan *answer)
	go func() { done <- w.send("POST", "/v1/webhooks", `{"url":"https://example.com/x","events":["*"]}`) }()
	<-asked
	require.Equal(t, before, free(w), "as many as when there is no request")
	close(answered)
	require.Equal(t, 201, (<-done).StatusCode)
}

// free counts the places for changes that are free, for a client each.
func free(w *world) (n int) {
	places := w.server.places.writes
	for places.TryAcquire(job.ID{byte(n)}) {
		n++
	}
	for i := range n {
		places.Release(job.ID{byte(i)})
	}
	return n
}
