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

	"github.com/forgerun/forgerun/internal/invariants"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// ofRun selects the jobs of the run. Either the run created the job's client (@clients), or the job's correlation id begins with the run's
// id (@tickets).
const ofRun = `(j.client_id = ANY (@clients::uuid[]) OR starts_with(j.correlation_id, @tickets))`

// selectWebhooks returns a time for each changed webhook. Later events need no delivery to the webhook. If the last change disabled or
// deleted the webhook, this is the time of the change. Otherwise it is the time of the webhook's creation. 5 s are subtracted, because
// transactions may commit late.
const selectWebhooks = `
SELECT webhook_id::text, CASE WHEN disabled_at = updated_at OR deleted_at = updated_at THEN updated_at ELSE created_at END - interval '5 s'
FROM webhooks WHERE updated_at > created_at`

// Each query selects the run's rows of a table. Columns other than of_job and of_client become members of the fact. The bodies of results
// and deliveries are omitted. @now is the service time.
var tables = []struct {
	name   string
	kind   history.Kind
	member string // member of the fact that contains the row's columns
	sql    string
}{
	{"jobs", history.StoredJob, "shown", `
SELECT j.job_id AS of_job, j.client_id AS of_client, j.type, j.work_kind, j.state, j.outcome, j.attempt, j.max_attempts,
  j.created_at, j.updated_at, j.execution_at, j.started_at, j.finished_at, j.correlation_id, j.batch_id, j.run_at, k.n AS keys,
  j.auto_retry, j.schedule_id, j.scheduled_for,
  CASE jsonb_typeof(j.definition -> 'duration_ms') WHEN 'number' THEN j.definition END AS definition,
  left(encode(sha256(convert_to(j.params::text, 'UTF8')), 'hex'), 16) AS params_digest
FROM jobs j LEFT JOIN (SELECT resource_id, count(*) AS n FROM idempotency_keys WHERE expires_at > @now GROUP BY resource_id) k
    ON k.resource_id = coalesce(j.batch_id, j.job_id)
WHERE ` + ofRun},
	{"events", history.StoredEvent, "event", `
SELECT e.job_id AS of_job, e.client_id AS of_client, e.event_id AS id, e.seq, e.event_name AS name, e.prev_state AS prev,
  e.next_state AS next, e.attempt, e.occurred_at AS at, e.data ->> 'work_kind' AS work_kind,
  CASE e.event_name WHEN 'event.emitted' THEN concat(e.data ->> 'name', ' ', e.data -> 'data') END AS emitted
FROM events e JOIN jobs j USING (job_id) WHERE ` + ofRun},
	{"reports", history.StoredReport, "report", `
SELECT r.job_id AS of_job, j.client_id AS of_client, r.attempt, r.outcome, r.started_at, r.finished_at, r.duration_ms,
  r.failure_code AS failure, r.event_seq
FROM reports r JOIN jobs j USING (job_id) WHERE ` + ofRun},
	{"deliveries", history.StoredDeliver, "delivery", `
SELECT d.job_id AS of_job, d.client_id AS of_client, d.delivery_id AS id, d.webhook_id AS webhook, d.url, d.event_id, d.event_name, d.seq,
  d.state, d.attempts, d.last_status AS status, d.last_error AS error, d.next_attempt_at AS next, a.accepted, a.uncounted
FROM deliveries d LEFT JOIN jobs j USING (job_id) LEFT JOIN (
    SELECT delivery_id, count(*) FILTER (WHERE status BETWEEN 200 AND 299) AS accepted,
      count(*) FILTER (WHERE error = 'INTERNAL') AS uncounted
    FROM delivery_attempts GROUP BY delivery_id) a USING (delivery_id)
WHERE d.client_id = ANY (@clients::uuid[]) OR ` + ofRun},
}

// rows reads the database in one snapshot.
func (c *collector) rows(ctx context.Context) error {
	return connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) (err error) {
			if err = tx.QueryRow(ctx, `SELECT now()`).Scan(&c.asOf); err != nil {
				return err
			}
			moves, _ := tx.Query(ctx, `SELECT number, real_at, service_at, CASE WHEN frozen THEN 0 ELSE rate END
				FROM testbed_clock ORDER BY number`) // CollectRows returns its error
			if c.found.Moves, err = pgx.CollectRows(moves, pgx.RowToStructByPos[history.Move]); err != nil {
				return fmt.Errorf("read table testbed_clock: %w", err)
			}
			for _, t := range tables {
				if err := c.readTable(ctx, tx, t.kind, t.member, t.sql); err != nil {
					return fmt.Errorf("read table %s: %w", t.name, err)
				}
			}
			webhooks, _ := tx.Query(ctx, selectWebhooks) // ForEachRow returns its error
			var id string
			var since time.Time
			_, err = pgx.ForEachRow(webhooks, []any{&id, &since}, func() error {
				if len(c.found.Moves) > 0 { // service times before and after a move cannot be compared, so events need no delivery to a changed webhook
					since = time.Time{}
				}
				c.found.Webhooks[id] = since
				return nil
			})
			if err != nil {
				return fmt.Errorf("read table webhooks: %w", err)
			}
			return c.contradictions(ctx, tx)
		})
	})
}

func (c *collector) readTable(ctx context.Context, tx pgx.Tx, kind history.Kind, member, sql string) error {
	rows, err := tx.Query(ctx, `SELECT jsonb_build_object('`+member+`', r), coalesce(of_job::text, ''), of_client::text FROM (`+sql+`) r`,
		pgx.NamedArgs{"clients": c.clientIDs, "tickets": c.run.Run + ".", "now": c.found.Moves.At(c.asOf)})
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var f history.Fact
		var clientID string
		if err := rows.Scan(&f, &f.Job, &clientID); err != nil {
			return err
		}
		var ours bool
		if f.Tenant, ours = c.tenants[clientID]; !ours {
			f.Tenant = c.otherTenant
		}
		if f.Kind = kind; kind == history.StoredJob || kind == history.StoredDeliver {
			f.Sent = c.asOf
		}
		if f.Shown != nil {
			f.Ticket, _ = judge.TicketOf(c.run.Run, f.Shown.CorrelationID)
		}
		c.add(f)
	}
	return rows.Err()
}

func (c *collector) contradictions(ctx context.Context, tx pgx.Tx) error {
	for _, rule := range invariants.Rules {
		c.found.Rules = append(c.found.Rules, rule.Invariant)
	}
	moves := c.found.Moves
	return invariants.Find(ctx, tx, pgx.NamedArgs{
		"now": moves.At(c.asOf), "settled": moves.At(c.asOf.Add(-time.Minute)), "recent": 5 * time.Second,
		"skew": moves.Most(time.Minute / 2), "follow": moves.Most(5 * time.Minute),
	}, func(f invariants.Finding) {
		c.add(history.Fact{Kind: history.Contradiction, Job: f.Job, Note: f.Invariant + ": " + f.String()})
	})
}

const (
	taskPage   = 500     // keys per request
	maxTasks   = 100_000 // reading fails if there are more tasks
	queuePause = 500 * time.Millisecond

	// The asynq queues of the service. Task ids in jobQueue begin with {job}:{attempt}. Task ids in webhookQueue begin with the id of the
	// delivery. After a colon or a slash, more text may follow.
	jobQueue     = "jobs"
	webhookQueue = "webhooks"
)

var silenceRedis = sync.OnceFunc(logging.Disable) // disables the library's log, which would appear on the terminal

func openRedis(address string) (*redis.Client, error) {
	silenceRedis()
	o, err := redis.ParseURL(address)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // drop the address from the error, because it may contain a password
		}
		return nil, fmt.Errorf("the address of Redis cannot be used: %w", err)
	}
	o.DialerRetries = 1
	return redis.NewClient(o), nil
}

// queue reads the tasks again and again until MaxWait is over. It stops early when no task was in every read. At the end, the tasks that
// were in every read become facts.
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

// readTasks reads asynq's hashes, because asynq's lists may change during the read. It omits archived tasks, which asynq keeps for
// operators. It also omits deliveries that wait for their next attempt or are active. An active delivery may stay in the queue for two
// minutes if its process was killed.
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
				continue // the task was deleted, or its state is normal
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
		return nil, fmt.Errorf("the queue has more than %d tasks", maxTasks)
	}
	return found, nil
}

// partsOf splits a task id. The first part is the id of the job or delivery. For a job, the second part is the attempt.
func partsOf(t history.Task) []string {
	return strings.FieldsFunc(t.ID+":", func(r rune) bool { return r == ':' || r == '/' })
}

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
			f.Note = "no delivery belongs to it"
		}
		c.add(f)
	}
	return nil
}

// The result of owned has an entry for each id that exists. The entry is true if the job or delivery belongs to the run.
func (c *collector) owned(ctx context.Context, ids []string) (map[string]bool, error) {
	ours := map[string]bool{}
	if c.DatabaseURL == "" || len(ids) == 0 {
		return ours, nil
	}
	return ours, connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT j.job_id::text, coalesce(`+ofRun+`, false) FROM jobs j WHERE job_id::text = ANY (@ids)
			UNION ALL SELECT delivery_id::text, client_id = ANY (@clients::uuid[]) FROM deliveries WHERE delivery_id::text = ANY (@ids)`,
			pgx.NamedArgs{"clients": c.clientIDs, "tickets": c.run.Run + ".", "ids": ids}) // ForEachRow returns its error
		var id string
		var mine bool
		_, err := pgx.ForEachRow(rows, []any{&id, &mine}, func() error { ours[id] = mine; return nil })
		return err
	})
}
