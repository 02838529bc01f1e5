package queue

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	// lateMargin is how much later than due a task may be scheduled: a worker that cannot run it now puts it off by a second.
	lateMargin = 3 * time.Second
	maxRetry   = 10 * time.Second // wait of asynq after a handler failed, by the machine's clock
	listChunk  = 1000             // ids that one exchange reads of a list
	// listOverlap is how many tasks may be taken between two of those exchanges without one being overlooked. One that is
	// overlooked is not lost: forget.lua looks for itself.
	listOverlap = 200
	forgetBatch = 50 // tasks that one script looks for in the list
)

//go:embed forget.lua
var forgetSource string

var forgetScript = redis.NewScript(forgetSource)

// forgetLost removes those of the tasks that no worker would get at their time, and sets their states to "". A list or set may
// have been deleted, evicted or damaged, and a task may be scheduled by a clock that was set since.
func (q *Queue) forgetLost(ctx context.Context, queue string, names, states []string, due func(i int) time.Time) error {
	lost, err := q.misplaced(ctx, queue, names, states, due)
	if err != nil || len(lost) == 0 {
		return err
	}
	forgotten := 0
	for chunk := range slices.Chunk(lost, forgetBatch) {
		args := []any{redisconn.QueueKey(queue, "")}
		for _, i := range chunk {
			args = append(args, names[i])
		}
		gone, err := forgetScript.Run(ctx, q.redis.Client, []string{redisconn.QueueKey(queue, "pending")}, args...).Int64Slice()
		if err != nil {
			return err
		}
		for n, i := range chunk {
			if gone[n] == 1 {
				states[i] = ""
				forgotten++
			}
		}
	}
	if forgotten > 0 {
		q.redis.Log.Warn("tasks were missing from the lists of the queue and are enqueued anew; "+
			"Redis must not evict keys (maxmemory-policy noeviction)", "action", "repair_queue", "queue", queue, "tasks", forgotten)
	}
	return nil
}

// misplaced returns the positions of tasks that are not where their states say, or are there for a time that is too late.
func (q *Queue) misplaced(ctx context.Context, queue string, names, states []string, due func(i int) time.Time) (lost []int, err error) {
	pending, sets := map[string]int{}, map[string][]int{}
	for i, state := range states {
		switch state {
		case "pending":
			pending[names[i]] = i
		case "scheduled", "retry":
			sets[state] = append(sets[state], i)
		}
	}
	for state, members := range sets {
		scores, err := ask(ctx, q.redis, pick(names, members), func(p redis.Pipeliner, name string) *redis.FloatCmd {
			return p.ZScore(ctx, redisconn.QueueKey(queue, state), name)
		})
		if err != nil {
			return nil, err
		}
		for n, i := range members {
			latest := q.clock.Now()
			if at := due(i); at.After(latest) {
				latest = at
			}
			if state == "retry" {
				latest = time.Now().Add(maxRetry)
			}
			if scores[n] == 0 || redisconn.ScoreTime(scores[n]).After(latest.Add(lateMargin)) {
				lost = append(lost, i)
			}
		}
	}
	if err := q.dropListed(ctx, queue, pending); err != nil {
		return nil, err
	}
	for _, i := range pending {
		lost = append(lost, i)
	}
	slices.Sort(lost)
	return lost, nil
}

// dropListed removes from wanted what the list of pending tasks has. It begins where tasks are taken: those that are due for the
// longest are there.
func (q *Queue) dropListed(ctx context.Context, queue string, wanted map[string]int) error {
	for from := int64(0); len(wanted) > 0; from += listChunk - listOverlap {
		listed, err := q.redis.Client.LRange(ctx, redisconn.QueueKey(queue, "pending"), -from-listChunk, -from-1).Result()
		if err != nil && !isWrongType(err) {
			return err
		}
		for _, name := range listed {
			delete(wanted, name)
		}
		if len(listed) < listChunk {
			return nil
		}
	}
	return nil
}

func pick(names []string, positions []int) []string {
	picked := make([]string, len(positions))
	for n, i := range positions {
		picked[n] = names[i]
	}
	return picked
}
