package delivery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeDeliveries answers for a Store: with replay, and after that with err.
type fakeDeliveries struct {
	*fakeStore
	replay job.Replay
	err    error
	asked  []replayAsked
}

// replayAsked is what a replay was asked for.
type replayAsked struct {
	after job.Position
	limit int
}

func (d *fakeDeliveries) TestWebhook(_ context.Context, client, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ClientID: client, WebhookID: id, EventName: job.EventWebhookTest}, d.err
}

func (d *fakeDeliveries) Redeliver(_ context.Context, client job.ID, _ job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ID: id, ClientID: client}, d.err
}

func (d *fakeDeliveries) RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error) {
	return d.ReplayEvents(ctx, client, webhook, since, job.Position{}, limit)
}

func (d *fakeDeliveries) ReplayEvents(_ context.Context, _, _ job.ID, _ time.Time, after job.Position, limit int) (job.Replay, error) {
	d.asked = append(d.asked, replayAsked{after, limit})
	return d.replay, d.err
}

// fakeSecrets seals by prefixing.
type fakeSecrets struct{}

func (fakeSecrets) New(webhook job.ID) (string, []byte, error) {
	secret := "whsec_" + app.NewID().String()
	return secret, []byte(webhook.String() + secret), nil
}

func (fakeSecrets) Reveal(webhook job.ID, sealed []byte) (string, error) {
	secret, ok := strings.CutPrefix(string(sealed), webhook.String())
	if !ok {
		return "", errors.New("sealed for another webhook")
	}
	return secret, nil
}

// fakeSender sends by a function, and counts.
type fakeSender struct {
	send func(ctx context.Context, p job.ClaimedDelivery) job.Sent

	mu       sync.Mutex
	inFlight map[job.ID]int        // by endpoint
	most     map[job.ID]int        // at once, by endpoint
	sent     []job.ClaimedDelivery // in the order of their begin
}

func newFakeSender(send func(ctx context.Context, p job.ClaimedDelivery) job.Sent) *fakeSender {
	return &fakeSender{send: send, inFlight: map[job.ID]int{}, most: map[job.ID]int{}}
}

func (s *fakeSender) Send(ctx context.Context, p job.ClaimedDelivery) job.Sent {
	s.mu.Lock()
	s.sent = append(s.sent, p)
	s.inFlight[p.Endpoint]++
	s.most[p.Endpoint] = max(s.most[p.Endpoint], s.inFlight[p.Endpoint])
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight[p.Endpoint]--
	}()
	return s.send(ctx, p)
}

// atOnce gives the most deliveries that were in flight to an endpoint since it was
// last asked for.
func (s *fakeSender) atOnce(endpoint job.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most[endpoint]
	s.most[endpoint] = s.inFlight[endpoint]
	return most
}

func (s *fakeSender) begun() []job.ClaimedDelivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// answers is a receiver that takes a while and answers with a status.
func answers(status int, took time.Duration) func(context.Context, job.ClaimedDelivery) job.Sent {
	return func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
		began := time.Now()
		if took > 0 && !app.Sleep(ctx, took) {
			return failedWith(began, job.SendTimeout, 0)
		}
		switch status {
		case 200:
			return failedWith(began, "", status)
		case 410:
			return failedWith(began, job.SendGone, status)
		default:
			return failedWith(began, job.SendServerError, status)
		}
	}
}

// hanging is a receiver that never answers.
func hanging(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
	began := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(testTimeout):
	}
	return failedWith(began, job.SendTimeout, 0)
}

func failedWith(began time.Time, class job.SendError, status int) job.Sent {
	return job.Sent{Attempt: job.DeliveryAttempt{
		StartedAt: began, Duration: time.Since(began), Status: status, Error: class, Body: []byte("an answer"),
	}}
}

type webhookRow struct {
	job.Webhook
	deleted bool
}

func (s *fakeStore) ownWebhook(client, id job.ID) (*webhookRow, error) {
	if r := s.webhooks[id]; r != nil && r.ClientID == client && !r.deleted {
		return r, nil
	}
	return nil, job.Errorf(job.CodeWebhookNotFound, "No webhook with this id was found.")
}

func (s *fakeStore) InsertWebhook(ctx context.Context, w job.Webhook) (job.Webhook, error) {
	return apptest.Call(ctx, s.Store, "InsertWebhook", func() (job.Webhook, error) {
		r := &webhookRow{Webhook: w}
		r.CreatedAt, r.UpdatedAt = time.Now(), time.Now()
		s.webhooks[r.ID] = r
		return r.Webhook, nil
	})
}

func (s *fakeStore) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "Webhook", client, id, func(*webhookRow) {})
}

func (s *fakeStore) changeWebhook(ctx context.Context, operation string, client, id job.ID, f func(*webhookRow)) (*job.Webhook, error) {
	return apptest.Call(ctx, s.Store, operation, func() (*job.Webhook, error) {
		r, err := s.ownWebhook(client, id)
		if err != nil {
			return nil, err
		}
		f(r)
		w := r.Webhook
		return &w, nil
	})
}

func (s *fakeStore) UpdateWebhook(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "UpdateWebhook", client, id, func(r *webhookRow) {
		if p.URL != nil {
			r.URL = *p.URL
		}
		switch {
		case p.Enabled == nil:
		case *p.Enabled:
			r.Disabled = nil
		default:
			r.Disabled = &job.Disabled{At: time.Now(), Reason: job.DisabledByOwner}
		}
	})
}

func (s *fakeStore) RotateWebhookSecret(ctx context.Context, client, id job.ID, sealed []byte,
	overlap time.Duration) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "RotateWebhookSecret", client, id, func(r *webhookRow) {
		until := time.Now().Add(overlap)
		r.Secrets = []job.SealedSecret{{Sealed: sealed}, {Sealed: r.Secrets[0].Sealed, Until: &until}}
	})
}

func (s *fakeStore) DeleteWebhook(ctx context.Context, client, id job.ID) error {
	_, err := s.changeWebhook(ctx, "DeleteWebhook", client, id, func(r *webhookRow) { r.deleted = true })
	return err
}

func (s *fakeStore) Subscribers(ctx context.Context) ([]job.EndpointKey, error) {
	return apptest.Call(ctx, s.Store, "Subscribers", func() (enabled []job.EndpointKey, err error) {
		for _, r := range s.webhooks {
			if !r.deleted && r.Disabled == nil {
				enabled = append(enabled, job.EndpointKey{Client: r.ClientID, Endpoint: r.ID})
			}
		}
		return enabled, nil
	})
}
