package batch

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/notify"
)

const (
	finishPause = 2 * time.Millisecond   // after an exchange, in which handled tasks gather
	finishRetry = 200 * time.Millisecond // after a failure
	maxFinish   = 100                    // tasks in one exchange: Redis may search a long list for each, and blocks meanwhile
	maxFinished = 20_000                 // tasks that may wait to be ended
	finishTime  = 30 * time.Second       // of asynq's lease: after it the task may be another consumer's, and is left alone
	maxArchived = 1000                   // tasks that failed and are kept: asynq's own bound is 10,000
)

// What becomes of a handled task.
const (
	taskDone   = "done"
	taskStale  = "stale" // it is not counted
	taskFailed = "failed"
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
	keys   queueKeys
}

// handled is a task, when it was handled, and what asynq says of the day: where it counts that day's tasks, and until when.
type handled struct {
	id       string
	at       int64 // nanoseconds since 1970
	as       string
	message  string // to be kept, of a failed one
	countKey string
	countEnd any
	now, old any // of a failed one: seconds since 1970; what was archived before old is removed
}

func newFinisher(client redis.UniversalClient, queue string) finisher {
	f := finisher{client: client, keys: keysOf(queue)}
	f.Sender = notify.NewSender(notify.SenderConfig[handled]{
		Buffer: maxFinished, Batch: maxFinish, Workers: 1, Pause: finishPause, Retry: finishRetry, Send: f.end,
	})
	return f
}

// finish has the task ended. With an error it is not going to be.
func (f finisher) finish(t handled) error {
	t.at = time.Now().UnixNano()
	if !f.Add(t) {
		return errFinishFull
	}
	return nil
}

// end ends tasks, but not those that are too old. The day is the latest one's.
func (f finisher) end(ctx context.Context, tasks []handled) error {
	day := tasks[len(tasks)-1]
	args := make([]any, 0, 5+3*len(tasks))
	args = append(args, day.countEnd, f.keys.task, 0, 0, maxArchived)
	for _, t := range tasks {
		if time.Since(time.Unix(0, t.at)) > finishTime {
			continue
		}
		if t.as == taskFailed {
			args[2], args[3] = t.now, t.old
		}
		args = append(args, t.id, t.as, t.message)
	}
	if len(args) == 5 {
		return nil
	}
	keys := []string{
		f.keys.active, f.keys.lease, f.keys.archived, day.countKey, f.keys.count,
		f.keys.failed + strings.TrimPrefix(day.countKey, f.keys.count), f.keys.failed,
	}
	return finishScript.Run(ctx, f.client, keys, args...).Err()
}
