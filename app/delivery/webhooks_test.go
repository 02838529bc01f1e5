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
	w          *worldDelivery
	deliveries *fakeDeliveries
}

func newWebhookWorld(t *testing.T, change ...func(*WebhooksDeps)) *webhookWorld {
	w := newWorldDelivery(t)
	h := &webhookWorld{w: w, deliveries: &fakeDeliveries{}}
	d := WebhooksDeps{
		Store: w.Store, Reader: w.Store, Deliveries: h.deliveries, Secrets: fakeSecrets{}, Targets: noLocals{}, Queue: w.Queue, Tasks: w.Queue,
		Subscribers: NewSubscribers(w.Store, w.Logger), Metrics: w.Metrics, Log: w.Logger,
	}
	for _, f := range change {
		f(&d)
	}
	h.Webhooks = NewWebhooks(d)
	return h
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
	issued, err := h.Register(context.Background(), webhookRequest(change...))
	require.NoError(h.w.T, err)
	return issued
}

func TestRegisterWebhook(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		issued, err := h.Register(telemetry.WithRequest(t.Context(), "request-1"), webhookRequest())
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(issued.Secret, "whsec_"))
		require.Equal(t, job.ContentBinary, issued.ContentMode)
		stored := h.w.Store.webhooks[issued.ID].Webhook
		require.Equal(t, []any{apptest.ClientA, "https://receiver.example/secret-path", []string{"job.*", "batch.completed"}},
			[]any{stored.ClientID, stored.URL, stored.Events})
		revealed, err := fakeSecrets{}.Reveal(stored.ID, stored.Secrets[0].Sealed)
		require.NoError(t, err)
		require.Equal(t, issued.Secret, revealed)
		require.True(t, h.subscribers.Has(apptest.ClientA), "at once")

		lines := h.w.Log.Lines(t, map[string]any{"action": "register_webhook"})
		require.Len(t, lines, 1)
		require.Equal(t, []any{apptest.ClientA.String(), issued.ID.String(), "request-1"},
			[]any{lines[0]["client_id"], lines[0]["webhook_id"], lines[0]["request_id"]})
	})
}

func TestNoURLAndNoSecretIsLogged(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		first, err := h.Register(telemetry.WithRequest(t.Context(), "register_webhook"), webhookRequest())
		require.NoError(t, err)
		second, err := h.RotateSecret(telemetry.WithRequest(t.Context(), "rotate_webhook_secret"), apptest.ClientA, first.ID)
		require.NoError(t, err)
		url := "https://other.example/secret-path"
		_, err = h.Update(telemetry.WithRequest(t.Context(), "update_webhook"), apptest.ClientA, first.ID, job.WebhookPatch{URL: &url})
		require.NoError(t, err)
		require.NoError(t, h.Unregister(telemetry.WithRequest(t.Context(), "delete_webhook"), apptest.ClientA, first.ID))
		for _, action := range []string{"register_webhook", "rotate_webhook_secret", "update_webhook", "delete_webhook"} {
			require.Len(t, h.w.Log.Lines(t, map[string]any{
				"action": action, "request_id": action, "webhook_id": first.ID.String()}), 1, "%s: of its own request", action)
		}
		for _, secret := range []string{"example", "secret-path", first.Secret, second.Secret} {
			require.NotContains(t, h.w.Log.Buf.String(), secret)
		}
	})
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
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
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
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		id := h.registered().ID
		bad, long, mode := "http://localhost", strings.Repeat("x", 257), job.ContentMode("")
		_, err := h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{
			URL: &bad, Events: []string{}, Description: &long, ContentMode: &mode,
			Violations: []job.Violation{{Pointer: "/enabled", Detail: "Not a boolean."}},
		})
		require.Equal(t, []string{"/enabled", "/url", "/events", "/description", "/content_mode"}, pointers(t, err))
		require.Zero(t, h.w.Store.Count("UpdateWebhook"))
		_, err = h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{})
		require.NoError(t, err, "nothing is changed")
	})
}

func TestEnablingAWebhookMakesItsClientASubscriber(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		id, off, on := h.registered().ID, false, true
		w, err := h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{Enabled: &off})
		require.NoError(t, err)
		require.Equal(t, job.DisabledByOwner, w.Disabled.Reason)
		require.Empty(t, h.w.Queue.Woken())
		require.NoError(t, h.subscribers.read(context.Background()))
		require.False(t, h.subscribers.Has(apptest.ClientA))
		_, err = h.Update(context.Background(), apptest.ClientA, id, job.WebhookPatch{Enabled: &on})
		require.NoError(t, err)
		require.True(t, h.subscribers.Has(apptest.ClientA))
		require.Equal(t, []job.ID{apptest.ClientA}, h.w.Queue.Woken(), "what was waiting")
	})
}

func TestRotatingKeepsTheOldSecretForADay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		first := h.registered()
		second, err := h.RotateSecret(context.Background(), apptest.ClientA, first.ID)
		require.NoError(t, err)
		require.NotEqual(t, first.Secret, second.Secret)
		secrets := h.w.Store.webhooks[first.ID].Secrets
		require.Len(t, secrets, 2)
		for i, want := range []string{second.Secret, first.Secret} {
			revealed, err := fakeSecrets{}.Reveal(first.ID, secrets[i].Sealed)
			require.NoError(t, err)
			require.Equal(t, want, revealed)
		}
		require.Equal(t, time.Now().Add(24*time.Hour), *secrets[1].Until)
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

func TestForeignWebhooksAreNotFound(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		id, ctx := h.registered().ID, context.Background()
		for name, do := range map[string]func() error{
			"read":   func() error { _, err := h.Webhook(ctx, apptest.ClientB, id); return err },
			"update": func() error { _, err := h.Update(ctx, apptest.ClientB, id, job.WebhookPatch{}); return err },
			"rotate": func() error { _, err := h.RotateSecret(ctx, apptest.ClientB, id); return err },
			"delete": func() error { return h.Unregister(ctx, apptest.ClientB, id) },
		} {
			require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(do()), name)
		}
		list, err := h.Webhooks.Webhooks(ctx, apptest.ClientB)
		require.NoError(t, err)
		require.Empty(t, list)
		require.False(t, h.subscribers.Has(apptest.ClientB))
		require.NoError(t, h.Unregister(ctx, apptest.ClientA, id))
		require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(h.Unregister(ctx, apptest.ClientA, id)), "repeated")
	})
}

func TestWhatIsToBeSentWakesTheWorkers(t *testing.T) {
	owner, id, ctx := job.DeliveryOwner{JobID: job.ID{1}}, job.ID{2}, context.Background()
	for name, do := range map[string]func(*Webhooks) error{
		"test":      func(s *Webhooks) error { _, err := s.Test(ctx, apptest.ClientA, id); return err },
		"redeliver": func(s *Webhooks) error { _, err := s.Redeliver(ctx, apptest.ClientA, owner, id); return err },
		"failed":    func(s *Webhooks) error { _, err := s.RedeliverFailed(ctx, apptest.ClientA, id, time.Now()); return err },
		"replay": func(s *Webhooks) error {
			_, err := s.Replay(ctx, apptest.ClientA, id, time.Now(), job.Position{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				h := newWebhookWorld(t)
				h.deliveries.replays = 1
				h.deliveries.err = apptest.ErrStorage
				require.ErrorIs(t, do(h.Webhooks), apptest.ErrStorage)
				require.Empty(t, h.w.Queue.Woken())
				h.deliveries.replays, h.deliveries.err = 1, nil
				h.clock = func() time.Time { return time.Now().Add(time.Hour) }
				require.NoError(t, do(h.Webhooks))
				require.Equal(t, []job.ID{apptest.ClientA}, h.w.Queue.Woken())
			})
		})
	}
}

func TestOwnersArePassedOn(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		owners := []job.DeliveryOwner{{JobID: job.ID{1}}, {WebhookID: job.ID{2}}}
		for _, owner := range owners {
			_, err := h.Deliveries(context.Background(), apptest.ClientA, job.DeliveryQuery{Owner: owner})
			require.NoError(t, err)
			_, _, err = h.Delivery(context.Background(), apptest.ClientA, owner, job.ID{3})
			require.NoError(t, err)
			_, err = h.Redeliver(context.Background(), apptest.ClientA, owner, job.ID{3})
			require.NoError(t, err)
		}
		require.Equal(t, []job.DeliveryOwner{owners[0], owners[0], owners[0], owners[1], owners[1], owners[1]}, h.deliveries.asked)
	})
}

// However much there is, a request does one step, and says where the next one goes on.
func TestReplay(t *testing.T) {
	goOn := job.Replay{Queued: replayBatch, More: true, Next: job.Position{Tx: 8}}
	for name, c := range map[string]struct {
		replays int
		passes  int
		want    job.Replay
	}{
		"nothing":            {want: job.Replay{}},
		"a few":              {replays: 7, want: job.Replay{Queued: 7}},
		"many":               {replays: 5*replayBatch + 1, want: goOn},
		"long after nothing": {replays: 1, passes: 4, want: job.Replay{More: true, Next: job.Position{Tx: 8}}},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				h := newWebhookWorld(t)
				h.deliveries.replays, h.deliveries.passes = c.replays, c.passes
				got, err := h.Replay(context.Background(), apptest.ClientA, app.NewID(), time.Now().Add(-time.Hour), job.Position{Tx: 7})
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				require.Equal(t, []int{replayBatch}, h.deliveries.limits, "one statement")
				require.Equal(t, []job.Position{{Tx: 7}}, h.deliveries.after)
				require.Len(t, h.w.Queue.Woken(), min(1, c.want.Queued))
			})
		})
	}
}

// What was queued before the trouble is sent all the same.
func TestAReplayThatFailsHalfWay(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		h.deliveries.failsAfter = 3
		_, err := h.Replay(context.Background(), apptest.ClientA, app.NewID(), time.Now(), job.Position{})
		require.ErrorIs(t, err, apptest.ErrStorage)
		require.Equal(t, []job.ID{apptest.ClientA}, h.w.Queue.Woken())
	})
}

func TestReplaysOfTheFutureAreRefused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h := newWebhookWorld(t)
		soon := time.Now().Add(time.Second)
		_, redeliver := h.RedeliverFailed(context.Background(), apptest.ClientA, app.NewID(), soon)
		_, replay := h.Replay(context.Background(), apptest.ClientA, app.NewID(), soon, job.Position{})
		for _, err := range []error{redeliver, replay} {
			require.Equal(t, []string{"/since"}, pointers(t, err))
			require.Equal(t, job.CodeValidationFailed, job.CodeOf(err))
		}
		require.Empty(t, h.deliveries.limits)
	})
}

// noLocals is a Targets that refuses what has the word local in it.
type noLocals struct{}

func (noLocals) Check(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
}
