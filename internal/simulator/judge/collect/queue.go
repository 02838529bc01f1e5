package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	taskPage   = 500     // keys of one exchange
	maxTasks   = 100_000 // that are held in memory
	queuePause = 500 * time.Millisecond
)

// The asynq queues of the service: tasks of the first are named
// {job}:{attempt}, with a third part if the attempt was queued more than once, of the second after deliveries. What follows
// a slash counts tasks of the same name.
const (
	jobQueue     = "jobs"
	webhookQueue = "webhooks"
)

// queue reads the tasks in Redis until there are none, or for as long as MaxWait:
// what is there all the time is left over, or scheduled.
func (c *collector) queue(ctx context.Context) error {
	rdb, err := openRedis(c.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	var left map[string]history.Task
	err = c.poll(ctx, queuePause, func() (bool, error) {
		now, err := readTasks(ctx, rdb)
		if before := left; before != nil {
			maps.DeleteFunc(now, func(key string, _ history.Task) bool { _, was := before[key]; return !was })
		}
		left = now
		return len(left) == 0, err
	})
	if err != nil {
		return err
	}
	return c.addTasks(ctx, left)
}

// archived is the state of tasks that do not run any more: those of attempts that failed, kept for operators.
const archived = "archived"

// readTasks gives all tasks that are not archived, by their keys. It reads the hashes in
// which asynq keeps tasks, since its lists may change while they are read.
func readTasks(ctx context.Context, rdb *redis.Client) (map[string]history.Task, error) {
	found := map[string]history.Task{}
	for _, queue := range []string{jobQueue, webhookQueue} {
		prefix := "asynq:{" + queue + "}:t:"
		scan := rdb.Scan(ctx, 0, prefix+"*", taskPage).Iterator()
		for scan.Next(ctx) && len(found) <= maxTasks {
			state, err := rdb.HGet(ctx, scan.Val(), "state").Result()
			if errors.Is(err, redis.Nil) || state == archived {
				continue // it was done meanwhile, or does not run any more
			}
			if err != nil {
				return nil, err
			}
			t := history.Task{Queue: queue, ID: strings.TrimPrefix(scan.Val(), prefix), State: state}
			name, _, _ := strings.Cut(t.ID, "/")
			if parts := strings.Split(name, ":"); queue == jobQueue && len(parts) > 1 {
				t.Attempt, _ = strconv.Atoi(parts[1])
			}
			if !showsDelivery(t) {
				found[scan.Val()] = t
			}
		}
		if err := scan.Err(); err != nil {
			return nil, err
		}
	}
	if len(found) > maxTasks {
		return nil, fmt.Errorf("there are more than %d tasks", maxTasks)
	}
	return found, nil
}

// showsDelivery reports whether a task is of a delivery that waits for its next attempt, or whose process died: it is active until
// asynq gives it to another one, a minute later or two. Such tasks may stay: when the time of one comes and nothing is due, it does
// nothing.
func showsDelivery(t history.Task) bool {
	return t.Queue == webhookQueue && slices.Contains([]string{"scheduled", "retry", "active"}, t.State)
}

// addTasks adds what is left over, but not what belongs to other runs.
func (c *collector) addTasks(ctx context.Context, left map[string]history.Task) error {
	var subjects []string // the jobs and deliveries that tasks are named after
	for _, t := range left {
		subject := subjectOf(t)
		subjects = append(subjects, subject)
	}
	ours, err := c.ownTasks(ctx, subjects)
	if err != nil {
		return err
	}
	for _, t := range left {
		subject := subjectOf(t)
		mine, exists := ours[subject]
		if exists && !mine {
			continue
		}
		f := history.Fact{Kind: history.QueuedTask, Task: &t}
		if t.Queue == jobQueue {
			f.Job = subject
		} else if !exists && c.DatabaseURL != "" {
			f.Note = "there is no delivery of that name"
		}
		c.add(f)
	}
	return nil
}

// subjectOf is the job or delivery that a task is named after.
func subjectOf(t history.Task) string {
	return strings.FieldsFunc(t.ID+":", func(r rune) bool { return r == ':' || r == '/' })[0]
}

// ownTasks says whether jobs and deliveries are of the run, by name; others and, without
// the database, all are missing.
func (c *collector) ownTasks(ctx context.Context, names []string) (map[string]bool, error) {
	ours := map[string]bool{}
	if c.DatabaseURL == "" || len(names) == 0 {
		return ours, nil
	}
	return ours, connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT j.job_id::text, coalesce(`+ofRun+`, false) FROM jobs j WHERE job_id::text = ANY (@names)
			UNION ALL SELECT delivery_id::text, client_id = ANY (@clients::uuid[]) FROM deliveries WHERE delivery_id::text = ANY (@names)`,
			pgx.NamedArgs{"clients": c.clientIDs, "tickets": c.Run + ".", "names": names}) // the next line returns its error
		var name string
		var mine bool
		_, err := pgx.ForEachRow(rows, []any{&name, &mine}, func() error { ours[name] = mine; return nil })
		return err
	})
}
