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
)

// webhookWorld is the use cases of webhooks with their surroundings.
type webhookWorld struct {
	*Webhooks
	w *worldDelivery
}

func newWebhookWorld(t *testing.T, change ...func(*WebhooksDeps)) *webhookWorld {
	w := newWorldDelivery(t, nil)
	h := &webhookWorld{w: w}
	d := WebhooksDeps{
		Store: w.Store, Secrets: fakeSecrets{}, Targets: apptest.NoLocals{},
		Queue: w.Queue, Subscribers: NewSubscribers(w.Store, w.Logger), Log: w.Logger,
	}
	for _, f := range change {
		f(&d)
	}
	h.Webhooks = NewWebhooks(d)
	return h
}

// registering runs a test of the use cases of webhooks.
func registering(t *testing.T, f func(t *testing.T, h *webhookWorld)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWebhookWorld(t)) })
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

func (h *webhookWorld) registered(change ...func(*job.WebhookRequest)) job.IssuedWebhook {
	h.w.T.Helper()
	issued := apptest.Must(h.Register(context.Background(), webhookRequest(change...)))(h.w.T)
	return issued
}

func TestRegisterTellsEverythingThatIsWrong(t *testing.T) {
	many := make([]string, maxWebhookEvents+1)
	for name, c := range map[string]struct {
		change func(*job.WebhookRequest)
		want   []string
		code   job.Code
	}{
		"everything": {func(r *job.WebhookRequest) {
			r.URL, r.Events, r.Description, r.ContentMode = "http://localhost", []string{"job.*", "job.progress", "job.*"},
				strings.Repeat("ä", 257), "other"
		}, []string{"/url", "/events/1", "/events/2", "/description", "/content_mode"}, job.CodeValidationFailed},
		"nothing given": {func(r *job.WebhookRequest) { r.URL, r.Events = "", nil }, []string{"/url", "/events"}, job.CodeValidationFailed},
		"too many":      {func(r *job.WebhookRequest) { r.Events = many }, []string{"/events"}, job.CodeValidationFailed},
		"of the wrong form": {func(r *job.WebhookRequest) {
			r.URL, r.Events, r.Malformed = "", nil, true
			r.Violations = []job.Violation{{Pointer: "/url", Detail: "Not a string."}, {Pointer: "/events/0", Detail: "Not a string."}}
			r.ContentMode = "other"
		}, []string{"/url", "/events/0", "/content_mode"}, job.CodeMalformed},
		"at the limits": {func(r *job.WebhookRequest) {
			r.Events, r.Description = []string{"*"}, strings.Repeat("ä", 256)
		}, nil, ""},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			h := newWebhookWorld(t)
			_, err := h.Register(context.Background(), webhookRequest(c.change))
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.Equal(t, c.want, pointers(t, err))
			require.Equal(t, c.code, job.CodeOf(err))
			require.Empty(t, h.w.Store.webhooks)
		})
	}
}

// pointers gives what an error's violations point at.
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

func TestUpdateChecksWhatItChanges(t *testing.T) {
	registering(t, func(t *testing.T, h *webhookWorld) {
		id := h.registered().ID
		bad, long, mode := "http://localhost", strings.Repeat("x", 257), job.ContentMode("")
		_, err := h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{
			URL: &bad, Events: []string{}, Description: &long, ContentMode: &mode,
			Violations: []job.Violation{{Pointer: "/enabled", Detail: "Not a boolean."}},
		})
		require.Equal(t, []string{"/enabled", "/url", "/events", "/description", "/content_mode"}, pointers(t, err))
		require.NoError(t, second(h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{})), "nothing is changed")
	})
}

func TestWithoutAMasterKeyTheOperatorIsCalledFor(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t, func(d *WebhooksDeps) { d.Secrets = nil })
		_, registering := h.Register(context.Background(), webhookRequest())
		_, rotating := h.RotateSecret(context.Background(), apptest.ClientA, app.NewID())
		for _, err := range []error{registering, rotating} {
			require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
			require.ErrorContains(t, err, "FORGERUN_MASTER_KEY")
		}
		_, err := h.Register(context.Background(), webhookRequest(func(r *job.WebhookRequest) { r.URL = "" }))
		require.Equal(t, []string{"/url"}, pointers(t, err), "what the client can change comes first")
	})
}

func TestRegisterWebhook(t *testing.T) {
	registering(t, func(t *testing.T, h *webhookWorld) {
		first := apptest.Must(h.Register(telemetry.WithRequest(t.Context(), "register_webhook"), webhookRequest()))(t)
		require.True(t, strings.HasPrefix(first.Secret, "whsec_"))
		require.Equal(t, job.ContentBinary, first.ContentMode)
		stored := h.w.Store.webhooks[first.ID]
		require.Equal(t, []any{apptest.ClientA, "https://receiver.example/secret-path", []string{"job.*", "batch.completed"}},
			[]any{stored.ClientID, stored.URL, stored.Events})
		require.Equal(t, first.ID.String()+first.Secret, string(stored.Secrets[0].Sealed))
		require.True(t, h.deps.Subscribers.Has(apptest.ClientA), "at once")

		second := apptest.Must(h.RotateSecret(telemetry.WithRequest(t.Context(), "rotate_webhook_secret"), apptest.ClientA, first.ID))(t)
		require.NotEqual(t, first.Secret, second.Secret)
		require.Equal(t, first.ID.String()+second.Secret, string(stored.Secrets[0].Sealed))
		require.Equal(t, time.Now().Add(24*time.Hour), *stored.Secrets[1].Until, "the old one is kept for a day")
		url := "https://other.example/secret-path"
		_, err := h.Update(telemetry.WithRequest(t.Context(), "update_webhook"), apptest.ClientA, first.ID, job.WebhookPatch{URL: &url})
		require.NoError(t, err)
		require.NoError(t, h.Unregister(telemetry.WithRequest(t.Context(), "delete_webhook"), apptest.ClientA, first.ID))
		for _, action := range []string{"register_webhook", "rotate_webhook_secret", "update_webhook", "delete_webhook"} {
			require.Len(t, h.w.Log.Lines(t, map[string]any{"action": action, "request_id": action, "webhook_id": first.ID.String(),
				"client_id": apptest.ClientA.String()}), 1, "%s: of its own request", action)
		}
		for _, secret := range []string{"example", "secret-path", first.Secret, second.Secret} {
			require.NotContains(t, h.w.Log.String(), secret)
		}
	})
}

// A test and a redelivery have their task at once; a replay does one step in a request, and nothing of the future is sent again.
func TestSendingAgain(t *testing.T) {
	registering(t, func(t *testing.T, h *webhookWorld) {
		id, ctx, from := job.ID{2}, context.Background(), job.Position{Tx: 7}
		require.NoError(t, second(h.Test(ctx, apptest.ClientA, id)))
		require.NoError(t, second(h.Redeliver(ctx, apptest.ClientA, job.DeliveryOwner{JobID: job.ID{1}}, id)))
		require.Equal(t, 2, h.w.Queue.waiting())
		replay := func(since time.Time) (job.Replay, error) { return h.Replay(ctx, apptest.ClientA, id, since, from) }
		failed := func(since time.Time) (job.Replay, error) { return h.RedeliverFailed(ctx, apptest.ClientA, id, since) }
		require.Equal(t, job.Replay{Queued: replayBatch, More: true, Next: from}, apptest.Must(replay(time.Now()))(t))
		require.Equal(t, job.Replay{Queued: replayBatch}, apptest.Must(failed(time.Now()))(t))
		for _, do := range []func(time.Time) (job.Replay, error){replay, failed} {
			require.Equal(t, []string{"/since"}, pointers(t, second(do(time.Now().Add(time.Second)))))
		}
		h.deps.Clock = func() time.Time { return time.Now().Add(time.Hour) }
		require.NoError(t, second(replay(time.Now().Add(time.Second))), "by the clock of the test bed it is past")
	})
}

// second gives the error of a call that answers with a value, too.
func second[T any](_ T, err error) error { return err }
