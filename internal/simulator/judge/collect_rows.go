package judge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// mine selects the run's jobs j: all of the clients that it made ($1), and those
// that lead back to one of its tickets ($2).
const mine = `(j.client_id = ANY ($1::uuid[]) OR starts_with(j.correlation_id, $2))`

// The statements read whole tables in whatever order is quickest, and answer row
// by row. Bodies of results and deliveries are not touched.
const (
	selectJobs = `
SELECT j.job_id::text, j.client_id::text, j.type, j.work_kind, j.state, coalesce(j.outcome, ''), j.attempt, j.max_attempts, j.created_at, j.updated_at,
  j.execution_at, j.started_at, j.finished_at, coalesce(j.correlation_id, ''), coalesce(j.batch_id::text, ''), coalesce(j.failure_code, ''),
  j.request_id, j.run_at, j.event_seq, j.fence, j.lease_expiries, coalesce(r.attempt, 0), coalesce(k.n, 0), j.worker_id IS NOT NULL,
  CASE jsonb_typeof(j.definition -> 'duration_ms') WHEN 'number' THEN (j.definition ->> 'duration_ms')::numeric::bigint END,
  coalesce(j.definition -> 'should_fail' = 'true', false)
FROM jobs j LEFT JOIN results r USING (job_id)
  LEFT JOIN (SELECT resource_id, count(*) AS n FROM idempotency_keys WHERE expires_at > now() GROUP BY resource_id) k ON k.resource_id = coalesce(j.batch_id, j.job_id)
WHERE ` + mine

	selectEvents = `
SELECT e.job_id::text, e.client_id::text, e.event_id::text, e.seq, e.event_name, coalesce(e.prev_state, ''), coalesce(e.next_state, ''), e.attempt, e.occurred_at,
  coalesce(e.data ->> 'work_kind', ''),
  CASE e.event_name WHEN 'event.emitted' THEN concat(e.data ->> 'name', ' ', e.data -> 'data') ELSE '' END
FROM events e JOIN jobs j USING (job_id) WHERE ` + mine

	selectReports = `
SELECT r.job_id::text, j.client_id::text, r.attempt, r.outcome, r.started_at, r.finished_at, r.duration_ms, coalesce(r.failure_code, ''), r.event_seq
FROM reports r JOIN jobs j USING (job_id) WHERE ` + mine

	selectDeliveries = `
SELECT coalesce(d.job_id::text, ''), d.client_id::text, d.delivery_id::text, coalesce(d.webhook_id::text, ''), coalesce(d.url, ''), d.event_id::text, d.event_name,
  d.seq, d.state, d.attempts, coalesce(d.last_status, 0), coalesce(d.last_error, ''), d.next_attempt_at
FROM deliveries d LEFT JOIN jobs j USING (job_id) WHERE d.client_id = ANY ($1::uuid[]) OR ` + mine

	selectTries = `
SELECT coalesce(d.job_id::text, ''), d.client_id::text, d.delivery_id::text, coalesce(d.webhook_id::text, ''), d.event_id::text, d.event_name,
  d.seq, a.number, coalesce(a.status, 0), coalesce(a.error, ''), a.started_at
FROM delivery_attempts a JOIN deliveries d USING (delivery_id) LEFT JOIN jobs j USING (job_id) WHERE d.client_id = ANY ($1::uuid[]) OR ` + mine

	// A webhook that was changed after it was made need not have got all events
	// since then; if it was disabled or deleted last, since that. An event that is
	// a little earlier may have been committed later.
	selectWebhooks = `
SELECT webhook_id::text, CASE WHEN disabled_at = updated_at OR deleted_at = updated_at THEN updated_at ELSE created_at END - interval '5 s'
FROM webhooks WHERE updated_at > created_at`
)

// rows reads what the database says, as of one moment.
func (c *collector) rows(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&c.asOf); err != nil {
		return err
	}
	for _, read := range []func(context.Context, pgx.Tx) error{
		c.jobRows, c.eventRows, c.reportRows, c.deliveryRows, c.tryRows, c.webhookRows, c.oddities,
	} {
		if err := read(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// each reads a statement's answer row by row into the variables, and adds the
// fact that is made of each.
func (c *collector) each(ctx context.Context, tx pgx.Tx, table, sql string, into []any, fact func() history.Fact) error {
	rows, err := tx.Query(ctx, sql, c.clientIDs(), c.Run+".")
	if err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	n := int64(0)
	if _, err = pgx.ForEachRow(rows, into, func() error {
		c.add(fact())
		if n++; n%10_000 == 0 {
			c.progress("table "+table, n)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	c.progress("table "+table, n)
	return nil
}

func (c *collector) jobRows(ctx context.Context, tx pgx.Tx) error {
	var id string
	var j history.Job
	into := []any{
		&id, &j.Client, &j.Type, &j.WorkKind, &j.State, &j.Outcome, &j.Attempt, &j.MaxAttempts, &j.CreatedAt, &j.UpdatedAt,
		&j.ExecutionAt, &j.StartedAt, &j.FinishedAt, &j.Correlation, &j.Batch, &j.Failure,
		&j.RequestID, &j.RunAt, &j.EventSeq, &j.Fence, &j.LeaseExpiries, &j.ResultAttempt, &j.Keys, &j.Held, &j.DurationMS, &j.ShouldFail,
	}
	return c.each(ctx, tx, "jobs", selectJobs, into, func() history.Fact {
		told := j
		ticket, _ := ticketOf(c.Run, j.Correlation)
		return history.Fact{Kind: history.StoredJob, Sent: c.asOf, Tenant: c.tenantOf(j.Client), Ticket: ticket, Job: id, Told: &told}
	})
}

func (c *collector) eventRows(ctx context.Context, tx pgx.Tx) error {
	var job, client string
	var e history.Event
	into := []any{&job, &client, &e.ID, &e.Seq, &e.Name, &e.Prev, &e.Next, &e.Attempt, &e.At, &e.WorkKind, &e.Emitted}
	return c.each(ctx, tx, "events", selectEvents, into, func() history.Fact {
		event := e
		return history.Fact{Kind: history.StoredEvent, Tenant: c.tenantOf(client), Job: job, Event: &event}
	})
}

func (c *collector) reportRows(ctx context.Context, tx pgx.Tx) error {
	var job, client string
	var r history.Report
	into := []any{&job, &client, &r.Attempt, &r.Outcome, &r.StartedAt, &r.FinishedAt, &r.DurationMS, &r.Failure, &r.EventSeq}
	return c.each(ctx, tx, "reports", selectReports, into, func() history.Fact {
		report := r
		return history.Fact{Kind: history.StoredReport, Tenant: c.tenantOf(client), Job: job, Report: &report}
	})
}

func (c *collector) deliveryRows(ctx context.Context, tx pgx.Tx) error {
	var job, client string
	var d history.Delivery
	var next *time.Time
	into := []any{&job, &client, &d.ID, &d.Webhook, &d.URL, &d.EventID, &d.EventName, &d.Seq, &d.State, &d.Attempts, &d.Status, &d.Error, &next}
	return c.each(ctx, tx, "deliveries", selectDeliveries, into, func() history.Fact {
		delivery := d
		if next != nil {
			delivery.Next = *next
		}
		return history.Fact{Kind: history.StoredDeliver, Sent: c.asOf, Tenant: c.tenantOf(client), Job: job, Delivery: &delivery}
	})
}

func (c *collector) tryRows(ctx context.Context, tx pgx.Tx) error {
	var job, client string
	var d history.Delivery
	into := []any{&job, &client, &d.ID, &d.Webhook, &d.EventID, &d.EventName, &d.Seq, &d.Attempts, &d.Status, &d.Error, &d.Tried}
	return c.each(ctx, tx, "delivery_attempts", selectTries, into, func() history.Fact {
		delivery := d
		return history.Fact{Kind: history.StoredTry, Tenant: c.tenantOf(client), Job: job, Delivery: &delivery}
	})
}

func (c *collector) webhookRows(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, selectWebhooks)
	if err != nil {
		return fmt.Errorf("table webhooks: %w", err)
	}
	var id string
	var loosened time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &loosened}, func() error {
		c.found.Webhooks[id] = loosened
		return nil
	})
	return err
}
