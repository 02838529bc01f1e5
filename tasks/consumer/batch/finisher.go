package batch

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/notify"
)

const (
	finishPause = 2 * time.Millisecond   // after an exchange, in which handled tasks gather
	finishRetry = 200 * time.Millisecond // after a failure
	maxFinish   = 100                    // tasks in one exchange: Redis may search a long list for each, and blocks meanwhile
	maxFinished = 20_000                 // tasks that may wait to be removed
	finishTime  = 30 * time.Second       // of asynq's lease: after it the task may be another consumer's, and is not removed
)

//go:embed finish.lua
var finishSource string

var finishScript = redis.NewScript(finishSource)

var errFinishFull = errors.New("too many handled tasks wait to be removed from Redis")

// finisher removes handled tasks from Redis, soon, many in one exchange. asynq takes them for removed before: one that is not is run
// again when its lease has ended, and its handler then finds nothing to do.
type finisher struct {
	*notify.Sender[handled]
	client redis.UniversalClient
	keys   queueKeys
}

// handled is a task, when it was handled, and where asynq counts the tasks of the day, and until when.
type handled struct {
	id       string
	at       int64 // nanoseconds since 1970
	countKey string
	countEnd any
}

func newFinisher(client redis.UniversalClient, queue string) finisher {
	f := finisher{client: client, keys: keysOf(queue)}
	f.Sender = notify.NewSender(notify.SenderConfig[handled]{
		Buffer: maxFinished, Batch: maxFinish, Workers: 1, Pause: finishPause, Retry: finishRetry, Send: f.remove,
	})
	return f
}

// finish has the task removed. With an error it is not going to be.
func (f finisher) finish(t handled) error {
	t.at = time.Now().UnixNano()
	if !f.Add(t) {
		return errFinishFull
	}
	return nil
}

// remove removes tasks, but not those that are too old. The day is the latest one's.
func (f finisher) remove(ctx context.Context, tasks []handled) error {
	day := tasks[len(tasks)-1]
	args := make([]any, 0, 2+len(tasks))
	args = append(args, day.countEnd, f.keys.task)
	for _, t := range tasks {
		if time.Since(time.Unix(0, t.at)) <= finishTime {
			args = append(args, t.id)
		}
	}
	if len(args) == 2 {
		return nil
	}
	keys := []string{f.keys.active, f.keys.lease, day.countKey, f.keys.count}
	return finishScript.Run(ctx, f.client, keys, args...).Err()
}
