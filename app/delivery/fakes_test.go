package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeSecrets seals by prefixing.
type fakeSecrets struct{}

func (fakeSecrets) New(webhook job.ID) (string, []byte, error) {
	secret := "whsec_" + app.NewID().String()
	return secret, []byte(webhook.String() + secret), nil
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
	app.Sleep(ctx, testTimeout)
	return failedWith(began, job.SendTimeout, 0)
}

func failedWith(began time.Time, class job.SendError, status int) job.Sent {
	return job.Sent{Attempt: job.DeliveryAttempt{
		StartedAt: began, Duration: time.Since(began), Status: status, Error: class, Body: []byte("an answer"),
	}}
}

// The webhooks of the store; repo's tests are about what changes do to them.

func (s *fakeStore) InsertWebhook(_ context.Context, w job.Webhook) (job.Webhook, error) {
	s.webhooks[w.ID] = &w
	return w, nil
}

func (s *fakeStore) Webhook(_ context.Context, client, id job.ID) (*job.Webhook, error) {
	if r := s.webhooks[id]; r != nil && r.ClientID == client {
		return r, nil
	}
	return nil, job.Errorf(job.CodeWebhookNotFound, "No webhook with this id was found.")
}

func (s *fakeStore) UpdateWebhook(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	w, err := s.Webhook(ctx, client, id)
	if err == nil && p.URL != nil {
		w.URL = *p.URL
	}
	return w, err
}

func (s *fakeStore) RotateWebhookSecret(_ context.Context, _, id job.ID, sealed []byte, overlap time.Duration) (*job.Webhook, error) {
	until := time.Now().Add(overlap)
	s.webhooks[id].Secrets = []job.SealedSecret{{Sealed: sealed}, {Sealed: s.webhooks[id].Secrets[0].Sealed, Until: &until}}
	return s.webhooks[id], nil
}

func (s *fakeStore) DeleteWebhook(context.Context, job.ID, job.ID) error { return nil }

func (s *fakeStore) TestWebhook(_ context.Context, client, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ID: app.NewID(), ClientID: client, WebhookID: id, EventName: job.EventWebhookTest}, nil
}

func (s *fakeStore) Redeliver(_ context.Context, client job.ID, _ job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ID: id, ClientID: client}, nil
}

func (s *fakeStore) RedeliverFailed(_ context.Context, _, _ job.ID, _ time.Time, limit int) (job.Replay, error) {
	return job.Replay{Queued: limit}, nil
}

func (s *fakeStore) ReplayEvents(_ context.Context, _, _ job.ID, _ time.Time, after job.Position, limit int) (job.Replay, error) {
	return job.Replay{Queued: limit, More: true, Next: after}, nil
}

func (s *fakeStore) Subscribers(ctx context.Context) ([]job.EndpointKey, error) {
	return apptest.Call(ctx, s.Store, "Subscribers", func() ([]job.EndpointKey, error) { return s.subscribers(), nil })
}
