package queue

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	wakeUpRest    = 5 * time.Millisecond // of a client after it was woken: what happens meanwhile wakes it once more
	maxWoken      = 65536                // clients that may wait or rest
	deliveryNames = 3                    // delivery tasks of a client that there can be in Redis
	deliveryTime  = time.Minute          // after which asynq takes a handler for lost
)

// WakeDelivery says that the client may have something to deliver, best effort, non-blocking: a wake-up that finds no room or
// Redis down is dropped and counted, and the relay repeats it. A client's first one is sent at once; of those in the 5 ms after it
// one is sent, at their end.
func (q *Queue) WakeDelivery(client job.ID) { q.clients.Add(client) }

// WakeDeliveries wakes the deliveries of the clients at once. With an error some tasks may be in the queue; all can be given again.
func (q *Queue) WakeDeliveries(ctx context.Context, clients []job.ID) error {
	for chunk := range slices.Chunk(clients, maxPut) {
		if err := ctx.Err(); err != nil {
			return q.redis.Failed("wake", err)
		}
		if err := q.sendWakeUps(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// sendWakeUps puts a task for each client into the queue unless one is pending. One that is being handled may have read storage
// already, and one whose handler failed waits for its time; beside them another is put. When all names are taken, a handler or the
// relay serves the client in time.
func (q *Queue) sendWakeUps(ctx context.Context, clients []job.ID) error {
	results := map[string]int{}
	left, err := clients, error(nil)
	for n := 0; n < deliveryNames && len(left) > 0 && err == nil; n++ {
		left, err = q.putDeliveries(ctx, left, n, results)
	}
	if err != nil {
		results[redisconn.ResultFailed] += len(left)
	} else {
		results[redisconn.ResultUsed] += len(left)
	}
	for result, n := range results {
		q.redis.Metrics.WakeUps.WithLabelValues(result).Add(float64(n))
	}
	return q.redis.Failed("wake", err)
}

// putDeliveries puts the n-th task of each client, counts what became of them, and gives those clients for which it found a task of
// that name that is not pending, or, with an error, all.
func (q *Queue) putDeliveries(ctx context.Context, clients []job.ID, n int, results map[string]int) (left []job.ID, err error) {
	entries := make([]entry, len(clients))
	for i, client := range clients {
		m := message{
			kind: DeliveryTask, payload: wakeUpPayload(client.String()), id: deliveryName(client.String(), n), queue: redisconn.Webhooks,
			timeout: deliveryTime,
		}
		entries[i] = entry{id: m.id, message: m.encode()}
	}
	put, err := q.put(ctx, redisconn.Webhooks, entries, 0)
	if err != nil {
		return clients, err
	}
	var taken []string
	for i, result := range put {
		if result == putDone {
			results[redisconn.ResultOK]++
			continue
		}
		taken, left = append(taken, entries[i].id), append(left, clients[i])
	}
	states, err := q.statesOf(ctx, redisconn.Webhooks, taken)
	if err != nil {
		return left, err
	}
	pending := 0
	left = slices.DeleteFunc(left, func(job.ID) bool { pending++; return states[pending-1] == "pending" })
	results[redisconn.ResultPresent] += len(taken) - len(left)
	return left, nil
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
