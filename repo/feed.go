package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// errAhead is the answer to a position that this server has not come to: a
// position of another server, or of this one before it was restored.
var errAhead = job.Errorf(job.CodeMalformed, "This position is ahead of the server's: it is not one of this stream.")

// ClientEvents reads events of a client that come after a position, in the order
// of positions: at most limit of them, and no more than pageBytes allows.
//
// Only what no transaction can come before any more is shown: one that is under
// way has a number from the snapshot's xmin on, labels its events with that
// number or a later one, and so cannot add anything below it.
func (s *Store) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	type line struct {
		ahead, held, more bool
		event             *job.Occurrence
		batch, webhook    job.ID
	}
	lines, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l line, err error) {
		var tx *uint64
		var place job.ID
		var e eventScanner
		err = row.Scan(append([]any{&l.ahead, &l.held, &l.more, &tx, scanID(&place), scanID(&l.batch), scanID(&l.webhook)}, e.columns()...)...)
		if l.event = e.occurrence(); l.event != nil {
			l.event.Position = job.Position{Tx: deref(tx), ID: place, Seq: l.event.Seq}
			l.event.Webhook = l.webhook
		}
		return l, err
	}, clientEvents, uuid(client), after.Tx, [16]byte(after.ID), after.Seq, limit, pageBytes)
	switch {
	case err != nil:
		return job.Feed{}, err
	case lines[0].ahead:
		return job.Feed{}, errAhead
	}
	var ids []job.ID
	for _, l := range lines {
		if !l.batch.IsZero() {
			ids = append(ids, l.batch)
		}
	}
	batches, err := s.endedBatches(ctx, ids)
	if err != nil {
		return job.Feed{}, err
	}
	feed := job.Feed{Held: lines[0].held, More: lines[0].more}
	for _, l := range lines {
		if l.event == nil {
			continue
		}
		if !l.batch.IsZero() {
			if l.event.Batch = batches[l.batch]; l.event.Batch == nil {
				continue // removed since the event was read; events go before their batches
			}
		}
		feed.Events = append(feed.Events, *l.event)
	}
	return feed, nil
}

// clientEvents walks the indexes events_client and client_events_client from
// the position on, each no further than one event after the limit, and joins
// the rest to what it has chosen. Without events it yields one row.
//
// What is held is searched from the snapshot's xmin on, not from the position:
// a reader that has much to catch up with would walk all of it for each page.
//
// The page is measured event by event, so that what lies behind its end is not
// unpacked. An event of a batch counts for the document that is told of it too.
const clientEvents = `
WITH RECURSIVE chosen AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY tx, place, seq) AS n, first.* FROM (SELECT * FROM (
    (SELECT tx, job_id AS place, seq, event_id, job_id, event_name, prev_state, next_state, attempt, occurred_at, data, NULL::uuid AS batch_id, NULL::uuid AS webhook_id
      FROM events WHERE client_id = $1 AND (tx, job_id, seq) > ($2::xid8, $3::uuid, $4::int) AND tx < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY tx, job_id, seq LIMIT $5::bigint + 1)
    UNION ALL
    (SELECT tx, event_id, 0, event_id, NULL, event_name, NULL, NULL, NULL, occurred_at, data, batch_id, webhook_id
      FROM client_events WHERE client_id = $1 AND (tx, event_id) > ($2, $3) AND tx < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY tx, event_id LIMIT $5::bigint + 1)
  ) both_kinds ORDER BY tx, place, seq LIMIT $5::bigint + 1) first
), page AS (
  SELECT 0::bigint AS n, 0::bigint AS bytes
  UNION ALL
  SELECT c.n, bytes + octet_length(c.data::text) + CASE WHEN c.batch_id IS NULL THEN 0 ELSE ` + batchBytes + ` END
  FROM page JOIN chosen c ON c.n = page.n + 1 WHERE c.n <= $5::bigint AND bytes < $6::bigint
)
SELECT $2 > pg_snapshot_xmax(pg_current_snapshot()),
  EXISTS (SELECT FROM events WHERE client_id = $1 AND tx >= greatest($2, pg_snapshot_xmin(pg_current_snapshot()))
    AND (tx > $2 OR (job_id, seq) > ($3, $4)))
  OR EXISTS (SELECT FROM client_events WHERE client_id = $1 AND tx >= greatest($2, pg_snapshot_xmin(pg_current_snapshot()))
    AND (tx > $2 OR event_id > $3)),
  (SELECT max(n) FROM chosen) > (SELECT max(n) FROM page) IS TRUE,
  e.tx, e.place, e.batch_id, e.webhook_id, ` + eventColumns + `
FROM page LEFT JOIN chosen e ON e.n = page.n LEFT JOIN jobs j ON j.job_id = e.job_id
` + endedBy + `
ORDER BY page.n`

// endedBatches reads batches with their outcome, which never changes, and what
// is told of it: without their items and the numbers of their jobs.
func (s *Store) endedBatches(ctx context.Context, ids []job.ID) (map[job.ID]*job.Batch, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := queryRows(ctx, s, scanBatch, endedBatches, column(ids, uuid))
	if err != nil {
		return nil, err
	}
	batches := make(map[job.ID]*job.Batch, len(found))
	for _, b := range found {
		batches[b.ID] = b
	}
	return batches, nil
}

const endedBatches = `
SELECT ` + batchColumns + `, NULL::jsonb, jsonb_array_length(items), NULL::jsonb
FROM batches WHERE batch_id = ANY ($1::uuid[]) AND completed_at IS NOT NULL`

// FeedEnd gives the position where new events will come in: what is committed
// by now and shown already lies before it.
func (s *Store) FeedEnd(ctx context.Context) (job.Position, error) {
	found, err := queryRows(ctx, s, pgx.RowTo[uint64], `SELECT pg_snapshot_xmin(pg_current_snapshot())`)
	if err != nil {
		return job.Position{}, err
	}
	return job.Position{Tx: found[0]}, nil
}

// LatestPositions gives the position of each client's latest committed event,
// whether ClientEvents shows it yet or not. Clients without events are missing.
func (s *Store) LatestPositions(ctx context.Context, clients []job.ID) (map[job.ID]job.Position, error) {
	type latest struct {
		client job.ID
		at     job.Position
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l latest, err error) {
		return l, row.Scan(scanID(&l.client), &l.at.Tx, scanID(&l.at.ID), &l.at.Seq)
	}, latestPositions, column(clients, uuid))
	if err != nil {
		return nil, err
	}
	positions := make(map[job.ID]job.Position, len(found))
	for _, l := range found {
		positions[l.client] = l.at
	}
	return positions, nil
}

// latestPositions reads the last entry of each client in both indexes.
const latestPositions = `
SELECT client, latest.tx, latest.place, latest.seq FROM unnest($1::uuid[]) AS client CROSS JOIN LATERAL (
  SELECT * FROM (
    (SELECT tx, job_id AS place, seq FROM events WHERE client_id = client ORDER BY tx DESC, job_id DESC, seq DESC LIMIT 1)
    UNION ALL
    (SELECT tx, event_id, 0 FROM client_events WHERE client_id = client ORDER BY tx DESC, event_id DESC LIMIT 1)
  ) both_kinds ORDER BY tx DESC, place DESC, seq DESC LIMIT 1
) latest`
