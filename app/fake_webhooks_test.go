package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The part of fakeStore that the use cases of webhooks see.

type webhookRow struct {
	job.Webhook
	deleted bool
	key     string
	hash    [32]byte
}

func (s *fakeStore) ownWebhook(client, id job.ID) (*webhookRow, error) {
	if r := s.hooked[id]; r != nil && r.ClientID == client && !r.deleted {
		return r, nil
	}
	return nil, job.Errorf(job.CodeWebhookNotFound, "No webhook with this id was found.")
}

func (s *fakeStore) webhookOf(client job.ID, key string, hash [32]byte) (*job.Webhook, error) {
	for _, r := range s.hooked {
		switch {
		case key == "" || r.ClientID != client || r.key != key || r.deleted:
		case r.hash != hash:
			return nil, job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")
		default:
			w := r.Webhook
			return &w, nil
		}
	}
	return nil, nil
}

func (s *fakeStore) InsertWebhook(ctx context.Context, sub job.WebhookSubmission) (job.Webhook, bool, error) {
	replayed := false
	w, err := call(ctx, s, "InsertWebhook", func() (job.Webhook, error) {
		known, err := s.webhookOf(sub.Webhook.ClientID, sub.IdempotencyKey, sub.RequestHash)
		if err != nil {
			return job.Webhook{}, err
		}
		if known != nil {
			replayed = true
			return *known, nil
		}
		r := &webhookRow{Webhook: sub.Webhook, key: sub.IdempotencyKey, hash: sub.RequestHash}
		r.CreatedAt, r.UpdatedAt = time.Now(), time.Now()
		s.hooked[r.ID] = r
		return r.Webhook, nil
	})
	return w, replayed, err
}

func (s *fakeStore) FindWebhook(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Webhook, error) {
	return call(ctx, s, "FindWebhook", func() (*job.Webhook, error) { return s.webhookOf(client, key, hash) })
}

func (s *fakeStore) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "Webhook", client, id, func(*webhookRow) {})
}

func (s *fakeStore) changeWebhook(ctx context.Context, operation string, client, id job.ID, f func(*webhookRow)) (*job.Webhook, error) {
	return call(ctx, s, operation, func() (*job.Webhook, error) {
		r, err := s.ownWebhook(client, id)
		if err != nil {
			return nil, err
		}
		f(r)
		w := r.Webhook
		return &w, nil
	})
}

func (s *fakeStore) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	return call(ctx, s, "Webhooks", func() (list []job.Webhook, err error) {
		for _, r := range s.hooked {
			if r.ClientID == client && !r.deleted {
				list = append(list, r.Webhook)
			}
		}
		return list, nil
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

func (s *fakeStore) RotateWebhookSecret(ctx context.Context, client, id job.ID, sealed []byte, overlap time.Duration) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "RotateWebhookSecret", client, id, func(r *webhookRow) {
		until := time.Now().Add(overlap)
		r.Secrets = []job.SealedSecret{{Sealed: sealed}, {Sealed: r.Secrets[0].Sealed, Until: &until}}
	})
}

func (s *fakeStore) DeleteWebhook(ctx context.Context, client, id job.ID) error {
	_, err := s.changeWebhook(ctx, "DeleteWebhook", client, id, func(r *webhookRow) { r.deleted = true })
	return err
}

func (s *fakeStore) Subscribers(ctx context.Context) ([]job.ID, error) {
	return call(ctx, s, "Subscribers", func() (clients []job.ID, err error) {
		for _, r := range s.hooked {
			if !r.deleted && r.Disabled == nil && !slices.Contains(clients, r.ClientID) {
				clients = append(clients, r.ClientID)
			}
		}
		return clients, nil
	})
}

// fakeDeliveries answers for a DeliveryStore; replays is what is left to replay,
// and passes how many statements find nothing before there is something.
type fakeDeliveries struct {
	DeliveryStore
	replays int
	passes  int
	after   []job.Position
	asked   []job.DeliveryOwner
	limits  []int
	slow    time.Duration
	err     error
}

func (d *fakeDeliveries) TestWebhook(_ context.Context, client, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ClientID: client, WebhookID: id, EventName: job.EventWebhookTest}, d.err
}

func (d *fakeDeliveries) Deliveries(_ context.Context, _ job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	d.asked = append(d.asked, q.Owner)
	return job.DeliveryPage{}, d.err
}

func (d *fakeDeliveries) Delivery(_ context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error) {
	d.asked = append(d.asked, owner)
	return &job.Delivery{ID: id, ClientID: client}, nil, d.err
}

func (d *fakeDeliveries) Redeliver(_ context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d.asked = append(d.asked, owner)
	return &job.Delivery{ID: id, ClientID: client}, d.err
}

func (d *fakeDeliveries) RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error) {
	return d.ReplayEvents(ctx, client, webhook, since, job.Position{}, limit)
}

func (d *fakeDeliveries) ReplayEvents(_ context.Context, _, _ job.ID, _ time.Time, after job.Position, limit int) (job.Replay, error) {
	time.Sleep(d.slow)
	d.after = append(d.after, after)
	next := job.Position{Tx: after.Tx + 1}
	if d.passes > 0 {
		d.passes--
		d.limits = append(d.limits, limit)
		return job.Replay{More: true, Next: next}, nil
	}
	n := min(limit, d.replays)
	d.replays -= n
	d.limits = append(d.limits, limit)
	if d.replays == 0 && d.err != nil {
		return job.Replay{}, d.err
	}
	if d.replays == 0 {
		return job.Replay{Queued: n}, nil
	}
	return job.Replay{Queued: n, More: true, Next: next}, nil
}

// fakeSecrets seals by prefixing.
type fakeSecrets struct{}

func (fakeSecrets) New(webhook job.ID) (string, []byte, error) {
	secret := "whsec_" + newID().String()
	return secret, []byte(webhook.String() + secret), nil
}

func (fakeSecrets) Reveal(webhook job.ID, sealed []byte) (string, error) {
	secret, ok := strings.CutPrefix(string(sealed), webhook.String())
	if !ok {
		return "", errors.New("sealed for another webhook")
	}
	return secret, nil
}

// targetsFunc is Targets.
type targetsFunc func(url string) string

func (f targetsFunc) Check(url string) string { return f(url) }

// noLocals refuses what has the word local in it.
var noLocals = targetsFunc(func(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
})
