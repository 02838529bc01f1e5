package apptest

import (
	"context"
	"slices"
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

func (s *Store) ownWebhook(client, id job.ID) (*webhookRow, error) {
	if r := s.Hooked[id]; r != nil && r.ClientID == client && !r.deleted {
		return r, nil
	}
	return nil, job.Errorf(job.CodeWebhookNotFound, "No webhook with this id was found.")
}

func (s *Store) webhookOf(client job.ID, key string, hash [32]byte) (*job.Webhook, error) {
	for _, r := range s.Hooked {
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

func (s *Store) InsertWebhook(ctx context.Context, sub job.WebhookSubmission) (job.Webhook, bool, error) {
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
		s.Hooked[r.ID] = r
		return r.Webhook, nil
	})
	return w, replayed, err
}

func (s *Store) FindWebhook(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Webhook, error) {
	return call(ctx, s, "FindWebhook", func() (*job.Webhook, error) { return s.webhookOf(client, key, hash) })
}

func (s *Store) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "Webhook", client, id, func(*webhookRow) {})
}

func (s *Store) changeWebhook(ctx context.Context, operation string, client, id job.ID, f func(*webhookRow)) (*job.Webhook, error) {
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

func (s *Store) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	return call(ctx, s, "Webhooks", func() (list []job.Webhook, err error) {
		for _, r := range s.Hooked {
			if r.ClientID == client && !r.deleted {
				list = append(list, r.Webhook)
			}
		}
		return list, nil
	})
}

func (s *Store) UpdateWebhook(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
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

func (s *Store) RotateWebhookSecret(ctx context.Context, client, id job.ID, sealed []byte, overlap time.Duration) (*job.Webhook, error) {
	return s.changeWebhook(ctx, "RotateWebhookSecret", client, id, func(r *webhookRow) {
		until := time.Now().Add(overlap)
		r.Secrets = []job.SealedSecret{{Sealed: sealed}, {Sealed: r.Secrets[0].Sealed, Until: &until}}
	})
}

func (s *Store) DeleteWebhook(ctx context.Context, client, id job.ID) error {
	_, err := s.changeWebhook(ctx, "DeleteWebhook", client, id, func(r *webhookRow) { r.deleted = true })
	return err
}

func (s *Store) Subscribers(ctx context.Context) ([]job.ID, error) {
	return call(ctx, s, "Subscribers", func() (clients []job.ID, err error) {
		for _, r := range s.Hooked {
			if !r.deleted && r.Disabled == nil && !slices.Contains(clients, r.ClientID) {
				clients = append(clients, r.ClientID)
			}
		}
		return clients, nil
	})
}

func (f targetsFunc) Check(url string) string { return f(url) }
