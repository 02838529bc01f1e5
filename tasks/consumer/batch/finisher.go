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
	// finishPause is the rest after an exchange, in which handled tasks gather:
	// nobody waits for their removal.
	finishPause = 2 * time.Millisecond
	// finishRetry is the wait after a failure.
	finishRetry = 200 * time.Millisecond
	// maxFinish is how many tasks one exchange removes. Redis may have to search a
	// long list for each, and does nothing else meanwhile.
	maxFinish = 100
	// maxFinished is how many tasks may wait to be removed.
	maxFinished = 20_000
	// finishTime is after how long a task is not removed any more: asynq's lease
	// has ended, and it may be somebody else's.
	finishTime = 30 * time.Second
)

//go:embed finish.lua
var finishSource string

var finishScript = redis.NewScript(finishSource)

var errFinishFull = errors.New("too many handled tasks wait to be removed from Redis")

// finisher removes handled tasks from Redis, soon, many in one exchange. asynq
// takes them for removed before: one that is not removed after all is run again
// when its lease has ended, and its handler then finds nothing to do.
type finisher struct {
	*notify.Sender[handled]
	client redis.UniversalClient
	keys   queueKeys
}

// handled is a task, when it was handled, and where asynq counts the tasks of
// the day, and until when.
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

// remove removes tasks, but not those that are too old. The day is the latest
// one's.
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
