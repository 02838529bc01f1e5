package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeRate lets so many attempts of each client pass in any minute.
type fakeRate struct {
	perMinute int

	mu     sync.Mutex
	passed map[job.ID][]time.Time
	asked  int
}

func (f *fakeRate) Allow(_ context.Context, client job.ID) job.Allowance {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	now, passed := time.Now(), f.passed[client]
	if len(passed) >= f.perMinute {
		if free := passed[len(passed)-f.perMinute].Add(time.Minute); free.After(now) {
			return job.Allowance{RetryAfter: free.Sub(now)}
		}
	}
	f.passed[client] = append(passed, now)
	return job.Allowance{OK: true}
}

func (w *worldDelivery) limit(perMinute int) *fakeRate {
	rate := &fakeRate{perMinute: perMinute, passed: map[job.ID][]time.Time{}}
	w.worker.cfg.Rate = rate
	return rate
}

// fakeStorage has room for so many units.
type fakeStorage struct{ room atomic.Int64 }

func (f *fakeStorage) AllowUnits(_ context.Context, _ job.ID, units int) job.Allowance {
	return job.Allowance{OK: f.room.Add(-int64(units)) >= 0}
}

// What receivers answer counts if it is large. Where there is no room for it, the attempt is recorded without it.
func TestLargeAnswersCount(t *testing.T) {
	const units = 2
	large := strings.Repeat("x", job.MaxStoredBody)
	send := func(context.Context, job.ClaimedDelivery) job.Sent {
		return job.Sent{Attempt: job.DeliveryAttempt{StartedAt: time.Now(), Status: 200, Body: []byte(large)}}
	}
	sending(t, send, func(t *testing.T, w *worldDelivery) {
		storage := &fakeStorage{}
		storage.room.Store(units)
		w.worker.cfg.Storage = storage
		kept := 0
		for range 5 {
			d := w.Store.delivery(w.attempted())
			require.Equal(t, job.DeliveryDelivered, d.State)
			if a := d.Results[0].Sent.Attempt; !a.Truncated {
				require.Len(t, a.Body, len(large))
				kept++
			}
		}
		require.Equal(t, units, kept)
	})
}

// What is over a client's rate waits: it is not lost, no attempt is used up, and
// other clients' deliveries go on. Storage is not asked again and again meanwhile.
func TestDeliveriesOverTheRateWait(t *testing.T) {
	sending(t, answers(200, 10*time.Millisecond), func(t *testing.T, w *worldDelivery) {
		rate := w.limit(5)
		w.working()
		w.delivers(17, apptest.ClientA, endpointA)
		apptest.Pass(30 * time.Second)
		require.Len(t, w.sender.begun(), 5)
		w.delivers(1, apptest.ClientB, endpointB)
		apptest.Pass(time.Second)
		require.Len(t, w.sender.begun(), 6, "of the other client at once")
		w.Store.Update(func() {
			for _, r := range w.Store.deliveries {
				require.Equal(t, r.State == job.DeliveryDelivered, r.Attempts == 1, "no attempt is used up")
				require.Nil(t, r.ClaimedUntil, "nothing is held meanwhile")
			}
		})
		apptest.Pass(5 * time.Minute)
		require.Len(t, w.sender.begun(), 18)
		w.Store.Update(func() {
			for _, r := range w.Store.deliveries {
				require.Equal(t, []any{job.DeliveryDelivered, 1}, []any{r.State, r.Attempts})
			}
		})
		require.Less(t, w.Store.Count("ClaimDelivery"), 45, "what comes while the client rests is not claimed")
		require.Less(t, rate.asked, 45)
	})
}

// Webhooks at one origin share what one endpoint may take, however their URLs are
// written; those of another client, or at another port, do not.
func TestWebhooksAtOneOriginShareItsLimit(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		w := newWorldDelivery(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			at := receiverOf(p)
			key := at.client.String() + at.origin
			mu.Lock()
			now[key]++
			most[key] = max(most[key], now[key])
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				now[key]--
			}()
			return answers(200, 100*time.Millisecond)(ctx, p)
		})
		urls := []string{"http://one.example/a", "http://ONE.example:80/b", "HTTP://one.example/?c", "http://one.example:81/"}
		for _, client := range []job.ID{apptest.ClientA, apptest.ClientB} {
			for i, url := range urls {
				endpoint := job.ID{client[0], client[15], 0xe, byte(i)}
				for range 30 {
					w.Store.deliver(client, endpoint, func(r *deliveryRow) { r.URL = url })
				}
			}
		}
		w.working()
		apptest.Pass(10 * time.Minute)
		require.Len(t, w.sender.begun(), 2*4*30)
		require.Len(t, most, 4, "two origins of two clients")
		for key, n := range most {
			require.LessOrEqual(t, n, 2, key) // a fifth of ten
		}
		w.worker.sends.mu.Lock()
		defer w.worker.sends.mu.Unlock()
		require.Empty(t, w.worker.sends.receivers)
	})
}

// fakeChallenge is receivers that answer as a function says; "" is that they want events.
type fakeChallenge func(ctx context.Context, url string) string

func (f fakeChallenge) Ask(ctx context.Context, url string) string { return f(ctx, url) }

func newChallengedWorld(t *testing.T, f fakeChallenge) *webhookWorld {
	return newWebhookWorld(t, func(d *WebhooksDeps) { d.Challenge = f })
}

func TestRegistrationNeedsAProof(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var asked []string
		h := newChallengedWorld(t, func(_ context.Context, url string) string { asked = append(asked, url); return "" })
		_, err := h.Register(t.Context(), webhookRequest(func(r *job.WebhookRequest) { r.URL = "http://localhost/" }))
		require.Equal(t, job.CodeValidationFailed, job.CodeOf(err), "a request that is refused anyhow needs none")
		require.ErrorIs(t, second(h.Register(t.Context(), webhookRequest())), job.ErrUnproven)
		require.Empty(t, h.w.Store.webhooks)
		require.NoError(t, h.Prove(t.Context(), apptest.ClientA, webhookRequest().URL))
		require.Equal(t, []string{webhookRequest().URL}, asked)
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

// However many receivers of a client hang, it has two questions under way, and another client's come at once. An answer that was cut off
// is no refusal.
func TestProofsOfOneClientAreBounded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var busy, most atomic.Int32
		h := newChallengedWorld(t, func(ctx context.Context, url string) string {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			if strings.Contains(url, "hangs") && !app.Sleep(ctx, 6*time.Second) {
				return "It said nothing."
			}
			return ""
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		const clients = 20
		ends := make(chan error, clients)
		for range clients {
			go func() { ends <- h.Prove(ctx, apptest.ClientA, "https://hangs.example/") }()
		}
		apptest.Pass(time.Second)
		require.EqualValues(t, clientProofsAtOnce, most.Load())
		began := time.Now()
		require.NoError(t, h.Prove(t.Context(), apptest.ClientB, "https://receiver.example/"))
		require.Zero(t, time.Since(began))
		ended := map[string]int{}
		for range clients {
			ended[fmt.Sprint(<-ends)]++
		}
		require.Equal(t, map[string]int{"<nil>": 2, context.DeadlineExceeded.Error(): 2, errManyProofs.Error(): clients - 4}, ended)
	})
}
