package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

const webhookSelf = "/v1/webhooks/01890000-0000-7000-8000-0000000000c1"

// webhookMembers is what every answer has of aWebhook.
const webhookMembers = `"webhook_id": "01890000-0000-7000-8000-0000000000c1", "url": "https://example.com/hook?a=<b>",
	"events": ["job.*", "batch.completed"], "description": "Mine", "content_mode": "binary", "enabled": true,
	"disabled_at": null, "disabled_reason": null, "consecutive_failures": 0, "failing_since": null, "old_secret_expires_at": null,
	"proven_at": null, "created_at": "2030-01-31T12:00:00.123456Z", "updated_at": "2030-01-31T12:00:01.123456Z",
	"links": {"self": "` + webhookSelf + `", "deliveries": "` + webhookSelf + `/deliveries", "rotate_secret": "` + webhookSelf +
	`/rotate-secret", "test": "` + webhookSelf + `/test", "redeliver": "` + webhookSelf +
	`/redeliver", "replay": "` + webhookSelf + `/replay"}`

const aHook = `{"url":"https://example.com/x","events":["*"]}`

func TestRegisterWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/webhooks",
		`{"url":"https://example.com/x","events":["job.failed","*","job.failed"],"description":"ä\n","content_mode":"structured",`+
			`"idempotency_key":"k"}`)
	require.Equal(t, 201, a.StatusCode, a.text)
	require.JSONEq(t, `{`+webhookMembers+`, "secret": "`+testSecret+`"}`, a.text)
	require.Equal(t, webhookSelf, a.Header.Get("Location"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
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

	for _, code := range []job.Code{job.CodeConflict, job.CodeIdempotencyConflict, job.CodeConfigInvalid, job.CodeStorageUnavailable} {
		w.webhooks.err = job.Errorf(code, "No.")
		a = w.send("POST", "/v1/webhooks", aHook)
		a.requireProblem(t, code)
		require.Equal(t, code.Spec().Status == 503, a.Header.Get("Retry-After") != "")
	}
}

func TestReadWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.JSONEq(t, `{"data": [], "page": {"limit": 10, "next_cursor": null}}`, w.send("GET", "/v1/webhooks", "").text)
	w.full()
	a := w.send("GET", "/v1/webhooks", "")
	require.JSONEq(t, `{"data": [{`+webhookMembers+`}], "page": {"limit": 10, "next_cursor": null}}`, a.text)
	for _, a := range []*answer{w.send("GET", webhookSelf, ""), w.send("PATCH", webhookSelf, `{"enabled":true}`)} {
		require.JSONEq(t, `{`+webhookMembers+`}`, a.text, "a secret is shown once")
	}
	w.webhooks.find = func(context.Context, job.ID, job.ID) (*job.Webhook, error) {
		hook := aWebhook()
		hook.Disabled = &job.Disabled{At: *at(5), Reason: job.DisabledFailing}
		hook.Failures, hook.FailingFrom = 21, at(3)
		hook.Secrets = append(hook.Secrets, job.SealedSecret{Sealed: []byte("old"), Until: at(9)})
		return hook, nil
	}
	a = w.send("GET", webhookSelf, "")
	for _, part := range []string{
		`"enabled":false,"disabled_at":"2030-01-31T12:00:05.123456Z","disabled_reason":{"code":"FAILING",` +
			`"detail":"Deliveries kept failing; see the log of deliveries."}`,
		`"consecutive_failures":21,"failing_since":"2030-01-31T12:00:03.123456Z"`, `"old_secret_expires_at":"2030-01-31T12:00:09.123456Z"`,
		`"links":{"self":"` + webhookSelf + `","deliveries":"` + webhookSelf + `/deliveries","rotate_secret":"` + webhookSelf +
			`/rotate-secret"}`,
	} {
		require.Contains(t, a.text, part)
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

func TestUnregisterWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	for _, body := range []string{"", "{}"} {
		a := w.send("DELETE", webhookSelf, body)
		require.Equal(t, 200, a.StatusCode)
		require.JSONEq(t, `{"deleted": true}`, a.text)
	}
	w.send("DELETE", webhookSelf, `{"x":1}`).requireProblem(t, job.CodeMalformed)
}

func TestRotateSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	a := w.send("POST", webhookSelf+"/rotate-secret", "")
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{`+webhookMembers+`, "secret": "`+testSecret+`"}`, a.text)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.NotContains(t, w.log.String(), "whsec_")
	w.webhooks.err = job.Errorf(job.CodeConfigInvalid, "Set FORGERUN_MASTER_KEY.")
	require.Contains(t, w.send("POST", webhookSelf+"/rotate-secret", "{}").requireProblem(t, job.CodeConfigInvalid).Detail,
		"FORGERUN_MASTER_KEY")
}

func TestTestWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	a := w.send("POST", webhookSelf+"/test", "")
	require.Equal(t, 202, a.StatusCode)
	self := webhookSelf + "/deliveries/" + deliveryID.String()
	require.Contains(t, a.text, `"url":null,"job_id":null,"event_id":"`+eventID.String()+`","event_name":"webhook.test","seq":null,`)
	require.Contains(t, a.text, `"links":{"self":"`+self+`","redeliver":"`+self+`/redeliver"}`)
	require.Equal(t, self, a.Header.Get("Location"))
	require.Equal(t, "<"+self+`>; rel="status"`, a.Header.Get("Link"))
	w.webhooks.err = job.Errorf(job.CodeConflict, "The webhook is disabled.")
	w.send("POST", webhookSelf+"/test", "").requireProblem(t, job.CodeConflict)
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
		for body, at := range map[string]string{
			"": "", `{}`: "/since", `{"since":null}`: "/since", `{"since":1893456000}`: "/since", `[]`: "",
			`{"since":"2030-01-31T12:00:00Z","x":1}`: "/x", `{"since":"2030-01-31T12:00:00Z","cursor":7}`: "/cursor",
		} {
			p := w.send("POST", path, body).requireProblem(t, job.CodeMalformed)
			require.True(t, body == "" || len(p.Violations) == 1 && p.Violations[0].Pointer == at, body)
		}
		for _, since := range []string{"", "2030-01-31", "2030-01-31T12:00:00", "2030-01-31T13:00:00+01:00", "2030-02-30T00:00:00Z"} {
			p := w.send("POST", path, `{"since":"`+since+`"}`).requireProblem(t, job.CodeValidationFailed)
			require.Equal(t, []job.Violation{{Pointer: "/since", Detail: "This must be " + decode.TimeForm + "."}}, p.Violations)
		}
	}
	require.Equal(t, []int{1, 1}, []int{w.webhooks.failures, w.webhooks.replays})
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	ask := func(text string, err error) *answer {
		return newWorld(t, func(_ *Config, d *Deps) {
			d.Directory = func(context.Context) ([]byte, error) { return []byte(text), err }
		}).send("GET", "/.well-known/http-message-signatures-directory", "", "Authorization", "-", "Accept", "text/plain")
	}
	a := ask(keyDirectory, nil)
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, keyDirectory, a.text)
	require.Equal(t, "application/http-message-signatures-directory+json", a.Header.Get("Content-Type"))
	require.Equal(t, "public, max-age=300", a.Header.Get("Cache-Control"))
	require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	a = ask("half", job.Errorf(job.CodeStorageUnavailable, "Storage is away."))
	a.requireProblem(t, job.CodeStorageUnavailable)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"), "a failure is not kept")
	a = ask("half", errors.New("planted secret"))
	a.requireProblem(t, job.CodeInternal)
	require.NotContains(t, a.text, "planted")
}
