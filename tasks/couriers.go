package tasks

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
)

// hintRetries is how often a hint is handled again whose handler reported
// trouble; then it is forgotten, and the relay makes a new one. It is well below
// maxRetry: asynq would archive the hint then and keep its name taken.
const hintRetries = 10

// DeliveryConsumer take hints that clients may have something to deliver out of Redis,
// for one process. They run for as long as they are not stopped, with or without
// Redis.
type DeliveryConsumer struct{ *consumer }

// NewDeliveryConsumer makes couriers that hand the client of each hint to handle.
//
// handle returns nil once it has seen to what storage has for the client: asynq
// then forgets the hint. An error means that the infrastructure failed; the hint
// is handled again after 1 to 10 seconds. It should return soon: a client has no
// more than three hints, so while three are being handled no further one comes.
// The same client may be handled twice at once. The context ends when Redis has
// been away for half a minute or after a minute, and then the hint is handled
// anew, perhaps elsewhere; it is no reason to stop.
func NewDeliveryConsumer(r *Redis, cfg WorkersConfig, handle func(ctx context.Context, client job.ID) error) *DeliveryConsumer {
	return &DeliveryConsumer{newConsumer(r, cfg, queueWebhooks, handler(r, hintType, r.metrics.hinted, parseHint, bounded(handle)))}
}

// bounded has a hint forgotten that failed too often.
func bounded(handle func(context.Context, job.ID) error) func(context.Context, job.ID) error {
	return func(ctx context.Context, client job.ID) error {
		err := handle(ctx, client)
		if tried, _ := asynq.GetRetryCount(ctx); err != nil && tried >= hintRetries {
			return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
		}
		return err
	}
}

// parseHint reads a hint's payload, in exactly the spelling that it is given.
func parseHint(payload string) (job.ID, error) {
	client, err := job.ParseID(payload)
	if err != nil || client.IsZero() || client.String() != payload {
		return job.ID{}, errBadPayload
	}
	return client, nil
}
