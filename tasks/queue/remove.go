package queue

import (
	"context"
	_ "embed"
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

// removal is of a task that is not wanted any more.
type removal struct {
	queue, id string
	again     bool // it was not there before
}

// Remove takes the task out of the queue, unless somebody has it, best effort, non-blocking. One that stays is found stale by who
// takes it.
func (q *Queue) Remove(t job.Task) { q.removals.Add(removal{queue: redisconn.Jobs, id: TaskName(t)}) }

func (q *Queue) newRemovals() *notify.Sender[removal] {
	return notify.NewSender(notify.SenderConfig[removal]{
		Buffer: maxRemovals, Batch: removeBatch, Workers: 1, Send: q.sendRemovals,
		Circuit: redisconn.NewCircuit("removing tasks", q.redis.Log, nil),
	})
}

func (q *Queue) sendRemovals(ctx context.Context, removals []removal) error {
	byQueue := map[string][]removal{}
	for _, r := range removals {
		byQueue[r.queue] = append(byQueue[r.queue], r)
	}
	for name, of := range byQueue {
		args := make([]any, 0, 2+len(of))
		args = append(args, redisconn.QueueKey(name, ""), removePending)
		for _, r := range of {
			args = append(args, r.id)
		}
		missing, err := removeScript.Run(ctx, q.redis.Client, []string{redisconn.QueueKey(name, "pending")}, args...).Int()
		if err != nil {
			return q.redis.Failed("remove", err)
		}
		if missing > 0 {
			q.removeLater(of)
		}
	}
	return nil
}

// removeLater removes tasks once more, those that are gone with them. What waits when the process ends is left to who takes it.
func (q *Queue) removeLater(removals []removal) {
	var again []removal
	for _, r := range removals {
		if !r.again {
			r.again = true
			again = append(again, r)
		}
	}
	if len(again) == 0 {
		return
	}
	time.AfterFunc(removeAgain, func() {
		for _, r := range again {
			q.removals.Add(r)
		}
	})
}
