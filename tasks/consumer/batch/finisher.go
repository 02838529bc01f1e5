package batch

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	finishPause = 2 * time.Millisecond   // after an exchange, in which handled tasks gather
	finishRetry = 200 * time.Millisecond // after a failure
	maxFinish   = 100                    // tasks in one exchange: Redis may search a long list for each, and blocks meanwhile
	maxFinished = 20_000                 // tasks that may wait to be ended
	finishTime  = 30 * time.Second       // of asynq's lease: after it the task may be another consumer's, and is left alone
	maxArchived = 1000                   // tasks that failed and are kept: asynq's own bound is 10,000
)

// What becomes of a task, as finish.lua says.
const (
	taskDone   = "done"
	taskStale  = "stale"
	taskFailed = "failed"
	taskEarly  = "early"
	taskBack   = "back"
)

//go:embed finish.lua
var finishSource string

var finishScript = redis.NewScript(finishSource)

var errFinishFull = errors.New("too many handled tasks wait to be removed from Redis")

// finisher ends handled tasks in Redis, soon, many in one exchange. asynq takes them for ended before: one that is not is run again
// when its lease has ended, and its handler then finds nothing to do.
type finisher struct {
	*notify.Sender[handled]
	client redis.UniversalClient
	queue  string
	keys   queueKeys
}

// handled is a task that somebody had, and what becomes of it.
type handled struct {
	id    string
	at    int64 // when it was handled, in nanoseconds since 1970
	as    string
	value any // see finish.lua
}

func newFinisher(client redis.UniversalClient, queue string) finisher {
	f := finisher{client: client, queue: queue, keys: keysOf(queue)}
	f.Sender = notify.NewSender(notify.SenderConfig[handled]{
		Buffer: maxFinished, Batch: maxFinish, Pause: finishPause, Retry: finishRetry, Send: f.end,
	})
	return f
}

// finish has the task ended. With an error it is not going to be.
func (f finisher) finish(id, as string, value any) error {
	if !f.Add(handled{id, time.Now().UnixNano(), as, value}) {
		return errFinishFull
	}
	return nil
}

// end ends tasks, but not those that are too old.
func (f finisher) end(ctx context.Context, tasks []handled) error {
	now := time.Now()
	counts, until := redisconn.CountKeys(f.queue, now)
	args := append(make([]any, 0, 4+3*len(tasks)), f.keys.task, now.Unix(), until, maxArchived)
	for _, t := range tasks {
		if now.Sub(time.Unix(0, t.at)) <= finishTime {
			args = append(args, t.id, t.as, t.value)
		}
	}
	if len(args) == 4 {
		return nil
	}
	keys := append([]string{f.keys.active, f.keys.lease, f.keys.pending, f.keys.scheduled, f.keys.archived}, counts...)
	return finishScript.Run(ctx, f.client, keys, args...).Err()
}
