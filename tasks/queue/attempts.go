package queue

import (
	"context"
	_ "embed"
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
	maxAttempts  = 16_384              // that may wait to be shown
	statsTime    = 90 * 24 * time.Hour // for which asynq keeps a day's counts
)

// waitingPrefix is what the keys begin with under which the tasks of each endpoint are, in the cluster's slot of the queue.
const waitingPrefix = "forgerun:{" + redisconn.Webhooks + "}:waiting:"

//go:embed attempts.lua
var attemptsSource string

var attemptsScript = redis.NewScript(attemptsSource)

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
		Buffer: maxAttempts, Batch: attemptBatch, Workers: 1, Pause: attemptRest, Send: q.sendAttempts,
		Circuit: redisconn.NewCircuit("showing deliveries", q.redis.Log, nil),
	})
}

func (q *Queue) sendAttempts(ctx context.Context, items []*shown) error {
	s := &steps{q: q}
	for _, item := range items {
		if item.drop {
			s.add("drop", &item.delivery, "", "", time.Time{})
			continue
		}
		s.attempt(&item.delivery)
	}
	_, err := s.run(ctx)
	return err
}

// ScheduleDeliveries makes a task of each delivery that waits for its next attempt and has none, as far as there is room, and gives
// how many it made. With an error some may be there; all can be offered again.
func (q *Queue) ScheduleDeliveries(ctx context.Context, waiting []job.Delivery) (n int, err error) {
	for chunk := range slices.Chunk(waiting, askChunk) {
		missing, err := q.withoutTask(ctx, chunk)
		if err != nil {
			return n, q.redis.Failed("wake", err)
		}
		for some := range slices.Chunk(missing, attemptBatch) {
			s := &steps{q: q}
			for i := range some {
				s.wait(&some[i])
			}
			added, err := s.run(ctx)
			if err != nil {
				return n, err
			}
			n += added
		}
	}
	return n, nil
}

// withoutTask gives those of the deliveries that have no task, in whatever state.
func (q *Queue) withoutTask(ctx context.Context, waiting []job.Delivery) (missing []job.Delivery, err error) {
	pipe := q.redis.Client.Pipeline()
	found := make([]*redis.IntCmd, len(waiting))
	for i := range waiting {
		found[i] = pipe.Exists(ctx, redisconn.TaskKey(redisconn.Webhooks, attemptName(&waiting[i], waiting[i].Attempts+1)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for i, f := range found {
		if f.Val() == 0 {
			missing = append(missing, waiting[i])
		}
	}
	return missing, nil
}

// steps are what one run of the script does.
type steps struct {
	q                *Queue
	attempts, failed int
	soon             bool // the time of one of the tasks is near
	args             []any
}

// attempt counts an attempt, and shows the delivery after it.
func (s *steps) attempt(d *job.Delivery) {
	s.attempts++
	s.add("forget", d, attemptName(d, d.Attempts), "", time.Time{})
	if d.LastError == "" {
		return
	}
	s.failed++
	switch d.State {
	case job.DeliveryPending:
		s.wait(d)
	case job.DeliveryFailed:
		id := attemptName(d, d.Attempts) + ":failed"
		s.add("keep", d, id, string(attemptMessage(id, d, d.Attempts, time.Now())), time.Time{})
	}
}

func (s *steps) wait(d *job.Delivery) {
	if d.NextAttemptAt == nil {
		return
	}
	id := attemptName(d, d.Attempts+1)
	s.add("wait", d, id, string(attemptMessage(id, d, d.Attempts+1, time.Time{})), *d.NextAttemptAt)
	s.soon = s.soon || s.q.clock.Wait(d.NextAttemptAt.Sub(s.q.clock.Now())) < notify.DueSoon
}

func (s *steps) add(step string, d *job.Delivery, id, message string, at time.Time) {
	score := ""
	if !at.IsZero() {
		score = redisconn.Score(at)
	}
	s.args = append(s.args, step, d.Endpoint.String(), id, message, score)
}

// run gives how many tasks were put among those that wait.
func (s *steps) run(ctx context.Context) (added int, err error) {
	now := time.Now()
	key := func(name string) string { return redisconn.QueueKey(redisconn.Webhooks, name) }
	day := now.UTC().Format(time.DateOnly)
	keys := []string{
		key("scheduled"), key("archived"), key("processed:" + day), key("processed"), key("failed:" + day), key("failed"),
	}
	args := append([]any{
		redisconn.TaskKey(redisconn.Webhooks, ""), waitingPrefix, job.MaxWaitingTasks, maxWaiting, maxGivenUp,
		now.Unix(), now.Add(statsTime).Unix(), s.attempts, s.failed,
	}, s.args...)
	added, err = attemptsScript.Run(ctx, s.q.redis.Client, keys, args...).Int()
	if err != nil {
		return 0, s.q.redis.Failed("wake", err)
	}
	if s.soon && added > 0 {
		s.q.dueSoon[redisconn.Webhooks].Send()
	}
	return added, nil
}
