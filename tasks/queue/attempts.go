package queue

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	maxWaiting   = 10_000 // deliveries that may wait in Redis for their next attempt
	maxGivenUp   = 1000   // deliveries that were given up and are kept
	attemptBatch = 64     // in one exchange
	attemptRest  = 2 * time.Millisecond
	maxAttempts  = 16_384 // that may wait to be shown
)

// shown is a delivery after an attempt, or an endpoint whose tasks go.
type shown struct {
	delivery job.Delivery
	drop     bool // only the endpoint counts
}

// Attempted counts an attempt to deliver that was recorded, as asynq counts a task, and shows the delivery as it is after it: with
// a task that begins the next attempt at its time, or in the archive when it was given up. Best effort, non-blocking: what is lost
// is not counted, and the relay offers what waits again.
func (q *Queue) Attempted(d job.Delivery) { q.attempts.Add(&shown{delivery: d}) }

// DropDeliveries removes the tasks of an endpoint that wait, best effort, non-blocking. One that stays finds nothing to do.
func (q *Queue) DropDeliveries(endpoint job.ID) {
	q.attempts.Add(&shown{delivery: job.Delivery{Endpoint: endpoint}, drop: true})
}

func (q *Queue) newAttempts() *notify.Sender[*shown] {
	return notify.NewSender(notify.SenderConfig[*shown]{
		Buffer: maxAttempts, Batch: attemptBatch, Pause: attemptRest, Send: q.sendAttempts,
		Circuit: redisconn.NewCircuit("showing deliveries", q.redis.Log, nil),
	})
}

func (q *Queue) sendAttempts(ctx context.Context, items []*shown) error {
	var attempted, waiting, givenUp []job.Delivery
	var dropped []job.ID
	failed := 0
	for _, item := range items {
		d := item.delivery
		if item.drop {
			dropped = append(dropped, d.Endpoint)
			continue
		}
		attempted = append(attempted, d)
		switch {
		case d.LastError == "":
			continue
		case d.State == job.DeliveryPending && d.NextAttemptAt != nil:
			waiting = append(waiting, d)
		case d.State == job.DeliveryFailed:
			givenUp = append(givenUp, d)
		}
		failed++
	}
	_, err := q.putAttempts(ctx, waiting)
	if err == nil {
		err = q.removeAttempts(ctx, attempted, dropped)
	}
	if err == nil && len(attempted) > 0 {
		err = q.countAttempts(ctx, len(attempted), failed, givenUp)
	}
	return q.redis.Failed("wake", err)
}

// ScheduleDeliveries makes a task of each delivery that waits for its next attempt and has none, as far as there is room, and gives
// how many it made. With an error some may be there; all can be offered again.
func (q *Queue) ScheduleDeliveries(ctx context.Context, waiting []job.Delivery) (n int, err error) {
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(d job.Delivery) bool { return d.NextAttemptAt == nil })
	names := make([]string, len(waiting))
	for i := range waiting {
		names[i] = attemptName(&waiting[i], waiting[i].Attempts+1)
	}
	states, err := q.statesOf(ctx, redisconn.Webhooks, names)
	if err == nil {
		err = q.forgetLost(ctx, redisconn.Webhooks, names, states, func(i int) time.Time { return *waiting[i].NextAttemptAt })
	}
	if err != nil {
		return 0, q.redis.Failed("wake", err)
	}
	var missing []job.Delivery
	for i, state := range states {
		if state == "" {
			missing = append(missing, waiting[i])
		}
	}
	n, err = q.putAttempts(ctx, missing)
	return n, q.redis.Failed("wake", err)
}

// putAttempts makes a task of the next attempt of each delivery that has none, as far as there is room, and gives how many it made.
func (q *Queue) putAttempts(ctx context.Context, waiting []job.Delivery) (n int, err error) {
	for chunk := range slices.Chunk(waiting, maxPut) {
		entries := make([]entry, len(chunk))
		for i := range chunk {
			d := &chunk[i]
			id := attemptName(d, d.Attempts+1)
			entries[i] = entry{id, attemptMessage(id, d, d.Attempts+1, time.Time{}), *d.NextAttemptAt}
		}
		results, err := q.put(ctx, redisconn.Webhooks, entries, maxWaiting)
		if err != nil {
			return n, err
		}
		for _, result := range results {
			if result == putDone {
				n++
			}
		}
	}
	return n, nil
}

// removeAttempts removes the tasks of attempts that were made, which may have begun without them, and all that wait for endpoints.
func (q *Queue) removeAttempts(ctx context.Context, attempted []job.Delivery, endpoints []job.ID) error {
	var ids []string
	for i := range attempted {
		ids = append(ids, attemptName(&attempted[i], attempted[i].Attempts))
	}
	for _, endpoint := range endpoints {
		found := q.redis.Client.ZScan(ctx, redisconn.QueueKey(redisconn.Webhooks, "scheduled"), 0, endpoint.String()+":*", 1000).Iterator()
		for found.Next(ctx) {
			ids = append(ids, found.Val())
			found.Next(ctx) // its score
		}
		if err := found.Err(); err != nil {
			return err
		}
	}
	_, err := q.removeTasks(ctx, redisconn.Webhooks, ids)
	return err
}

// countAttempts counts attempts, and keeps the latest of the deliveries that were given up in the archive. asynq can do neither
// without a task that a handler has.
func (q *Queue) countAttempts(ctx context.Context, attempts, failed int, givenUp []job.Delivery) error {
	now := time.Now()
	archived := redisconn.QueueKey(redisconn.Webhooks, "archived")
	counts, until := redisconn.CountKeys(redisconn.Webhooks, now)
	var old *redis.StringSliceCmd
	_, err := q.redis.Client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range counts {
			if n := []int{attempts, attempts, failed, failed}[i]; n > 0 {
				p.IncrBy(ctx, key, int64(n))
			}
		}
		p.ExpireAt(ctx, counts[0], time.Unix(until, 0))
		p.ExpireAt(ctx, counts[2], time.Unix(until, 0))
		for i := range givenUp {
			d := &givenUp[i]
			id := attemptName(d, d.Attempts) + ":failed"
			p.HSet(ctx, redisconn.TaskKey(redisconn.Webhooks, id), "msg", attemptMessage(id, d, d.Attempts, now), "state", "archived")
			p.ZAdd(ctx, archived, redis.Z{Score: float64(now.Unix()), Member: id})
		}
		old = p.ZRange(ctx, archived, 0, -maxGivenUp-1)
		return nil
	})
	if err != nil || len(old.Val()) == 0 {
		return err
	}
	_, err = q.removeTasks(ctx, redisconn.Webhooks, old.Val())
	return err
}
