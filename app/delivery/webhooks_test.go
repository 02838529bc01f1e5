package delivery

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

type webhooks struct {
	*Webhooks
	*world
}

func newWebhooks(t *testing.T, change ...func(*WebhooksDeps)) *webhooks {
	w := newWorld(t, nil)
	d := WebhooksDeps{
		Store: w.store, NewSecret: newSecret, Targets: apptest.NoLocals,
		Queue: w.queue, Subscribers: NewSubscribers(w.store, w.Logger), Log: w.Logger, Clock: time.Now,
	}
	for _, f := range change {
		f(&d)
	}
	return &webhooks{NewWebhooks(d), w}
}

func newSecret(webhook job.ID) (string, []byte, error) {
	secret := "whsec_" + app.NewID().String()
	return secret, []byte(webhook.String() + secret), nil
}

func webhookRequest(change ...func(*job.WebhookRequest)) job.WebhookRequest {
	r := job.WebhookRequest{
		ClientID: apptest.ClientA, URL: "https://receiver.example/secret-path",
		Events: []string{"job.*", "batch.completed"}, Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func (h *webhooks) registered(change ...func(*job.WebhookRequest)) job.IssuedWebhook {
	h.T.Helper()
	return apptest.Must(h.Register(context.Background(), webhookRequest(change...)))(h.T)
}

func (h *webhooks) all() []job.Webhook {
	return apptest.Must(h.Webhooks.Webhooks(h.T.Context(), apptest.ClientA))(h.T)
}

func TestAllViolationsAreReturned(t *testing.T) {
	h := newWebhooks(t)
	many := make([]string, maxWebhookEvents+1)
	for name, c := range map[string]struct {
		change func(*job.WebhookRequest)
		want   []string
		code   job.Code
	}{
		"all values invalid": {func(r *job.WebhookRequest) {
			r.URL, r.Events, r.Description, r.ContentMode = "http://localhost", []string{"job.*", "job.progress", "job.*"},
				strings.Repeat("ä", 257), "other"
		}, []string{"/url", "/events/1", "/events/2", "/description", "/content_mode"}, job.CodeValidationFailed},
		"values missing":  {func(r *job.WebhookRequest) { r.URL, r.Events = "", nil }, []string{"/url", "/events"}, job.CodeValidationFailed},
		"too many events": {func(r *job.WebhookRequest) { r.Events = many }, []string{"/events"}, job.CodeValidationFailed},
		"violations of decoding": {func(r *job.WebhookRequest) {
			r.URL, r.Events, r.Malformed = "", nil, true
			r.Violations = []job.Violation{{Pointer: "/url", Detail: "Not a string."}, {Pointer: "/events/0", Detail: "Not a string."}}
			r.ContentMode = "other"
		}, []string{"/url", "/events/0", "/content_mode"}, job.CodeMalformed},
	} {
		_, err := h.Register(context.Background(), webhookRequest(c.change))
		require.Equal(t, c.want, pointers(t, err), name)
		require.Equal(t, c.code, job.CodeOf(err), name)
	}
	require.Empty(t, h.all())
	id := h.registered(func(r *job.WebhookRequest) { r.Events, r.Description = []string{"*"}, strings.Repeat("ä", 256) }).ID
	bad, long, mode := "http://localhost", strings.Repeat("x", 257), job.ContentMode("")
	_, err := h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{
		URL: &bad, Events: []string{}, Description: &long, ContentMode: &mode,
		Violations: []job.Violation{{Pointer: "/enabled", Detail: "Not a boolean."}},
	})
	require.Equal(t, []string{"/enabled", "/url", "/events", "/description", "/content_mode"}, pointers(t, err))
	require.NoError(t, second(h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{})), "an empty patch is valid")
}

func pointers(t *testing.T, err error) (list []string) {
	t.Helper()
	var invalid *job.Error
	require.ErrorAs(t, err, &invalid)
	for _, v := range invalid.Violations {
		require.NotEmpty(t, v.Detail)
		list = append(list, v.Pointer)
	}
	return list
}

func TestMissingMasterKeyIsReported(t *testing.T) {
	h := newWebhooks(t, func(d *WebhooksDeps) { d.NewSecret = nil })
	_, registering := h.Register(context.Background(), webhookRequest())
	_, rotating := h.RotateSecret(context.Background(), apptest.ClientA, app.NewID())
	for _, err := range []error{registering, rotating} {
		require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
		require.ErrorContains(t, err, "FORGERUN_MASTER_KEY")
	}
	_, err := h.Register(context.Background(), webhookRequest(func(r *job.WebhookRequest) { r.URL = "" }))
	require.Equal(t, []string{"/url"}, pointers(t, err), "violations come before the missing key")
}

func TestRegisterWebhook(t *testing.T) {
	h := newWebhooks(t)
	first := apptest.Must(h.Register(telemetry.WithRequest(t.Context(), "register_webhook"), webhookRequest()))(t)
	require.True(t, strings.HasPrefix(first.Secret, "whsec_"))
	require.Equal(t, job.ContentBinary, first.ContentMode)
	stored := h.all()[0]
	require.Equal(t, []any{first.ID, "https://receiver.example/secret-path", []string{"job.*", "batch.completed"}},
		[]any{stored.ID, stored.URL, stored.Events})
	sealed := func() []string {
		return repotest.All[string](t, h.url, `SELECT convert_from(secret, 'utf8') FROM webhooks`)
	}
	require.Equal(t, []string{first.ID.String() + first.Secret}, sealed())
	require.Equal(t, 1, h.Subscribers.Webhooks(apptest.ClientA), "the subscriber is known immediately")

	second := apptest.Must(h.RotateSecret(telemetry.WithRequest(t.Context(), "rotate_webhook_secret"), apptest.ClientA, first.ID))(t)
	require.NotEqual(t, first.Secret, second.Secret)
	require.Equal(t, []string{first.ID.String() + second.Secret}, sealed())
	require.WithinDuration(t, time.Now().Add(24*time.Hour), *second.Secrets[1].Until, time.Hour, "the old secret stays valid for a day")
	url := "https://other.example/secret-path"
	_, err := h.Update(telemetry.WithRequest(t.Context(), "update_webhook"), apptest.ClientA, first.ID, job.WebhookPatch{URL: &url})
	require.NoError(t, err)
	require.NoError(t, h.Unregister(telemetry.WithRequest(t.Context(), "delete_webhook"), apptest.ClientA, first.ID))
	for _, action := range []string{"register_webhook", "rotate_webhook_secret", "update_webhook", "delete_webhook"} {
		require.Len(t, h.world.Log.Lines(t, map[string]any{"action": action, "request_id": action, "webhook_id": first.ID.String(),
			"client_id": apptest.ClientA.String()}), 1, "%s: of its own request", action)
	}
	for _, secret := range []string{"example", "secret-path", first.Secret, second.Secret} {
		require.NotContains(t, h.world.Log.String(), secret)
	}
}

func TestSendingAgain(t *testing.T) {
	h := newWebhooks(t)
	id, ctx := h.registered().ID, context.Background()
	d := apptest.Must(h.Test(ctx, apptest.ClientA, id))(t)
	require.Equal(t, 1, h.queue.Waiting())
	require.Len(t, h.queue.Notifications(), 1, "the event is also in the client's stream")
	h.exec(`UPDATE deliveries SET state = 'FAILED', next_attempt_at = NULL, settled_at = now(), last_error = 'HTTP_5XX'`)
	h.queue.Flush()
	require.NoError(t, second(h.Redeliver(ctx, apptest.ClientA, job.DeliveryOwner{WebhookID: id}, d.ID)))
	require.Equal(t, 1, h.queue.Waiting())

	replay := func(since time.Time) (job.Replay, error) {
		return h.Replay(ctx, apptest.ClientA, id, since, job.Position{})
	}
	failed := func(since time.Time) (job.Replay, error) { return h.RedeliverFailed(ctx, apptest.ClientA, id, since) }
	for _, do := range []func(time.Time) (job.Replay, error){replay, failed} {
		// A row's age comes from its id. The ids are random here, so some rows are too old for a replay.
		h.insert(2*replayBatch, id, repotest.Columns{"state": "'FAILED'", "next_attempt_at": "NULL", "settled_at": "now()", "last_error": "'x'"})
		require.Equal(t, replayBatch, apptest.Must(do(time.Now().Add(-time.Hour)))(t).Queued)
		require.Equal(t, []string{"/since"}, pointers(t, second(do(time.Now().Add(time.Minute)))))
	}
	require.True(t, apptest.Must(replay(time.Now().Add(-time.Hour)))(t).More)
	h.Clock = func() time.Time { return time.Now().Add(time.Hour) }
	require.NoError(t, second(replay(time.Now().Add(time.Minute))), "the time is past by the clock of the test bed")
}

func TestRegistrationNeedsAProof(t *testing.T) {
	var asked []string
	h := newWebhooks(t, func(d *WebhooksDeps) {
		d.Challenge = func(_ context.Context, url string) string { asked = append(asked, url); return "" }
	})
	_, err := h.Register(t.Context(), webhookRequest(func(r *job.WebhookRequest) { r.URL = "http://localhost/" }))
	require.Equal(t, job.CodeValidationFailed, job.CodeOf(err), "an invalid request needs no proof")
	require.ErrorIs(t, second(h.Register(t.Context(), webhookRequest())), job.ErrUnproven)
	require.Empty(t, h.all())
	require.NoError(t, h.Prove(t.Context(), apptest.ClientA, webhookRequest().URL))
	require.Equal(t, []string{webhookRequest().URL}, asked)
	issued := h.registered(func(r *job.WebhookRequest) { r.Proven = true })
	require.NotNil(t, issued.ProvenAt)

	url, text := "https://other.example/", "mine"
	require.NoError(t, second(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{Description: &text})), "same URL")
	for _, u := range []string{url, webhookRequest().URL} {
		require.ErrorIs(t, second(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{URL: &u})), job.ErrUnproven)
	}
	_, err = h.Update(t.Context(), apptest.ClientB, issued.ID, job.WebhookPatch{URL: &url})
	require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(err), "another client's webhook causes no challenge")
	w := apptest.Must(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{URL: &url, Proven: true}))(t)
	require.Equal(t, url, w.URL)

	h.Challenge = nil
	require.NoError(t, h.Prove(t.Context(), apptest.ClientA, "https://receiver.example/"))
	require.Nil(t, h.registered().ProvenAt)
}

func second[T any](_ T, err error) error { return err }
