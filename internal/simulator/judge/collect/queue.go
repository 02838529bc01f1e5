package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	taskPage   = 500     // keys of one exchange
	maxTasks   = 100_000 // held in memory
	queuePause = 500 * time.Millisecond

	// The asynq queues of the service. Tasks of the first are named {job}:{attempt}, those of the second after deliveries. More may
	// follow a colon or a slash.
	jobQueue     = "jobs"
	webhookQueue = "webhooks"
)

var silenceRedis = sync.OnceFunc(logging.Disable) // the library writes to the terminal

func openRedis(address string) (*redis.Client, error) {
	silenceRedis()
	o, err := redis.ParseURL(address)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may hold a password
		}
		return nil, fmt.Errorf("the address of Redis cannot be used: %w", err)
	}
	o.DialerRetries = 1
	return redis.NewClient(o), nil
}

// queue reads the tasks in Redis until there are none, at most for MaxWait. Tasks that stay all the time are left over.
func (c *collector) queue(ctx context.Context) error {
	rdb, err := openRedis(c.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	var left map[string]history.Task // by key
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
	return c.addTasks(ctx, slices.Collect(maps.Values(left)))
}

// readTasks reads the hashes in which asynq stores tasks: its lists may change meanwhile. It omits archived tasks, which are kept for
// operators. It also omits deliveries that wait for their next attempt or whose process died: asynq gives those to another process a
// minute or two later, and they do nothing if nothing is due.
func readTasks(ctx context.Context, rdb *redis.Client) (map[string]history.Task, error) {
	found := map[string]history.Task{}
	for queue, harmless := range map[string][]string{
		jobQueue: {"archived"}, webhookQueue: {"archived", "scheduled", "retry", "active"},
	} {
		prefix := "asynq:{" + queue + "}:t:"
		scan := rdb.Scan(ctx, 0, prefix+"*", taskPage).Iterator()
		for scan.Next(ctx) && len(found) <= maxTasks {
			state, err := rdb.HGet(ctx, scan.Val(), "state").Result()
			if errors.Is(err, redis.Nil) || slices.Contains(harmless, state) {
				continue // done, or harmless
			}
			if err != nil {
				return nil, err
			}
			t := history.Task{Queue: queue, ID: strings.TrimPrefix(scan.Val(), prefix), State: state}
			if parts := partsOf(t); queue == jobQueue && len(parts) > 1 {
				t.Attempt, _ = strconv.Atoi(parts[1])
			}
			found[scan.Val()] = t
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

// partsOf splits the name of a task: the job or the delivery, and the attempt.
func partsOf(t history.Task) []string {
	return strings.FieldsFunc(t.ID+":", func(r rune) bool { return r == ':' || r == '/' })
}

// addTasks adds the remaining tasks, except those of other runs.
func (c *collector) addTasks(ctx context.Context, left []history.Task) error {
	var names []string
	for _, t := range left {
		names = append(names, partsOf(t)[0])
	}
	ours, err := c.owned(ctx, names)
	if err != nil {
		return err
	}
	for i, t := range left {
		mine, exists := ours[names[i]]
		if exists && !mine {
			continue
		}
		f := history.Fact{Kind: history.QueuedTask, Task: &t}
		if t.Queue == jobQueue {
			f.Job = names[i]
		} else if !exists && c.DatabaseURL != "" {
			f.Note = "there is no delivery of that name"
		}
		c.add(f)
	}
	return nil
}

// owned returns which of the ids exist, and whether they belong to the run.
func (c *collector) owned(ctx context.Context, ids []string) (map[string]bool, error) {
	ours := map[string]bool{}
	if c.DatabaseURL == "" || len(ids) == 0 {
		return ours, nil
	}
	return ours, connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT j.job_id::text, coalesce(`+ofRun+`, false) FROM jobs j WHERE job_id::text = ANY (@ids)
			UNION ALL SELECT delivery_id::text, client_id = ANY (@clients::uuid[]) FROM deliveries WHERE delivery_id::text = ANY (@ids)`,
			pgx.NamedArgs{"clients": c.clientIDs, "tickets": c.Run + ".", "ids": ids}) // ForEachRow returns its error
		var id string
		var mine bool
		_, err := pgx.ForEachRow(rows, []any{&id, &mine}, func() error { ours[id] = mine; return nil })
		return err
	})
}
