package app

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// DeliveryStore reads deliveries and makes them wait to be sent again.
type DeliveryStore interface {
	TestWebhook(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error)
	Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
	RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error)
	ReplayEvents(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error)
}

const (
	replayBatch  = 1000            // deliveries in one statement
	replayBudget = 3 * time.Second // after it, a request leaves the rest to its repetition
)

// Test sends an event to one webhook, for its owner to see whether it arrives.
func (s *Webhooks) Test(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	d, err := s.deliveries.TestWebhook(ctx, client, id)
	if err != nil {
		return nil, err
	}
	s.queue.Announce(job.News{ClientID: client}) // it is an event of the client's stream, too
	s.queue.Wake(client)
	return d, nil
}

// Deliveries lists the deliveries of a webhook or a job.
func (s *Webhooks) Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	return s.deliveries.Deliveries(ctx, client, q)
}

// Delivery reads a delivery with its attempts.
func (s *Webhooks) Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error) {
	return s.deliveries.Delivery(ctx, client, owner, id)
}

// Redeliver sends a delivery once more, now.
func (s *Webhooks) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d, err := s.deliveries.Redeliver(ctx, client, owner, id)
	if err != nil {
		return nil, err
	}
	s.queue.Wake(client)
	return d, nil
}

// RedeliverFailed sends once more what was given up since a moment.
func (s *Webhooks) RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	return s.resend(ctx, client, id, since, s.deliveries.RedeliverFailed)
}

// Replay sends what was given up since a moment, and the events that have no
// delivery because the webhook was disabled.
func (s *Webhooks) Replay(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error) {
	return s.resend(ctx, client, id, since, s.deliveries.ReplayEvents)
}

// resend repeats a statement until there is no more or its time is over. What
// an earlier one made stays if a later one fails: a repeated request goes on
// from there.
func (s *Webhooks) resend(
	ctx context.Context, client, id job.ID, since time.Time,
	some func(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error),
) (sum job.Replay, err error) {
	began := s.clock()
	if since.After(began) {
		return job.Replay{}, job.Invalid(job.Violation{Pointer: "/since", Detail: "The time must not be in the future."})
	}
	defer func() {
		if sum.Queued > 0 {
			s.queue.Wake(client)
		}
	}()
	for {
		next, err := some(ctx, client, id, since, replayBatch)
		if err != nil {
			return sum, err
		}
		sum.Queued += next.Queued
		sum.More = next.More
		if !next.More || next.Queued == 0 || s.clock().Sub(began) >= replayBudget { // a statement that found nothing finds nothing again
			return sum, nil
		}
	}
}
