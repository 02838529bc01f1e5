package repo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// RecordDelivery writes down what became of an attempt to send a claimed
// delivery: the attempt, the delivery's state, and the health of its webhook.
// job.ErrStale: the claim is no longer current and nothing was written.
//
// A webhook that has failed too often in a row, and for too long, is disabled,
// and so is one for which the result asks for it; the client's event
// webhook.disabled tells of it once.
//
// A failure of our own, job.SendInternal, says nothing about the receiver: it
// does not count, neither against the webhook nor as one of the delivery's tries.
func (s *Store) RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error) {
	return s.records.do(ctx, r)
}

// recordDeliveries locks the deliveries in order of their ids, found by primary
// key, and then those webhooks whose health changes, in order of their ids. The
// webhook of a success that has not failed before is not locked.
//
// Of several results for one webhook a success counts most: it is the proof that
// the receiver is alive.
//
// Of the attempts of a delivery the latest ones stay: a client may have it sent
// again and again.
const recordDeliveries = `
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::interval[], $5::text[],
    $6::timestamptz[], $7::bigint[], $8::text[], $9::int[], $10::json[], $11::bytea[], $12::boolean[])
  AS i(id, fence, next, wait, disable, started_at, duration_ms, failed, status, header, body, truncated)
), ready AS MATERIALIZED (
  SELECT d.delivery_id, d.webhook_id, d.attempts + 1 AS number, i.failed IS NOT DISTINCT FROM '` + string(job.SendInternal) + `' AS ours, i.*
  FROM deliveries d JOIN input i ON d.delivery_id = i.id
  WHERE ` + stillClaimed + ` AND d.dispatch = i.fence
  ORDER BY d.delivery_id FOR NO KEY UPDATE OF d
), stamped AS MATERIALIZED (
  SELECT *, clock_timestamp() AS at FROM ready
), tried AS (
  INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms, error, status, response_header, response_body, body_truncated)
  SELECT delivery_id, number, started_at, duration_ms, failed, status, header, body, truncated FROM stamped
), forgotten AS (
  DELETE FROM delivery_attempts a USING stamped s WHERE s.number > $16 AND a.delivery_id = s.delivery_id AND a.number <= s.number - $16
), changed AS (
  UPDATE deliveries SET state = s.next, attempts = s.number, resent_at = resent_at + s.ours::int, claimed_until = NULL, last_status = s.status, last_error = s.failed,
    next_attempt_at = CASE s.next WHEN 'PENDING' THEN s.at + s.wait END, settled_at = CASE s.next WHEN 'PENDING' THEN NULL ELSE s.at END
  FROM stamped s WHERE deliveries.delivery_id = s.delivery_id
), news AS MATERIALIZED (
  SELECT webhook_id, count(*) FILTER (WHERE failed IS NOT NULL) AS failures, bool_or(failed IS NULL) AS alive, max(disable) AS disable, max(at) AS at
  FROM stamped WHERE webhook_id IS NOT NULL AND NOT ours GROUP BY webhook_id
), sick AS MATERIALIZED (
  SELECT w.webhook_id, w.client_id, n.at, n.disable,
    CASE WHEN n.alive THEN 0 ELSE w.consecutive_failures + n.failures END AS failures,
    CASE WHEN n.alive THEN NULL ELSE coalesce(w.failing_since, n.at) END AS since
  FROM news n JOIN webhooks w ON w.webhook_id = n.webhook_id
  WHERE w.deleted_at IS NULL AND w.disabled_at IS NULL AND (w.consecutive_failures > 0 OR NOT n.alive OR n.disable IS NOT NULL)
  ORDER BY w.webhook_id FOR NO KEY UPDATE OF w
), judged AS MATERIALIZED (
  SELECT *, CASE WHEN disable IS NOT NULL THEN disable WHEN failures >= $13 AND since <= at - $14::interval THEN 'FAILING' END AS reason FROM sick
), health AS (
  UPDATE webhooks SET consecutive_failures = j.failures, failing_since = j.since,
    disabled_reason = j.reason, disabled_at = CASE WHEN j.reason IS NOT NULL THEN j.at END,
    updated_at = CASE WHEN j.reason IS NULL THEN updated_at ELSE j.at END
  FROM judged j WHERE webhooks.webhook_id = j.webhook_id
), told AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
  SELECT uuid7(at), client_id, '` + job.EventWebhookDisabled + `', at, webhook_id, jsonb_build_object('webhookId', webhook_id, 'reason', reason,
    'text', $15::jsonb -> reason, 'disabledAt', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
  FROM judged WHERE reason IS NOT NULL
)
SELECT s.delivery_id, s.number, s.webhook_id, s.failed IS NOT NULL AND NOT s.ours, (SELECT reason FROM judged j WHERE j.webhook_id = s.webhook_id) FROM stamped s`

// disabledTexts are the sentences for the reasons that are found here.
var disabledTexts = map[job.DisabledReason]string{
	job.DisabledGone: job.DisabledGone.Text(), job.DisabledFailing: job.DisabledFailing.Text(),
}

func (s *Store) recordDeliveries(ctx context.Context, db querier, results []job.DeliveryResult) ([]answer[job.Recorded], error) {
	headers := make([][]byte, len(results))
	for i, r := range results {
		if r.Sent.Attempt.Header == nil {
			continue
		}
		encoded, err := json.Marshal(r.Sent.Attempt.Header)
		if err != nil {
			return nil, err
		}
		headers[i] = encoded
	}
	type result = job.DeliveryResult
	rows, err := db.Query(ctx, recordDeliveries,
		column(results, func(r result) pgtype.UUID { return uuid(r.DeliveryID) }),
		column(results, func(r result) int { return r.Fence }),
		column(results, func(r result) string { return string(r.State) }),
		column(results, func(r result) time.Duration { return r.Wait }),
		column(results, func(r result) *string { return nullable(string(r.Disable)) }),
		column(results, func(r result) time.Time { return r.Sent.Attempt.StartedAt }),
		column(results, func(r result) int64 { return r.Sent.Attempt.Duration.Milliseconds() }),
		column(results, func(r result) *string { return nullable(string(r.Sent.Attempt.Error)) }),
		column(results, func(r result) *int { return nullable(r.Sent.Attempt.Status) }),
		headers,
		column(results, func(r result) []byte { return r.Sent.Attempt.Body }),
		column(results, func(r result) bool { return r.Sent.Attempt.Truncated }),
		s.cfg.Webhooks.DisableFailures, s.cfg.Webhooks.DisableAfter, disabledTexts, maxAttemptsKept)
	if err != nil {
		return nil, err
	}
	return collectRecorded(rows, results)
}

// collectRecorded tells of a disabled webhook once: with the first of the
// failures that it was disabled for.
func collectRecorded(rows pgx.Rows, results []job.DeliveryResult) ([]answer[job.Recorded], error) {
	type line struct {
		number  int
		webhook job.ID
		failed  bool
		reason  *job.DisabledReason
	}
	written := make(map[job.ID]line, len(results))
	var id job.ID
	var l line
	_, err := pgx.ForEachRow(rows, []any{scanID(&id), &l.number, scanID(&l.webhook), &l.failed, &l.reason}, func() error {
		written[id] = l
		l = line{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	answers := make([]answer[job.Recorded], len(results))
	told := map[job.ID]bool{}
	for i, r := range results {
		l, ok := written[r.DeliveryID]
		if !ok {
			answers[i].err = job.ErrStale
			continue
		}
		answers[i].value.Number = l.number
		if reason := deref(l.reason); reason != "" && !told[l.webhook] && l.failed && (r.Disable == reason || reason == job.DisabledFailing) {
			answers[i].value.Disabled, told[l.webhook] = reason, true
		}
	}
	return answers, nil
}

func resultBytes(r job.DeliveryResult) int {
	n := len(r.Sent.Attempt.Body) + 512
	for name, values := range r.Sent.Attempt.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}
