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
	maxRemovals   = 4096 // that may wait
	removeBatch   = 100
	removePending = 1000 // of more pending tasks none is searched for
	// removeAgain is after how long a task that was not there is removed once more: it may have been on its way.
	removeAgain = time.Second
)

//go:embed remove.lua
var removeSource string

var removeScript = redis.NewScript(removeSource)

// removal is of a task of a job that is not wanted any more.
type removal struct {
	id    string
	again bool // it was not there before
}

// Remove takes the task out of the queue, unless somebody has it, best effort, non-blocking. One that stays is found stale by who
// takes it.
func (q *Queue) Remove(t job.Task) { q.removals.Add(removal{id: TaskName(t)}) }

func (q *Queue) newRemovals() *notify.Sender[removal] {
	return notify.NewSender(notify.SenderConfig[removal]{
		Buffer: maxRemovals, Batch: removeBatch, Send: q.sendRemovals,
		Circuit: redisconn.NewCircuit("removing tasks", q.redis.Log, nil),
	})
}

func (q *Queue) sendRemovals(ctx context.Context, removals []removal) error {
	ids := make([]string, len(removals))
	for i, r := range removals {
		ids[i] = r.id
	}
	missing, err := q.removeTasks(ctx, redisconn.Jobs, ids)
	if missing > 0 {
		q.removeLater(removals)
	}
	return q.redis.Failed("remove", err)
}

// removeTasks removes those of the tasks that nobody has, and gives how many were not there.
func (q *Queue) removeTasks(ctx context.Context, queue string, ids []string) (missing int, err error) {
	for chunk := range slices.Chunk(ids, removeBatch) {
		args := []any{redisconn.QueueKey(queue, ""), removePending}
		for _, id := range chunk {
			args = append(args, id)
		}
		n, err := removeScript.Run(ctx, q.redis.Client, []string{redisconn.QueueKey(queue, "pending")}, args...).Int()
		if err != nil {
			return missing, err
		}
		missing += n
	}
	return missing, nil
}

// removeLater removes tasks once more, those that are gone with them. What waits when the process ends is left to who takes it.
func (q *Queue) removeLater(removals []removal) {
	again := slices.Clone(removals)
	again = slices.DeleteFunc(again, func(r removal) bool { return r.again })
	if len(again) == 0 {
		return
	}
	time.AfterFunc(removeAgain, func() {
		for _, r := range again {
			q.removals.Add(removal{id: r.id, again: true})
		}
	})
}
