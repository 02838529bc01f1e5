package delivery

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// Reader reads webhooks and deliveries.
type Reader interface {
	Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error)
	Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) // newest first
	// Deliveries lists the deliveries of a webhook or a job.
	Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error)
	Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error)
}

// Store changes webhooks, and makes deliveries wait to be sent again.
type Store interface {
	Reader
	InsertWebhook(ctx context.Context, w job.Webhook) (job.Webhook, error)
	UpdateWebhook(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	RotateWebhookSecret(ctx context.Context, client, id job.ID, sealed []byte, overlap time.Duration) (*job.Webhook, error)
	DeleteWebhook(ctx context.Context, client, id job.ID) error
	TestWebhook(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
	RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error)
	ReplayEvents(ctx context.Context, client, webhook job.ID, since time.Time, after job.Position, limit int) (job.Replay, error)
}

// replayBatch is how many deliveries one request queues at most: some 25 ms of the database's time.
const replayBatch = 500

// Test sends an event to one webhook, for its owner to see whether it arrives.
func (s *Webhooks) Test(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	d, err := s.deps.Store.TestWebhook(ctx, client, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() {
		s.deps.Queue.Publish(job.Notification{ClientID: client}) // it is an event of the client's stream, too
		s.deps.Queue.EnqueueDelivery(taskOf(d))
	})
	return d, nil
}

func taskOf(d *job.Delivery) job.DeliveryTask {
	return job.DeliveryTask{ID: d.ID, ClientID: d.ClientID, Endpoint: d.Endpoint}
}

// Redeliver sends a delivery once more, now. If a task of it is waiting, the relay has that run.
func (s *Webhooks) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d, err := s.deps.Store.Redeliver(ctx, client, owner, id)
	if err != nil {
		return nil, err
	}
	app.AfterCommit(ctx, func() { s.deps.Queue.EnqueueDelivery(taskOf(d)) })
	return d, nil
}

// RedeliverFailed sends once more what was given up since a moment.
func (s *Webhooks) RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.deps.Store.RedeliverFailed(ctx, client, id, since, replayBatch)
}

// Replay sends what was given up since a moment, and the events since then that the webhook asks for and that have no delivery to it.
// It goes on after a position that an earlier one gave; the zero position begins. It does one step, however much there is: requests
// that go on with it are admitted, counted and answered one by one. A repeated one makes nothing twice. The relay makes the tasks.
func (s *Webhooks) Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error) {
	if err := s.checkSince(since); err != nil {
		return job.Replay{}, err
	}
	return s.deps.Store.ReplayEvents(ctx, client, id, since, after, replayBatch)
}

func (s *Webhooks) checkSince(since time.Time) error {
	if since.After(s.deps.Clock()) {
		return job.Invalid(job.Violation{Pointer: "/since", Detail: "The time must not be in the future."})
	}
	return nil
}
