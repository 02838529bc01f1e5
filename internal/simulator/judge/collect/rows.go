package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/servicetime"
)

// ofRun selects the run's jobs j: all of the clients that it made ($1), and those
// whose correlation id is one of its tickets' ($2).
const ofRun = `(j.client_id = ANY ($1::uuid[]) OR starts_with(j.correlation_id, $2))`

// Since when a changed webhook may lack events: its end if that was the last
// change, else its beginning, less a margin for late commits.
const selectWebhooks = `
SELECT webhook_id::text, CASE WHEN disabled_at = updated_at OR deleted_at = updated_at THEN updated_at ELSE created_at END - interval '5 s'
FROM webhooks WHERE updated_at > created_at`

// table selects the run's rows: job id ("" for none), client id, and the columns for
// which fields gives the places, after it has set the kind of fact. It reads a whole table in whatever order is quickest; bodies
// of results and deliveries are not touched.
type table struct {
	name, sql string
	fields    func(f *history.Fact) []any
	timed     bool // $3 is the service's time
}

var tables = []table{
	{"jobs", `
SELECT j.job_id::text, j.client_id::text, j.type, j.work_kind, j.state, coalesce(j.outcome, ''), j.attempt, j.max_attempts,
  j.created_at, j.updated_at, j.execution_at, j.started_at, j.finished_at, coalesce(j.correlation_id, ''),
  coalesce(j.batch_id::text, ''), coalesce(j.failure_code, ''), j.run_at, j.event_seq, j.fence, j.lease_expiries,
  coalesce(r.attempt, 0), coalesce(k.n, 0), j.worker_id IS NOT NULL,
  CASE jsonb_typeof(j.definition -> 'duration_ms') WHEN 'number' THEN (j.definition ->> 'duration_ms')::numeric::bigint END,
  coalesce(j.definition -> 'should_fail' = 'true', false), j.auto_retry,
  coalesce(left(encode(sha256(convert_to(j.params::text, 'UTF8')), 'hex'), 16), ''), coalesce(j.schedule_id::text, ''), j.scheduled_for
FROM jobs j LEFT JOIN results r USING (job_id)
  LEFT JOIN (SELECT resource_id, count(*) AS n FROM idempotency_keys WHERE expires_at > $3 GROUP BY resource_id) k
    ON k.resource_id = coalesce(j.batch_id, j.job_id)
WHERE ` + ofRun, func(f *history.Fact) []any {
		j := &history.Job{}
		f.Kind, f.Told = history.StoredJob, j
		return []any{
			&j.Type, &j.WorkKind, &j.State, &j.Outcome, &j.Attempt, &j.MaxAttempts, &j.CreatedAt, &j.UpdatedAt, &j.ExecutionAt, &j.StartedAt,
			&j.FinishedAt, &j.Correlation, &j.Batch, &j.Failure, &j.RunAt, &j.EventSeq, &j.Fence, &j.LeaseExpiries,
			&j.ResultAttempt, &j.Keys, &j.Held, &j.DurationMS, &j.ShouldFail, &j.AutoRetry, &j.Params,
			&j.Schedule, &j.ScheduledFor,
		}
	}, true},
	{"events", `
SELECT e.job_id::text, e.client_id::text, e.event_id::text, e.seq, e.event_name, coalesce(e.prev_state, ''), coalesce(e.next_state, ''),
  e.attempt, e.occurred_at, coalesce(e.data ->> 'work_kind', ''),
  CASE e.event_name WHEN 'event.emitted' THEN concat(e.data ->> 'name', ' ', e.data -> 'data') ELSE '' END
FROM events e JOIN jobs j USING (job_id) WHERE ` + ofRun, func(f *history.Fact) []any {
		e := &history.Event{}
		f.Kind, f.Event = history.StoredEvent, e
		return []any{&e.ID, &e.Seq, &e.Name, &e.Prev, &e.Next, &e.Attempt, &e.At, &e.WorkKind, &e.Emitted}
	}, false},
	{"reports", `
SELECT r.job_id::text, j.client_id::text, r.attempt, r.outcome, r.started_at, r.finished_at, r.duration_ms,
  coalesce(r.failure_code, ''), r.event_seq
FROM reports r JOIN jobs j USING (job_id) WHERE ` + ofRun, func(f *history.Fact) []any {
		r := &history.Report{}
		f.Kind, f.Report = history.StoredReport, r
		return []any{&r.Attempt, &r.Outcome, &r.StartedAt, &r.FinishedAt, &r.DurationMS, &r.Failure, &r.EventSeq}
	}, false},
	{"deliveries", `
SELECT coalesce(d.job_id::text, ''), d.client_id::text, d.delivery_id::text, coalesce(d.webhook_id::text, ''), coalesce(d.url, ''),
  d.event_id::text, d.event_name, d.seq, d.state, d.attempts, coalesce(d.last_status, 0), coalesce(d.last_error, ''), d.next_attempt_at
FROM deliveries d LEFT JOIN jobs j USING (job_id) WHERE d.client_id = ANY ($1::uuid[]) OR ` + ofRun, func(f *history.Fact) []any {
		d := &history.Delivery{}
		f.Kind, f.Delivery = history.StoredDeliver, d
		return []any{
			&d.ID, &d.Webhook, &d.URL, &d.EventID, &d.EventName, &d.Seq, &d.State, &d.Attempts, &d.Status, &d.Error,
			(*zeronull.Timestamptz)(&d.Next),
		}
	}, false},
	{"delivery_attempts", `
SELECT coalesce(d.job_id::text, ''), d.client_id::text, d.delivery_id::text, coalesce(d.webhook_id::text, ''), d.event_id::text,
  d.event_name, d.seq, a.number, coalesce(a.status, 0), coalesce(a.error, ''), a.started_at
FROM delivery_attempts a JOIN deliveries d USING (delivery_id) LEFT JOIN jobs j USING (job_id)
WHERE d.client_id = ANY ($1::uuid[]) OR ` + ofRun, func(f *history.Fact) []any {
		d := &history.Delivery{}
		f.Kind, f.Delivery = history.StoredTry, d
		return []any{&d.ID, &d.Webhook, &d.EventID, &d.EventName, &d.Seq, &d.Attempts, &d.Status, &d.Error, &d.Tried}
	}, false},
}

// rows reads what the database says, as of one moment.
func (c *collector) rows(ctx context.Context) error {
	return connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&c.asOf); err != nil {
				return err
			}
			if err := c.readMoves(ctx, tx); err != nil {
				return fmt.Errorf("table testbed_clock: %w", err)
			}
			for _, t := range tables {
				if err := c.readTable(ctx, tx, t); err != nil {
					return fmt.Errorf("table %s: %w", t.name, err)
				}
			}
			rows, _ := tx.Query(ctx, selectWebhooks) // the next lines return its error
			var id string
			var since time.Time
			note := func() error {
				c.found.Webhooks[id] = since
				if len(c.found.Moves) > 0 { // what happened before may have the time at which it was due
					c.found.Webhooks[id] = time.Time{}
				}
				return nil
			}
			if _, err := pgx.ForEachRow(rows, []any{&id, &since}, note); err != nil {
				return fmt.Errorf("table webhooks: %w", err)
			}
			return c.countInconsistencies(ctx, tx)
		})
	})
}

// readMoves reads how the service's clock was moved.
func (c *collector) readMoves(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `SELECT number, real_at, service_at, CASE WHEN frozen THEN 0 ELSE rate END
		FROM testbed_clock ORDER BY number`) // the next line returns its error
	moves, err := pgx.CollectRows(rows, pgx.RowToStructByPos[servicetime.Move])
	c.found.Moves = moves
	return err
}

// readTable adds a fact for each of the run's rows, row by row.
func (c *collector) readTable(ctx context.Context, tx pgx.Tx, t table) error {
	arguments := []any{c.clientIDs, c.Run + "."}
	if t.timed {
		arguments = append(arguments, c.found.Moves.At(c.asOf))
	}
	rows, err := tx.Query(ctx, t.sql, arguments...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var f history.Fact
		var clientID string
		if err := rows.Scan(append([]any{&f.Job, &clientID}, t.fields(&f)...)...); err != nil {
			return err
		}
		var ours bool
		if f.Tenant, ours = c.tenants[clientID]; !ours {
			f.Tenant = c.otherTenant
		}
		if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
			f.Sent = c.asOf
		}
		if f.Told != nil {
			f.Ticket, _ = judge.TicketOf(c.Run, f.Told.Correlation)
		}
		c.add(f)
	}
	return rows.Err()
}

// countInconsistencies counts the rows that must not be there.
func (c *collector) countInconsistencies(ctx context.Context, tx pgx.Tx) error {
	moves := c.found.Moves
	times := pgx.NamedArgs{
		"minute_ago": moves.At(c.asOf.Add(-time.Minute)),
		"minute":     moves.Most(time.Minute / 2), "ten_minutes": moves.Most(5 * time.Minute),
	}
	for _, rule := range judge.RowRules {
		found := judge.Inconsistency{Invariant: rule.Invariant, What: rule.What}
		if err := tx.QueryRow(ctx, rule.SQL, times).Scan(&found.Count); err != nil {
			return fmt.Errorf("counting %s: %w", rule.What, err)
		}
		c.found.Inconsistencies = append(c.found.Inconsistencies, found)
	}
	return nil
}
