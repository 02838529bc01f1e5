package judge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	taskPiece = 500     // keys of one exchange
	mostTasks = 100_000 // that are held in memory
	lookAgain = 500 * time.Millisecond
)

// queues are the asynq queues of the service: tasks of the first are named
// {job}:{attempt}:{dispatch}, of the second after clients.
var queues = []string{"jobs", "webhooks"}

// queue looks at the tasks in Redis until there are none, or for as long as it is
// patient: what is there all the time is left over, or waits for its time.
func (c *collector) queue(ctx context.Context) error {
	options, err := redis.ParseURL(c.RedisURL)
	if err != nil {
		return fmt.Errorf("the address of Redis cannot be read")
	}
	options.DialerRetries = 1 // it is there, or it is told as missing
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	var left map[history.Task]bool
	for until := time.Now().Add(c.Patience); ; {
		seen, err := tasksIn(ctx, rdb)
		if err != nil {
			return err
		}
		left = staying(left, seen)
		if len(left) == 0 || time.Now().After(until) {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
	return c.addTasks(ctx, left)
}

// staying are the tasks that were there before, in whatever state, and still are.
func staying(before, now map[history.Task]bool) map[history.Task]bool {
	if before == nil {
		return now
	}
	type name struct{ queue, id string }
	was := make(map[name]bool, len(before))
	for t := range before {
		was[name{t.Queue, t.ID}] = true
	}
	for t := range now {
		if !was[name{t.Queue, t.ID}] {
			delete(now, t)
		}
	}
	return now
}

// tasksIn lists all tasks, in all states, by their hashes: lists may change while
// they are read, and hashes are where asynq keeps what a task is.
func tasksIn(ctx context.Context, rdb *redis.Client) (map[history.Task]bool, error) {
	found := map[history.Task]bool{}
	for _, queue := range queues {
		prefix := "asynq:{" + queue + "}:t:"
		for cursor := uint64(0); ; {
			keys, next, err := rdb.Scan(ctx, cursor, prefix+"*", taskPiece).Result()
			if err != nil {
				return nil, err
			}
			states := make([]*redis.StringCmd, len(keys))
			if len(keys) > 0 {
				_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
					for i, key := range keys {
						states[i] = p.HGet(ctx, key, "state")
					}
					return nil
				})
			}
			for i, key := range keys {
				if state, ok := states[i].Result(); ok == nil { // otherwise it was done meanwhile
					found[taskOf(queue, strings.TrimPrefix(key, prefix), state)] = true
				}
			}
			switch {
			case err != nil && !errors.Is(err, redis.Nil):
				return nil, err
			case len(found) > mostTasks:
				return nil, fmt.Errorf("there are more than %d tasks", mostTasks)
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return found, nil
}

func taskOf(queue, id, state string) history.Task {
	t := history.Task{Queue: queue, ID: id, State: state}
	if parts := strings.Split(id, ":"); queue == queues[0] && len(parts) == 3 {
		t.Attempt, _ = strconv.Atoi(parts[1])
		t.Dispatch, _ = strconv.Atoi(parts[2])
	}
	return t
}

// addTasks keeps what is left over, but for tasks of jobs that exist and are
// somebody else's.
func (c *collector) addTasks(ctx context.Context, left map[history.Task]bool) error {
	names := map[string]bool{}
	for t := range left {
		names[subjectOf(t)] = true
	}
	strangers, missing, err := c.strangers(ctx, names)
	if err != nil {
		return err
	}
	for t := range left {
		subject := subjectOf(t)
		if strangers[subject] {
			continue
		}
		f := history.Fact{Kind: history.QueuedTask, Task: &t}
		if t.Queue == queues[0] {
			f.Job = subject
		} else if missing[subject] {
			f.Note = "there is no client of that name"
		}
		c.add(f)
	}
	return nil
}

func subjectOf(t history.Task) string {
	subject, _, _ := strings.Cut(t.ID, ":")
	return subject
}

// strangers tells which of the names of jobs and clients are others', and which
// are nobody's. Without the database both are unknown.
func (c *collector) strangers(ctx context.Context, names map[string]bool) (others, nobodys map[string]bool, err error) {
	others, nobodys = map[string]bool{}, map[string]bool{}
	if c.DatabaseURL == "" || len(names) == 0 {
		return others, nobodys, nil
	}
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, name)
		nobodys[name] = true
	}
	rows, err := conn.Query(ctx, `SELECT j.job_id::text, NOT `+mine+` FROM jobs j WHERE job_id::text = ANY ($3)
		UNION ALL SELECT client_id::text, client_id <> ALL ($1::uuid[]) FROM clients WHERE client_id::text = ANY ($3)`, c.clientIDs(), c.Run+".", all)
	if err != nil {
		return nil, nil, err
	}
	var name string
	var other *bool
	_, err = pgx.ForEachRow(rows, []any{&name, &other}, func() error {
		delete(nobodys, name)
		others[name] = other == nil || *other // a job without a correlation id is not the run's
		return nil
	})
	return others, nobodys, err
}
