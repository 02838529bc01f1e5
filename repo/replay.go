package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

const (
	// maxReplayed is how many events one call of ReplayEvents may look at, of
	// those of jobs and of the others together.
	maxReplayed = 10_000

	// replaySlack is how much earlier than another event one can have occurred
	// that comes after it in the order of transactions: longer than any
	// transaction that writes events takes.
	replaySlack = time.Minute
)

// ReplayEvents sends again what a webhook has missed since the given time: its
// FAILED deliveries, and then events that it asks for and that have no delivery
// to it, in the order of the client's events. It looks at a limited number of
// events. If there are more, the answer has the position to go on after; the
// zero position begins.
//
// Neither tests of webhooks nor what the webhook itself was disabled for are
// replayed.
func (s *Store) ReplayEvents(ctx context.Context, client, webhook job.ID, since time.Time, after job.Position, limit int) (job.Replay, error) {
	failed := 0
	if after == (job.Position{}) {
		again, err := s.RedeliverFailed(ctx, client, webhook, since, limit)
		if err != nil || again.More {
			return again, err
		}
		failed = again.Queued
		if after, err = s.replayStart(ctx, client, since); err != nil {
			return again, err
		}
	}
	type result struct {
		job.Replay
		ahead bool
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (r result, err error) {
		return r, row.Scan(&r.ahead, &r.Queued, &r.More, &r.Next.Tx, scanID(&r.Next.ID), &r.Next.Seq)
	}, replayEvents, uuid(client), uuid(webhook), since, limit-failed, after.Tx, [16]byte(after.ID), after.Seq, maxReplayed)
	switch {
	case err != nil:
		return job.Replay{Queued: failed}, err
	case len(found) == 0:
		return job.Replay{Queued: failed}, s.whyNotReplayed(ctx, client, webhook)
	case found[0].ahead:
		return job.Replay{Queued: failed}, errAhead
	}
	r := found[0].Replay
	r.Queued += failed
	if !r.More {
		r.Next = job.Position{}
	}
	return r, nil
}

// whyNotReplayed is the error for a webhook that gets no deliveries.
func (s *Store) whyNotReplayed(ctx context.Context, client, webhook job.ID) error {
	if _, err := s.Webhook(ctx, client, webhook); err != nil {
		return err
	}
	return errWebhookDisabled
}

// replayStart gives the position after which there are all events since the
// given time, and hardly earlier ones.
func (s *Store) replayStart(ctx context.Context, client job.ID, since time.Time) (job.Position, error) {
	found, err := queryRows(ctx, s, pgx.RowTo[uint64], findReplayStart, uuid(client), since.Add(-replaySlack))
	if err != nil {
		return job.Position{}, err
	}
	return job.Position{Tx: found[0]}, nil
}

// findReplayStart halves the range of transactions until it has the last one of
// the client's, about, whose event is too old. The order of transactions is that
// of time, but for their length. Each step looks up one event in the index events_client.
const findReplayStart = `
WITH RECURSIVE search AS (
  SELECT 0::bigint AS old, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS young
  UNION ALL
  SELECT CASE WHEN is_old THEN middle ELSE old END, CASE WHEN is_old THEN young ELSE middle END
  FROM (SELECT *, (old + young) / 2 AS middle FROM search WHERE young - old > 1 OFFSET 0) s
  CROSS JOIN LATERAL (SELECT coalesce((SELECT occurred_at < $2::timestamptz FROM events
    WHERE client_id = $1 AND tx >= s.middle::text::xid8 ORDER BY tx, job_id, seq LIMIT 1), false) AS is_old) e
)
SELECT max(old)::text::xid8 FROM search`

// replayEvents walks the indexes events_client and client_events_client from a
// position on, as clientEvents does, and asks the index deliveries_once about
// each event. A delivery that somebody else makes meanwhile is waited for. Jobs
// that are just being removed are left out, and the others stay until the end.
//
// The position that it gives passes nothing that an event could still come
// before: nothing from the snapshot's xmin on. Such events are sent all the
// same. There is more if that position goes on before others, or if this call
// queued something and left something: so a repetition never finds just what
// the call before it has found.
const replayEvents = `
WITH target AS MATERIALIZED (
  SELECT webhook_id, events FROM webhooks WHERE webhook_id = $2 AND client_id = $1 AND deleted_at IS NULL AND disabled_at IS NULL
), looked AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY tx, place, seq) AS n, first.* FROM (SELECT * FROM (
    (SELECT tx, job_id AS place, seq, event_id, job_id, event_name, occurred_at, NULL::uuid AS webhook_id
      FROM events WHERE client_id = $1 AND (tx, job_id, seq) > ($5::xid8, $6::uuid, $7::int) AND EXISTS (SELECT FROM target)
      ORDER BY tx, job_id, seq LIMIT $8::bigint + 1)
    UNION ALL
    (SELECT tx, event_id, 0, event_id, NULL, event_name, occurred_at, webhook_id
      FROM client_events WHERE client_id = $1 AND (tx, event_id) > ($5, $6) AND EXISTS (SELECT FROM target)
      ORDER BY tx, event_id LIMIT $8::bigint + 1)
  ) both_kinds ORDER BY tx, place, seq LIMIT $8::bigint + 1) first
), missed AS MATERIALIZED (
  SELECT n, e.event_id, e.job_id, e.seq, e.event_name, t.webhook_id FROM looked e CROSS JOIN target t
  WHERE n <= $8 AND occurred_at >= $3 AND t.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
    AND e.event_name <> '` + job.EventWebhookTest + `' AND e.webhook_id IS DISTINCT FROM t.webhook_id
    AND NOT EXISTS (SELECT FROM deliveries d WHERE d.webhook_id = t.webhook_id AND d.event_id = e.event_id AND d.url IS NULL OFFSET 0)
  ORDER BY n LIMIT $4
), there AS MATERIALIZED (
  SELECT job_id FROM jobs WHERE job_id = ANY (ARRAY(SELECT job_id FROM missed)) FOR KEY SHARE SKIP LOCKED
), made AS (
  INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at, next_attempt_at, traceparent)
  SELECT uuid7(now()), $1, webhook_id, webhook_id, job_id, seq, event_id, event_name, now(), now(), (SELECT traceparent FROM jobs WHERE jobs.job_id = missed.job_id)
  FROM missed WHERE job_id IS NULL OR job_id = ANY (ARRAY(SELECT job_id FROM there)) ORDER BY n
  ON CONFLICT (event_id, webhook_id) WHERE url IS NULL DO NOTHING
  RETURNING 1
), seen AS MATERIALIZED (
  SELECT CASE WHEN (SELECT count(*) FROM missed) = $4 THEN (SELECT max(n) FROM missed) ELSE $8 END AS n
), passed AS MATERIALIZED (
  SELECT tx, place, seq FROM looked WHERE n <= (SELECT n FROM seen) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY n DESC LIMIT 1
), queued AS MATERIALIZED (
  SELECT count(*)::int AS n FROM made
)
SELECT $5 > pg_snapshot_xmax(pg_current_snapshot()), queued.n,
  EXISTS (SELECT FROM looked l WHERE l.n > seen.n AND (queued.n > 0 OR l.tx < pg_snapshot_xmin(pg_current_snapshot()))),
  coalesce(p.tx, $5), coalesce(p.place, $6), coalesce(p.seq, $7)
FROM target CROSS JOIN seen CROSS JOIN queued LEFT JOIN passed p ON true`
