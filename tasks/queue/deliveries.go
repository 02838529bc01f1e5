package queue

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	wakeUpRest    = 5 * time.Millisecond // after clients were woken: what happens meanwhile wakes each once more
	maxWoken      = 65536                // wake-ups that may wait
	deliveryNames = 3                    // delivery tasks of a client that there can be in Redis
	deliveryTime  = time.Minute          // after which asynq takes a handler for lost
)

// WakeDelivery says that the client may have something to deliver, best effort, non-blocking: a wake-up that finds no room or
// Redis down is dropped and counted, and the relay repeats it. The first one is sent at once; of a client's in the 5 ms after it one
// is sent, at their end.
func (q *Queue) WakeDelivery(client job.ID) { q.clients.Add(client) }

// WakeDeliveries wakes the deliveries of the clients at once. With an error some tasks may be in the queue; all can be given again.
func (q *Queue) WakeDeliveries(ctx context.Context, clients []job.ID) error {
	for chunk := range slices.Chunk(clients, maxPut) {
		if err := ctx.Err(); err != nil {
			return q.redis.Failed("wake", err)
		}
		if err := q.forgetLostWakeUps(ctx, chunk); err != nil {
			return q.redis.Failed("wake", err)
		}
		if err := q.sendWakeUps(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) forgetLostWakeUps(ctx context.Context, clients []job.ID) error {
	names := wakeUpNames(clients)
	states, err := q.statesOf(ctx, redisconn.Webhooks, names)
	if err != nil {
		return err
	}
	return q.forgetLost(ctx, redisconn.Webhooks, names, states, func(int) time.Time { return time.Time{} })
}

// wakeUpNames are the asynq ids that tasks of the clients may have.
func wakeUpNames(clients []job.ID) []string {
	names := make([]string, 0, deliveryNames*len(clients))
	for _, client := range clients {
		for n := range deliveryNames {
			names = append(names, deliveryName(client.String(), n))
		}
	}
	return names
}

// sendWakeUps puts a task for each client into the queue unless one is pending. One that is being handled may have read storage
// already, and one whose handler failed waits for its time; beside them another is put. When all names are taken, a handler or the
// relay serves the client in time.
func (q *Queue) sendWakeUps(ctx context.Context, clients []job.ID) error {
	clients = slices.Compact(slices.SortedFunc(slices.Values(clients), func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) }))
	names := wakeUpNames(clients)
	states, err := q.statesOf(ctx, redisconn.Webhooks, names)
	count := func(result string, n int) { q.redis.Metrics.WakeUps.WithLabelValues(result).Add(float64(n)) }
	if err != nil {
		count(redisconn.ResultFailed, len(clients))
		return q.redis.Failed("wake", err)
	}
	var entries []entry
	for i, client := range clients {
		of := states[i*deliveryNames : (i+1)*deliveryNames]
		free := slices.Index(of, "")
		switch {
		case slices.Contains(of, "pending"):
			count(redisconn.ResultPresent, 1)
		case free < 0:
			count(redisconn.ResultUsed, 1)
		default:
			m := message{
				kind: DeliveryTask, payload: wakeUpPayload(client.String()), id: names[i*deliveryNames+free], queue: redisconn.Webhooks,
				timeout: deliveryTime,
			}
			entries = append(entries, entry{id: m.id, message: m.encode()})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	put, err := q.put(ctx, redisconn.Webhooks, entries, 0)
	if err != nil {
		count(redisconn.ResultFailed, len(entries))
		return q.redis.Failed("wake", err)
	}
	for _, result := range put {
		if result == putDone {
			count(redisconn.ResultOK, 1)
		} else { // somebody else put it since: who handles that reads storage later
			count(redisconn.ResultPresent, 1)
		}
	}
	return nil
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
