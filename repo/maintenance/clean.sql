-- name: cleanHistory
-- Removes ten-second buckets after two hours, and one-minute buckets after @keep. Needs no index, because there are few rows.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT width, at FROM history WHERE at <= now() - CASE width WHEN 10 THEN interval '2 h' ELSE @keep::interval END
  LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM history WHERE (width, at) IN (SELECT width, at FROM old)

-- name: cleanAudit
-- Removes expired entries of the audit log, the oldest first, found by primary key. Ids are ordered by time. Needs no SKIP LOCKED, because
-- no other statement locks an expired entry.
-- Parameters: @keep, @limit
DELETE FROM audit WHERE audit_id IN (
  SELECT audit_id FROM (SELECT audit_id, at FROM audit ORDER BY audit_id LIMIT @limit) oldest
    WHERE at <= pg_catalog.now() - @keep::interval)

-- name: cleanBulkItems
-- Removes items of bulk operations that ended long ago, found by the index bulk_operations_ended. Locks the items, so that their ctid stays
-- valid.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT i.place FROM (SELECT bulk_id FROM bulk_operations WHERE finished_at <= now() - @keep::interval ORDER BY finished_at
    LIMIT @limit) b
  CROSS JOIN LATERAL (SELECT ctid AS place FROM bulk_items WHERE bulk_id = b.bulk_id ORDER BY bulk_id, job_id
    LIMIT @limit FOR UPDATE SKIP LOCKED) i
  LIMIT @limit
)
DELETE FROM bulk_items WHERE ctid = ANY (ARRAY(SELECT place FROM old))

-- name: cleanBulks
-- Removes bulk operations that ended long ago and have no items any more.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT bulk_id FROM bulk_operations b WHERE finished_at <= now() - @keep::interval
    AND NOT EXISTS (SELECT FROM bulk_items WHERE bulk_items.bulk_id = b.bulk_id OFFSET 0)
  ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM bulk_operations WHERE bulk_id = ANY (ARRAY(SELECT bulk_id FROM old))

-- name: cleanDeliveries
-- Removes deliveries of old jobs. Finds the jobs by the index jobs_ended. Removes up to 20 times @limit rows, because a job can have
-- hundreds of deliveries.
--
-- In this and the statements below, a materialized query selects the rows to remove. If this query were inside the DELETE, Postgres might
-- run it more than once and remove too many rows. The row ids are passed as an array, so that the planner always uses the primary key. All
-- statements skip rows that another transaction has locked.
-- Parameters: @keep, @limit
WITH ended AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE finished_at <= now() - @keep::interval AND {{notInOpenBatch}} ORDER BY finished_at LIMIT @limit
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM ended CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE job_id = ended.job_id ORDER BY job_id, delivery_id
      LIMIT 20 * @limit::bigint FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * @limit::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanJobs
-- Removes jobs with all their data and leaves tombstones. Skips jobs that still have deliveries; a later run removes these jobs.
-- Parameters: @keep, @limit
WITH oldest AS MATERIALIZED (
  SELECT jobs.job_id, jobs.client_id, jobs.state, jobs.attempt, jobs.run_at, jobs.started_at, jobs.finished_at FROM jobs
    WHERE finished_at <= now() - @keep::interval AND {{notInOpenBatch}} ORDER BY finished_at LIMIT @limit FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT * FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries WHERE deliveries.job_id = oldest.job_id OFFSET 0)
), {{removeOld}}

-- name: cleanClientDeliveries
-- Removes deliveries of old client events. Uses the index deliveries_once. The inner query needs no limit, because an event has at most
-- one delivery per webhook.
-- Parameters: @keep, @limit
WITH past AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - @keep::interval ORDER BY occurred_at LIMIT @limit
), old AS MATERIALIZED (
  SELECT d.delivery_id FROM past CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE event_id = past.event_id AND url IS NULL FOR UPDATE SKIP LOCKED) d
  LIMIT 20 * @limit::bigint
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanClientEvents
-- Removes old client events, which belong to no job. Skips events that still have deliveries; a later run removes these events.
-- Parameters: @keep, @limit
WITH oldest AS MATERIALIZED (
  SELECT event_id FROM client_events WHERE occurred_at <= now() - @keep::interval ORDER BY occurred_at LIMIT @limit FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
  SELECT event_id FROM oldest WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.event_id = oldest.event_id AND d.url IS NULL OFFSET 0)
)
DELETE FROM client_events WHERE event_id = ANY (ARRAY(SELECT event_id FROM old))

-- name: cleanBatches
-- Removes completed batches, by the index batches_ended. Keeps the jobs of a batch, because a job may have been retried after the batch
-- completed.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT batch_id FROM batches WHERE completed_at <= now() - @keep::interval ORDER BY completed_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM batches WHERE batch_id = ANY (ARRAY(SELECT batch_id FROM old))

-- name: cleanLogs
-- Removes deliveries of webhooks that were deleted long ago, by the index deliveries_webhook.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT d.delivery_id FROM (SELECT webhook_id FROM webhooks WHERE deleted_at <= now() - @keep::interval ORDER BY deleted_at
    LIMIT @limit) w
  CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE webhook_id = w.webhook_id ORDER BY webhook_id, delivery_id
      LIMIT @limit FOR UPDATE SKIP LOCKED) d
  LIMIT @limit
)
DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM old))

-- name: cleanWebhooks
-- Removes webhooks that were deleted long ago and have no deliveries any more.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT webhook_id FROM webhooks w WHERE deleted_at <= now() - @keep::interval
    AND NOT EXISTS (SELECT FROM deliveries WHERE deliveries.webhook_id = w.webhook_id OFFSET 0)
  ORDER BY deleted_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM webhooks WHERE webhook_id = ANY (ARRAY(SELECT webhook_id FROM old))

-- name: cleanSigningKeys
-- Removes signing keys that retired at least @keep ago. Receivers no longer need them.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT kid FROM signing_keys WHERE retires_at <= pg_catalog.now() - @keep::interval LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM signing_keys WHERE kid = ANY (ARRAY(SELECT kid FROM old))

-- name: cleanResults
-- Removes the bodies of expired results. The description and the expiry of a result stay as long as its job.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT job_id FROM results WHERE body IS NOT NULL AND expires_at <= now() - @keep::interval
  ORDER BY expires_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
UPDATE results SET body = NULL WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))

-- name: cleanIdempotencyKeys
-- Removes expired idempotency keys, by the index idempotency_keys_expiry.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT client_id, endpoint, key FROM idempotency_keys
  WHERE expires_at <= now() - @keep::interval ORDER BY expires_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys WHERE (client_id, endpoint, key) IN (SELECT client_id, endpoint, key FROM old)

-- name: cleanTombstones
-- Removes old tombstones, by the index tombstones_expiry.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT job_id FROM tombstones WHERE expired_at <= now() - @keep::interval ORDER BY expired_at LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM tombstones WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))

-- name: cleanKeys
-- Removes API keys that were revoked or expired at least @keep ago. If a key was revoked and has an expiry, the later time counts.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT key_id FROM api_keys WHERE greatest(revoked_at, expires_at) <= now() - @keep::interval LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM api_keys WHERE key_id = ANY (ARRAY(SELECT key_id FROM old))

-- name: cleanWorkers
-- Removes workers that ended long ago. Keeps workers that still hold jobs, because orphanedJobs needs the worker's row to find these jobs.
-- Parameters: @keep, @limit
WITH old AS MATERIALIZED (
  SELECT worker_id FROM workers w WHERE state <> 'ALIVE' AND expires_at <= pg_catalog.now() - @keep::interval
    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.worker_id = w.worker_id) LIMIT @limit FOR UPDATE SKIP LOCKED
)
DELETE FROM workers WHERE worker_id = ANY (ARRAY(SELECT worker_id FROM old))

-- name: cleanPauses
-- Removes pauses of workers that no longer have a row. Keeps pauses younger than @keep.
-- Parameters: @keep, @limit
DELETE FROM pauses WHERE scope = 'WORKER' AND created_at <= pg_catalog.now() - @keep::interval AND pause_id IN (
  SELECT pause_id FROM pauses p WHERE NOT EXISTS (SELECT FROM workers w WHERE w.worker_id::text = p.target) LIMIT @limit)
