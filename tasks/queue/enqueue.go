package queue

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

//go:embed enqueue.lua
var enqueueSource string

var enqueueScript = redis.NewScript(enqueueSource)

// maxPut is how many tasks one script puts into a queue at most: Redis does nothing else meanwhile, for less than a millisecond.
const maxPut = 256

// entry is a task as asynq keeps it.
type entry struct {
	id      string
	message []byte
	at      time.Time // when it is due; not after the present: now
}

// putResult is what became of an entry.
type putResult int64

// What enqueue.lua answers.
const (
	putTaken putResult = iota // another task has the id
	putDone
	putRefused // there is no room for a task of that time
)

// put puts at most maxPut tasks into the named queue, in their order, all or none. Of those whose time has not come there may be so
// many. Consumers of the queue are woken.
func (q *Queue) put(ctx context.Context, name string, entries []entry, scheduled int) ([]putResult, error) {
	if err := q.register(ctx); err != nil {
		return nil, q.redis.Failed("register", err)
	}
	now := q.clock.Now()
	arguments := append(make([]any, 0, 3+3*len(entries)), redisconn.TaskKey(name, ""), time.Now().UnixNano(), scheduled)
	for _, e := range entries {
		at := ""
		if e.at.After(now) {
			at = redisconn.Score(e.at)
		}
		arguments = append(arguments, e.id, e.message, at)
	}
	keys := []string{redisconn.QueueKey(name, "pending"), redisconn.QueueKey(name, "scheduled")}
	answers, err := enqueueScript.Run(ctx, q.redis.Client, keys, arguments...).Int64Slice()
	if err == nil && len(answers) != len(entries) {
		err = fmt.Errorf("%d answers for %d tasks", len(answers), len(entries))
	}
	if err != nil {
		return nil, err
	}
	results := make([]putResult, len(entries))
	for i, e := range entries {
		results[i] = putResult(answers[i])
		if results[i] == putDone && (!e.at.After(now) || q.clock.Wait(e.at.Sub(now)) < notify.DueSoon) {
			q.wakeUps[name].Send()
		}
	}
	return results, nil
}

// register tells asynq's inspectors of the queues, once: Mend repeats it.
func (q *Queue) register(ctx context.Context) error {
	if q.registered.Load() {
		return nil
	}
	err := addQueues(ctx, q.redis.Client).Err()
	q.registered.Store(err == nil)
	return err
}
