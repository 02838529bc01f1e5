package delivery

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func (d *fakeDeliveries) TestWebhook(_ context.Context, client, id job.ID) (*job.Delivery, error) {
	return &job.Delivery{ClientID: client, WebhookID: id, EventName: job.EventWebhookTest}, d.err
}

func (d *fakeDeliveries) Deliveries(_ context.Context, _ job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	d.asked = append(d.asked, q.Owner)
	return job.DeliveryPage{}, d.err
}

func (d *fakeDeliveries) Delivery(_ context.Context, client job.ID, owner job.DeliveryOwner,
	id job.ID) (*job.Delivery, []job.DeliveryAttempt, error) {
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
	d.after = append(d.after, after)
	if d.failsAfter > 0 {
		return job.Replay{Queued: d.failsAfter}, apptest.ErrStorage
	}
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
