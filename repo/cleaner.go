package repo

import (
	"context"
	"errors"
	"time"
)

// Retention says how long things are kept (section 15).
type Retention struct {
	Jobs       time.Duration // after the final state; events, reports and results go with the job; of batches as well
	Keys       time.Duration // revoked or expired API keys, for audit
	Tombstones time.Duration // what is left of removed jobs
}

// deadWorkersKept is how long the row of a dead worker stays to be looked at.
const deadWorkersKept = time.Hour

// batchesOutlive is how much longer batches are kept than the events that tell
// of them: such an event is nothing without its batch.
const batchesOutlive = time.Hour

// Clean removes at most limit rows of each kind whose time is over, and
// reports whether a kind may have more. Every statement skips rows that
// somebody has locked. A kind that cannot be removed does not keep the others.
func (s *Store) Clean(ctx context.Context, limit int) (more bool, err error) {
	keep := s.cfg.Retention
	var errs []error
	for _, step := range []struct {
		sql  string
		keep time.Duration
	}{
		{cleanDeliveries, keep.Jobs}, // before the jobs that they are of
		{cleanJobs, keep.Jobs},
		{cleanClientDeliveries, keep.Jobs}, // before the events that they tell of
		{cleanClientEvents, keep.Jobs},     // before the batches that they tell of
		{cleanBatches, keep.Jobs + batchesOutlive},
		{cleanLogs, keep.Jobs}, // before the webhooks that they are of
		{cleanWebhooks, keep.Jobs},
		{cleanSigningKeys, 0},
		{cleanResults, 0},
		{cleanIdempotencyKeys, 0},
		{cleanTombstones, keep.Tombstones},
		{cleanKeys, keep.Keys},
		{cleanWorkers, deadWorkersKept},
	} {
		n, err := s.clean(ctx, step.sql, step.keep, limit)
		errs = append(errs, err)
		more = more || n >= limit
		if ctx.Err() != nil {
			break
		}
	}
	return more, errors.Join(errs...)
}

func (s *Store) clean(ctx context.Context, sql string, keep time.Duration, limit int) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, sql, keep, limit)
	if err != nil {
		return 0, s.failed("clean", err)
	}
	return int(tag.RowsAffected()), nil
}

// The rows to remove are chosen in a materialized query of their own: within
// the DELETE the choice could be made more than once, and the limit with it.
// They are handed on as an array: whatever the planner believes about their
// number, it finds them by the primary key.

// removeOld ends a statement that has chosen jobs as old: it removes them with
// all that belongs to them, and leaves tombstones. Their deliveries go by the
// trigger jobs_undelivered.
const removeOld = `
), no_outcomes AS (
  DELETE FROM outcome_outbox WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_events AS (
  DELETE FROM events WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_reports AS (
  DELETE FROM reports WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), no_results AS (
  DELETE FROM results WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))
), graves AS (
  INSERT INTO tombstones (job_id, client_id, expired_at) SELECT job_id, client_id, clock_timestamp() FROM old
  ON CONFLICT DO NOTHING
)
DELETE FROM jobs WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))`

// isOld guards jobs to be removed. Those of a batch wait until it is complete:
// its outcome counts them.
const isOld = `finished_at <= now() - $1::interval AND ` + notInOpenBatch

// cleanDeliveries removes deliveries of old jobs, twenty for each job that may
// be removed at once: a job can have hundreds.
const cleanDeliveries = `
WITH ended AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE ` + isOld + ` ORDER BY finished_at LIMIT $2
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM ended CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE job_id = ended.job_id ORDER BY job_id, delivery_id LIMIT 20 * $2::bigint FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * $2::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))`

// cleanJobs removes jobs with all that belongs to them and leaves tombstones.
// Those that have deliveries still are left for later.
const cleanJobs = `
WITH oldest AS MATERIALIZED (
  SELECT job_id, client_id FROM jobs WHERE ` + isOld + ` ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT job_id, client_id FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries WHERE deliveries.job_id = oldest.job_id OFFSET 0)` + removeOld

// cleanClientDeliveries removes deliveries of old events of no job, found by the
// index deliveries_once: one event has as many as its client has webhooks.
const cleanClientDeliveries = `
WITH past AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - $1::interval ORDER BY occurred_at LIMIT $2
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM past CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE event_id = past.event_id AND url IS NULL FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * $2::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))`

// cleanClientEvents removes events of no job. Those that have deliveries still
// are left for later.
const cleanClientEvents = `
WITH oldest AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - $1::interval ORDER BY occurred_at LIMIT $2 FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT event_id FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.event_id = oldest.event_id AND d.url IS NULL OFFSET 0)
)
DELETE FROM client_events WHERE event_id = ANY (ARRAY(SELECT event_id FROM old))`

// cleanBatches leaves the jobs of a batch alone: one that was retried later
// has its own time.
const cleanBatches = `
WITH old AS MATERIALIZED (
  SELECT batch_id FROM batches WHERE completed_at <= now() - $1::interval ORDER BY completed_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM batches WHERE batch_id = ANY (ARRAY(SELECT batch_id FROM old))`

// cleanResults removes bodies. What they were, and when they expired, stays as
// long as their job.
const cleanResults = `
WITH old AS MATERIALIZED (
  SELECT job_id FROM results WHERE body IS NOT NULL AND expires_at <= now() - $1::interval
  ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE results SET body = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))`

const cleanIdempotencyKeys = `
WITH old AS MATERIALIZED (
  SELECT client_id, endpoint, key FROM idempotency_keys
  WHERE expires_at <= now() - $1::interval ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys WHERE (client_id, endpoint, key) IN (SELECT client_id, endpoint, key FROM old)`

const cleanTombstones = `
WITH old AS MATERIALIZED (
  SELECT job_id FROM tombstones WHERE expired_at <= now() - $1::interval ORDER BY expired_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM tombstones WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))`

const cleanKeys = `
WITH old AS MATERIALIZED (
  SELECT key_id FROM api_keys WHERE least(revoked_at, expires_at) <= now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM api_keys WHERE key_id = ANY (ARRAY(SELECT key_id FROM old))`

// cleanWorkers leaves the row of a worker that jobs still name: the rescuer
// finds them by it.
const cleanWorkers = `
WITH old AS MATERIALIZED (
  SELECT worker_id FROM workers w WHERE state <> 'ALIVE' AND expires_at <= now() - $1::interval
    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.worker_id = w.worker_id) LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM workers WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM old))`

// cleanLogs removes what is left of the deliveries of webhooks that were deleted
// long ago, found by the index deliveries_webhook.
const cleanLogs = `
WITH old AS MATERIALIZED (
  SELECT d.delivery_id FROM (SELECT webhook_id FROM webhooks WHERE deleted_at <= now() - $1::interval ORDER BY deleted_at LIMIT $2) w
  CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE webhook_id = w.webhook_id ORDER BY webhook_id, delivery_id LIMIT $2 FOR UPDATE SKIP LOCKED) d
  LIMIT $2
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))`

// cleanWebhooks removes webhooks that were deleted long ago and have no
// deliveries any more.
const cleanWebhooks = `
WITH old AS MATERIALIZED (
  SELECT webhook_id FROM webhooks w WHERE deleted_at <= now() - $1::interval
    AND NOT EXISTS (SELECT FROM deliveries WHERE deliveries.webhook_id = w.webhook_id OFFSET 0)
  ORDER BY deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM webhooks WHERE webhook_id = ANY (ARRAY(SELECT webhook_id FROM old))`

const cleanSigningKeys = `
WITH old AS MATERIALIZED (
  SELECT kid FROM signing_keys WHERE retires_at <= now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM signing_keys WHERE kid = ANY (ARRAY(SELECT kid FROM old))`
