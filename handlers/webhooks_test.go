package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

const webhookSelf = "/v1/webhooks/01890000-0000-7000-8000-0000000000c1"

const aHook = `{"url":"https://example.com/x","events":["*"]}`

func TestRegisterWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/webhooks",
		`{"url":"https://example.com/x","events":["job.failed","*","job.failed"],"description":"ä\n","content_mode":"structured",`+
			`"idempotency_key":"k"}`)
	require.Equal(t, 201, a.StatusCode, a.text)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.NotContains(t, w.log.String(), "whsec_")
	require.Contains(t, w.log.String(), `"webhook_id":"`+webhookID.String()+`"`)
	got := w.webhooks.request
	require.NotZero(t, got.Hash)
	got.Hash = [32]byte{}
	require.Equal(t, job.WebhookRequest{
		ClientID: clientA, URL: "https://example.com/x", Events: []string{"job.failed", "*"},
		Description: "ä\n", ContentMode: job.ContentStructured, IdempotencyKey: "k",
	}, got)
	for i := range 2 {
		a = w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", `"again"`)
		require.Equal(t, 201, a.StatusCode)
		require.Equal(t, i == 1, a.Header.Get("Idempotency-Replayed") == "true")
		require.Equal(t, i == 0, strings.Contains(a.text, testSecret), "a secret is shown once")
		require.Equal(t, webhookSelf, a.Header.Get("Location"))
	}
	require.Equal(t, "again", w.webhooks.request.IdempotencyKey)
	for _, code := range []job.Code{job.CodeConflict, job.CodeConfigInvalid, job.CodeStorageUnavailable} {
		w.webhooks.err = job.Errorf(code, "No.")
		w.send("POST", "/v1/webhooks", aHook).requireProblem(t, code)
		w.send("POST", webhookSelf+"/test", "").requireProblem(t, code)
		w.send("POST", webhookSelf+"/rotate-secret", "{}").requireProblem(t, code)
	}
}

func TestUpdateWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	url, text, mode, on, off := "https://example.org", "", job.ContentStructured, true, false
	for body, want := range map[string]job.WebhookPatch{
		`{"url":"https://example.org"}`: {URL: &url}, `{"events":["*"]}`: {Events: []string{"*"}}, `{"description":""}`: {Description: &text},
		`{"content_mode":"structured"}`: {ContentMode: &mode}, `{"enabled":false}`: {Enabled: &off},
		"{\n\"enabled\" : true , \"content_mode\":\"structured\",\"url\":\"https://example.org\"}": {Enabled: &on, ContentMode: &mode, URL: &url},
	} {
		for _, media := range []string{"application/json", "application/merge-patch+json"} {
			require.Equal(t, 200, w.send("PATCH", webhookSelf, body, "Content-Type", media).StatusCode)
			require.Equal(t, want, w.webhooks.patch, body)
		}
	}
}

func TestSendAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.webhooks.replay = job.Replay{Queued: 7}
	for _, path := range []string{webhookSelf + "/redeliver", webhookSelf + "/replay"} {
		a := w.send("POST", path, `{"since":"2030-01-31T12:00:00.1234560+00:00"}`)
		require.Equal(t, 202, a.StatusCode)
		require.JSONEq(t, `{"queued": 7, "next_cursor": null}`, a.text)
		require.Equal(t, now, w.webhooks.since)
		w.send("POST", path, "").requireProblem(t, job.CodeMalformed)
	}
	require.Equal(t, []int{1, 1}, []int{w.webhooks.failures, w.webhooks.replays})
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, job.Errorf(job.CodeStorageUnavailable, "Storage is away."), errors.New("planted secret")} {
		w := newWorld(t, func(_ *Config, d *Deps) {
			d.Directory = func(context.Context) ([]byte, error) { return []byte(keyDirectory), failure }
		})
		a := w.send("GET", "/.well-known/http-message-signatures-directory", "", "Authorization", "-", "Accept", "text/plain")
		require.Equal(t, map[bool]string{true: "public, max-age=300", false: "no-store"}[failure == nil], a.Header.Get("Cache-Control"))
		require.Equal(t, failure == nil, a.text == keyDirectory)
		require.NotContains(t, a.text, "planted")
	}
}

func TestRegistrationAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.webhooks.asks = true
	for i, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		a := w.send("POST", "/v1/webhooks", aHook, headers...)
		require.Equal(t, 201, a.StatusCode, a.text)
		require.Contains(t, a.text, testSecret)
		require.Len(t, w.webhooks.proved, i+1)
		require.True(t, w.webhooks.request.Proven)
	}
	a := w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "k")
	require.Equal(t, 201, a.StatusCode, a.text)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	require.Len(t, w.webhooks.proved, 2, "for a known key the receiver is not asked")
	a = w.send("POST", "/v1/webhooks", `{"url":1,"events":["*"]}`)
	a.requireProblem(t, job.CodeMalformed)
	require.Len(t, w.webhooks.proved, 2, "nor for what is refused anyhow")

	w.webhooks.says = func() error {
		return job.Invalid(job.Violation{Pointer: "/url", Detail: "The receiver said nothing."})
	}
	for _, headers := range [][]string{nil, {"Idempotency-Key", "l"}} {
		a = w.send("POST", "/v1/webhooks", aHook, headers...)
		a.requireProblem(t, job.CodeValidationFailed)
		require.Contains(t, a.text, "The receiver said nothing.")
		require.Empty(t, a.Header.Get("Location"))
	}
	w.webhooks.says = nil
	a = w.send("POST", "/v1/webhooks", aHook, "Idempotency-Key", "l")
	require.Equal(t, 201, a.StatusCode, "a refusal leaves the key free")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
}

func TestChangeOfTheURLAsksTheReceiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
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
	done := w.inBackground("POST", "/v1/webhooks", aHook)
	within(t, asked)
	require.Equal(t, before, free(w), "as many as when there is no request")
	close(answered)
	require.Equal(t, 201, within(t, done).StatusCode)
}

// free counts the slots for changes that are free, for a client each.
func free(w *world) (n int) {
	slots := w.server.Slots.Writes
	for slots.TryAcquire(job.ID{byte(n)}) {
		n++
	}
	for i := range n {
		slots.Release(job.ID{byte(i)})
	}
	return n
}

const (
	ofOneWebhook = webhookSelf + "/deliveries"
	ofOneJob     = jobSelf + "/deliveries"
)

// owners are those whose deliveries are at a path.
var owners = map[string]job.DeliveryOwner{ofOneWebhook: {WebhookID: webhookID}, ofOneJob: {JobID: jobID}}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for path, owner := range owners {
		w.send("GET", path+"?limit=7&cursor="+w.send("GET", path, "").cursor(t), "").page(t)
		require.Equal(t, job.DeliveryQuery{Owner: owner, Limit: 7, After: nextID}, w.webhooks.query)
		self := path + "/" + deliveryID.String()
		a := w.send("GET", self, "")
		require.Equal(t, []any{200, owner, deliveryID}, []any{a.StatusCode, w.webhooks.owner, w.webhooks.of})
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), "whatever the receiver sent")
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		a = w.send("POST", self+"/redeliver", "{}")
		require.Equal(t, []any{202, owner, self}, []any{a.StatusCode, w.webhooks.owner, a.Header.Get("Location")})
		require.NotContains(t, a.text, "attempts_log")
		w.send("POST", self+"/redeliver", `{"since":"2030-01-31T12:00:00Z"}`).requireProblem(t, job.CodeMalformed)
	}
	for _, id := range []string{webhookID.String(), "x", "%00", strings.ToUpper(deliveryID.String()) + "0"} {
		w.send("GET", ofOneWebhook+"/"+id, "").requireProblem(t, job.CodeRequestNotFound)
		w.send("POST", ofOneJob+"/"+id+"/redeliver", "").requireProblem(t, job.CodeRequestNotFound)
	}
	require.Equal(t, httpkit.UnknownID, w.webhooks.of)
	w.webhooks.err = &job.Error{Code: job.CodeJobGone, Detail: "Gone.", ExpiredAt: &now}
	w.send("GET", ofOneJob, "").requireProblem(t, job.CodeJobGone)
}
