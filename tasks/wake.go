package tasks

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
)

// queueWebhooks is the asynq queue of hints: each names a client that may have
// something to deliver. What and where to is read from storage.
const queueWebhooks = "webhooks"

// hintType is the asynq type of a hint. Its payload is the client's id.
const hintType = "deliveries"

const (
	// hintNames is how many hints of a client there can be in Redis.
	hintNames = 3
	// hintTime is after how long asynq takes a hint's handler for lost.
	hintTime = time.Minute
)

var hintOptions = []asynq.Option{asynq.Queue(queueWebhooks), asynq.MaxRetry(maxRetry), asynq.Timeout(hintTime)}

// Wake hints that the client may have something to deliver, soon. It never
// waits and reports nothing: a hint that finds no room or Redis down is dropped
// and counted, and the relay hints again. The first hint of a client goes at
// once; of those in the 5 ms after it one goes, at their end.
func (q *Queue) WakeDelivery(client job.ID) {
	if q.stopped.Load() || !q.woken.add(client) {
		q.countHints(resultDropped, 1)
	}
}

func (q *Queue) countHints(result string, n int) {
	q.redis.metrics.hints.WithLabelValues(result).Add(float64(n))
}

// WakeDeliveries hints at the clients at once. With an error some hints may be in the
// queue; all can be given again.
func (q *Queue) WakeDeliveries(ctx context.Context, clients []job.ID) error {
	for chunk := range slices.Chunk(clients, dispatchers) {
		if err := ctx.Err(); err != nil {
			return q.redis.failed("hint", err)
		}
		if err := q.hint(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// sendHints sends what came while the sending before was under way.
func (q *Queue) sendHints() {
	var clients []job.ID
	for {
		var wait time.Duration
		if clients, wait = q.woken.take(time.Now(), clients); len(clients) > 0 {
			q.sendWoken(clients)
			continue
		}
		var rested <-chan time.Time // nil: nobody rests
		if wait > 0 {
			rested = time.After(wait)
		}
		select {
		case <-q.woken.added:
		case <-rested:
		case <-q.stopping:
			clients, _ = q.woken.take(time.Now().Add(hintPause), clients) // nobody rests longer
			q.sendWoken(clients)
			return
		}
	}
}

func (q *Queue) sendWoken(clients []job.ID) {
	for chunk := range slices.Chunk(clients, dispatchers) {
		select {
		case <-q.abort:
			q.countHints(resultDropped, len(chunk))
			continue
		default:
		}
		if !q.hinting.allow() {
			q.countHints(resultSkipped, len(chunk))
			continue
		}
		q.hinting.report(q.hint(context.Background(), chunk))
	}
}

// hint sends one hint for each of a few clients. One that is refused does not
// keep the others back.
func (q *Queue) hint(ctx context.Context, clients []job.ID) error {
	var group errgroup.Group
	for _, client := range clients {
		group.Go(func() error {
			result, err := q.hintOne(ctx, client)
			q.countHints(result, 1)
			return err
		})
	}
	return q.redis.failed("hint", group.Wait())
}

// hintOne puts a hint into the queue unless one waits there. One that is being
// handled may have read storage already, and one whose handler failed waits for
// its time; beside them another is put. When all names are taken so, a handler
// or the relay comes to the client in time.
func (q *Queue) hintOne(ctx context.Context, client job.ID) (string, error) {
	payload := client.String()
	for n := range hintNames {
		name := hintName(payload, n)
		options := append([]asynq.Option{asynq.TaskID(name)}, hintOptions...)
		_, err := q.client.EnqueueContext(ctx, asynq.NewTask(hintType, []byte(payload)), options...)
		if err == nil {
			q.bells[queueWebhooks].ring()
			return resultOK, nil
		}
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return resultFailed, err
		}
		state, err := q.redis.pipe.HGet(ctx, taskKey(queueWebhooks, name), "state").Result()
		switch {
		case err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err):
			return resultFailed, err
		case state == "pending":
			return resultPresent, nil
		}
	}
	return resultSpent, nil
}

// hintName is the asynq id of a client's n-th hint, from 0.
func hintName(client string, n int) string {
	if n == 0 {
		return client
	}
	return client + ":" + strconv.Itoa(n)
}

// isWrongType reports whether a key holds another type than ours has.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
