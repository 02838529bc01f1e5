package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

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

func (s *fakeStore) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	return apptest.Call(ctx, s.Store, "Webhooks", func() (list []job.Webhook, err error) {
		for _, r := range s.webhooks {
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

func (s *fakeStore) Subscribers(ctx context.Context) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "Subscribers", func() (clients []job.ID, err error) {
		for _, r := range s.webhooks {
			if !r.deleted && r.Disabled == nil && !slices.Contains(clients, r.ClientID) {
				clients = append(clients, r.ClientID)
			}
		}
		return clients, nil
	})
}
