package delivery

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeChallenge is receivers that say what a function says; nil: that they want
// events. It counts.
type fakeChallenge struct {
	says func(ctx context.Context, url string) string

	mu         sync.Mutex
	asked      []string
	busy, most int
}

func (f *fakeChallenge) Ask(ctx context.Context, url string) string {
	f.mu.Lock()
	f.asked = append(f.asked, url)
	f.busy++
	f.most = max(f.most, f.busy)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy--
	}()
	if f.says == nil {
		return ""
	}
	return f.says(ctx, url)
}

func (f *fakeChallenge) count() (asked, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked), f.most
}

func newChallengedWorld(t *testing.T, says func(context.Context, string) string) (*webhookWorld, *fakeChallenge) {
	challenge := &fakeChallenge{says: says}
	return newWebhookWorld(t, func(d *WebhooksDeps) { d.Challenge = challenge }), challenge
}

func TestRegistrationNeedsAProof(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h, challenge := newChallengedWorld(t, nil)
		_, err := h.Register(t.Context(), webhookRequest(func(r *job.WebhookRequest) { r.URL = "http://localhost/" }))
		require.Equal(t, job.CodeValidationFailed, job.CodeOf(err), "a request that is refused anyhow needs none")
		require.ErrorIs(t, second(h.Register(t.Context(), webhookRequest())), job.ErrUnproven)
		require.Empty(t, h.w.Store.webhooks)
		require.NoError(t, h.Prove(t.Context(), apptest.ClientA, webhookRequest().URL))
		require.Equal(t, []string{webhookRequest().URL}, challenge.asked)
		issued := h.registered(func(r *job.WebhookRequest) { r.Proven = true })
		require.NotNil(t, issued.ProvenAt)

		url, text := "https://other.example/", "mine"
		require.NoError(t, second(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{Description: &text})), "what is not the URL")
		for _, u := range []string{url, webhookRequest().URL} {
			require.ErrorIs(t, second(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{URL: &u})), job.ErrUnproven)
		}
		_, err = h.Update(t.Context(), apptest.ClientB, issued.ID, job.WebhookPatch{URL: &url})
		require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(err), "nobody is asked because of another client's webhook")
		w := apptest.Must(h.Update(t.Context(), apptest.ClientA, issued.ID, job.WebhookPatch{URL: &url, Proven: true}))(t)
		require.Equal(t, url, w.URL)

		without := newWebhookWorld(t)
		require.NoError(t, without.Prove(t.Context(), apptest.ClientA, "https://receiver.example/"))
		require.Nil(t, without.registered().ProvenAt)
	})
}

func TestWhatAReceiverDoesNotSayIsAViolation(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h, _ := newChallengedWorld(t, func(context.Context, string) string { return "It said nothing." })
		var invalid *job.Error
		require.ErrorAs(t, h.Prove(t.Context(), apptest.ClientA, "https://receiver.example/"), &invalid)
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		require.Equal(t, []job.Violation{{Pointer: "/url", Detail: "It said nothing."}}, invalid.Violations)

		slow, _ := newChallengedWorld(t, func(ctx context.Context, _ string) string { <-ctx.Done(); return "It said nothing." })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, slow.Prove(ctx, apptest.ClientA, "https://receiver.example/"), context.DeadlineExceeded,
			"what was cut off is no refusal")
	})
}

// However many receivers of a client hang, it has two questions under way, and
// another client's come at once.
func TestProofsOfOneClientAreBounded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		h, challenge := newChallengedWorld(t, func(_ context.Context, url string) string {
			if strings.Contains(url, "hangs") {
				time.Sleep(5 * time.Second) // by the bubble's clock
			}
			return ""
		})
		var asking sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var mu sync.Mutex
		refused := 0
		for range 20 {
			asking.Go(func() {
				if err := h.Prove(ctx, apptest.ClientA, "https://hangs.example/"); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if job.CodeOf(err) == job.CodeQueueFull {
						refused++
					}
				}
			})
		}
		apptest.Pass(time.Second)
		_, most := challenge.count()
		require.Equal(t, clientProofsAtOnce, most)
		began := time.Now()
		require.NoError(t, h.Prove(t.Context(), apptest.ClientB, "https://receiver.example/"))
		require.Zero(t, time.Since(began))
		asking.Wait()
		asked, _ := challenge.count()
		require.Less(t, asked, 10, "in ten seconds two at a time, and that of the other client")
		require.Equal(t, 20+1-asked, refused)
	})
}
