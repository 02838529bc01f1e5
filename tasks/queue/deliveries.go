package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	wakeUpRest    = 5 * time.Millisecond // of a client after it was woken: what happens meanwhile wakes it once more
	maxWoken      = 65536                // clients that may wait or rest
	deliveryNames = 3                    // delivery tasks of a client that there can be in Redis
	deliveryTime  = time.Minute          // after which asynq takes a handler for lost
)

var deliveryOptions = []asynq.Option{asynq.MaxRetry(MaxRetry), asynq.Timeout(deliveryTime)}

// WakeDelivery says that the client may have something to deliver, best effort, non-blocking: a wake-up that finds no room or
// Redis down is dropped and counted, and the relay repeats it. A client's first one is sent at once; of those in the 5 ms after it
// one is sent, at their end.
func (q *Queue) WakeDelivery(client job.ID) { q.clients.Add(client) }

// WakeDeliveries wakes the deliveries of the clients at once. With an error some tasks may be in the queue; all can be given again.
func (q *Queue) WakeDeliveries(ctx context.Context, clients []job.ID) error {
	for chunk := range slices.Chunk(clients, dispatchers) {
		if err := ctx.Err(); err != nil {
			return q.redis.Failed("wake", err)
		}
		if err := q.sendWakeUps(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// sendWakeUps puts a task for each of a few clients. One that is refused does not keep the others back.
func (q *Queue) sendWakeUps(ctx context.Context, clients []job.ID) error {
	var group errgroup.Group
	for _, client := range clients {
		group.Go(func() error {
			result, err := q.putDelivery(ctx, client.String())
			q.redis.Metrics.WakeUps.WithLabelValues(result).Inc()
			return err
		})
	}
	return q.redis.Failed("wake", group.Wait())
}

// putDelivery puts a task into the queue unless one is pending. One that is being handled may have read storage already, and one
// whose handler failed waits for its time; beside them another is put. When all names are taken, a handler or the relay serves
// the client in time.
func (q *Queue) putDelivery(ctx context.Context, client string) (result string, err error) {
	for n := range deliveryNames {
		name := deliveryName(client, n)
		options := append([]asynq.Option{asynq.TaskID(name)}, deliveryOptions...)
		payload := wakeUpPayload(client, q.readers.readNames(redisconn.Webhooks))
		err := q.put(ctx, redisconn.Webhooks, asynq.NewTask(DeliveryTask, payload), time.Time{}, 0, options...)
		if err == nil {
			return redisconn.ResultOK, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return redisconn.ResultFailed, err
		}
		state, err := q.redis.Pipe.HGet(ctx, redisconn.TaskKey(redisconn.Webhooks, name), "state").Result()
		switch {
		case err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err):
			return redisconn.ResultFailed, err
		case state == "pending":
			return redisconn.ResultPresent, nil
		}
	}
	return redisconn.ResultUsed, nil
}

// deliveryName is the asynq id of a client's n-th task, from 0.
func deliveryName(client string, n int) string {
	if n == 0 {
		return client
	}
	return client + ":" + strconv.Itoa(n)
}

// isWrongType reports whether a key holds another type than ours has.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
