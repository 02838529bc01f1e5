package repo

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// waiting guards deliveries that wait, by the columns of the index
// deliveries_waiting.
const waiting = `state = 'PENDING' AND claimed_until IS NULL`

// Guards of deliveries d that are found by primary key. They do not name the
// columns as the indexes deliveries_waiting and deliveries_claimed do: that can
// lead the planner to walk one of them instead.
const (
	stillWaiting = `num_nonnulls(d.claimed_until, d.settled_at) = 0`
	stillClaimed = `num_nonnulls(d.claimed_until) = 1`
)

// Bounds of DueEndpoints: how many endpoints it gives, and how many it looks at.
const (
	maxEndpoints       = 1000
	maxLookedEndpoints = 10_000
)

// DueEndpoints gives endpoints of a client that have something due which
// nobody is sending: at most 1,000, of the first 10,000 by id that have
// something waiting. If a client has more of these, it looks at 10,000 from a
// random id on as well, so that calls that are repeated come to all. Disabled
// and deleted webhooks are left out.
func (s *Store) DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error) {
	due, cut, err := s.lookForDue(ctx, client, job.ID{}, maxEndpoints)
	if err != nil || !cut {
		return due, err
	}
	var from job.ID
	_, _ = rand.Read(from[:]) // never fails
	others, _, err := s.lookForDue(ctx, client, from, maxEndpoints-len(due))
	if err != nil {
		return nil, err
	}
	for _, id := range others {
		if !slices.Contains(due, id) {
			due = append(due, id)
		}
	}
	return due, nil
}

// lookForDue walks a client's endpoints after the given one, and tells whether
// it stopped because it has looked at so many.
func (s *Store) lookForDue(ctx context.Context, client, after job.ID, limit int) (due []job.ID, cut bool, err error) {
	type seen struct {
		id        job.ID
		due, last bool
	}
	places, err := queryRows(ctx, s, func(row pgx.CollectableRow) (p seen, err error) {
		return p, row.Scan(scanID(&p.id), &p.due, &p.last)
	}, dueEndpoints, uuid(client), [16]byte(after), limit, maxLookedEndpoints)
	for _, p := range places {
		if p.due {
			due = append(due, p.id)
		}
		cut = cut || p.last
	}
	return due, cut, err
}

// takesSome guards endpoints: not those that are disabled or deleted webhooks.
const takesSome = `NOT EXISTS (SELECT FROM webhooks w WHERE w.webhook_id = endpoint_id AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL) OFFSET 0)`

// dueEndpoints goes from endpoint to endpoint in the index deliveries_waiting.
// The first entry of each is what is due first: the others are not looked at. It
// tells of the last endpoint in any case, if there may be more.
const dueEndpoints = `
WITH RECURSIVE walk AS (
  SELECT $2::uuid AS endpoint_id, NULL::timestamptz AS next_attempt_at, 0 AS n
  UNION ALL
  SELECT d.endpoint_id, d.next_attempt_at, n + 1 FROM walk CROSS JOIN LATERAL (
    SELECT endpoint_id, next_attempt_at FROM deliveries
    WHERE client_id = $1 AND endpoint_id > walk.endpoint_id AND ` + waiting + `
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT 1) d
  WHERE n < $4
), judged AS (
  SELECT endpoint_id, n, next_attempt_at <= now() AND ` + takesSome + ` AS due FROM walk WHERE n > 0
)
SELECT endpoint_id, due, n = $4 FROM judged WHERE due OR n = $4 LIMIT $3`

// DueClients looks at so many endpoints with waiting deliveries after the given
// place, and gives the clients of those that have had something due for minAge.
// It answers with the last place that it looked at, or with the zero place when
// there are no more.
func (s *Store) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (clients []job.ID, last job.EndpointKey, err error) {
	type seen struct {
		job.EndpointKey
		due, last bool
	}
	places, err := queryRows(ctx, s, func(row pgx.CollectableRow) (p seen, err error) {
		return p, row.Scan(scanID(&p.Client), scanID(&p.Endpoint), &p.due, &p.last)
	}, dueClients, [16]byte(after.Client), [16]byte(after.Endpoint), look, minAge)
	for _, p := range places {
		if p.due && (len(clients) == 0 || clients[len(clients)-1] != p.Client) {
			clients = append(clients, p.Client)
		}
		if p.last {
			last = p.EndpointKey
		}
	}
	return clients, last, err
}

// walkEndpoints begins a statement: it goes from endpoint to endpoint in the
// index deliveries_waiting, from ($1, $2) on, $3 of them. The first entry of each
// is what is due first.
const walkEndpoints = `
WITH RECURSIVE walk AS (
  SELECT $1::uuid AS client_id, $2::uuid AS endpoint_id, NULL::timestamptz AS next_attempt_at, 0 AS n
  UNION ALL
  SELECT d.client_id, d.endpoint_id, d.next_attempt_at, n + 1 FROM walk CROSS JOIN LATERAL (
    SELECT client_id, endpoint_id, next_attempt_at FROM deliveries
    WHERE (client_id, endpoint_id) > (walk.client_id, walk.endpoint_id) AND ` + waiting + `
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT 1) d
  WHERE n < $3
)`

// dueClients tells of the last endpoint in any case, if there may be more.
const dueClients = walkEndpoints + `, judged AS (
  SELECT client_id, endpoint_id, n, next_attempt_at <= now() - $4::interval AND ` + takesSome + ` AS due FROM walk WHERE n > 0
)
SELECT client_id, endpoint_id, due, n = $3 FROM judged WHERE due OR n = $3 ORDER BY n`

// Bounds of the data of events that is read at once, in bytes: whoever claims
// deliveries holds it until they are sent. What reaches a bound is still taken.
const (
	maxClaimBytes  = 1 << 20 // for one endpoint
	maxPickupBytes = 8 << 20 // for all that share a statement
)

// pickup asks for deliveries of an endpoint.
type pickup struct {
	client, endpoint job.ID
	n                int
	hold             time.Duration
}

// pickedUp is the answer to a pickup.
type pickedUp struct {
	parcels []job.ClaimedDelivery
	more    bool
}

func pickupKey(p pickup) string { return string(p.client[:]) + string(p.endpoint[:]) }

// ClaimDeliveries takes at most n due deliveries of an endpoint, for the given
// time, in the order in which they are due, those of one moment by job and
// seq, with all that it takes to send them. It takes fewer if their events have
// much data, and none of a disabled or deleted webhook. It tells whether there
// may be further due ones: it has taken n, or not all that it saw.
func (s *Store) ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (parcels []job.ClaimedDelivery, more bool, err error) {
	got, err := s.pickups.do(ctx, pickup{client, endpoint, n, hold})
	return got.parcels, got.more, err
}

// ofAttempt joins the report of the attempt that an event e ended, or that was
// the last one to be tried, as endedBy does.
var ofAttempt = strings.Replace(endedBy, `e.next_state IN (`, `coalesce(e.next_state, e.event_name) IN ('`+job.EventRetriesExhausted+`', `, 1)

// claimDeliveries finds the deliveries by the index deliveries_waiting, skips
// those that somebody else has locked, and so never waits.
//
// A delivery and its event are written together, and removed together. Should
// there be one without its event all the same, it is removed here: nothing
// could be sent.
//
// How large the data of an event is, is told by what is stored of it, with a
// high guess for what is compressed: what is not taken is not unpacked. Small events
// come first, so that the large ones of one client do not keep the others'
// waiting.
//
// Each endpoint that is asked for is in the answer, with or without a delivery.
// seen counts what is due whoever has it locked, up to the n that are asked for.
var claimDeliveries = fmt.Sprintf(`
WITH input AS MATERIALIZED (
  SELECT i.*, (SELECT count(*)::int FROM (SELECT FROM deliveries
      WHERE client_id = i.client_id AND endpoint_id = i.endpoint_id AND %[2]s AND next_attempt_at <= now()
      ORDER BY client_id, endpoint_id, next_attempt_at, job_id, seq LIMIT i.n) first) AS seen
  FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::interval[]) WITH ORDINALITY AS i(client_id, endpoint_id, n, hold, asked) WHERE %[1]s
), due AS MATERIALIZED (
  SELECT d.*, i.asked, i.hold, row_number() OVER (PARTITION BY i.client_id, i.endpoint_id ORDER BY next_attempt_at, job_id, seq) AS place
  FROM input i CROSS JOIN LATERAL (
    SELECT delivery_id, client_id, endpoint_id, next_attempt_at, job_id, seq, event_id FROM deliveries
    WHERE client_id = i.client_id AND endpoint_id = i.endpoint_id AND %[2]s AND next_attempt_at <= now()
    ORDER BY client_id, endpoint_id, next_attempt_at, job_id, seq LIMIT i.n FOR NO KEY UPDATE SKIP LOCKED) d
), told AS MATERIALIZED (
  SELECT due.delivery_id, client_id, endpoint_id, asked, hold, place, e.*,
    CASE WHEN pg_column_compression(data) IS NULL THEN pg_column_size(data)
      ELSE greatest(pg_column_size(data), least(128 * pg_column_size(data), 262144)) END + CASE WHEN batch_id IS NULL THEN 0 ELSE %[3]s END AS bytes
  FROM due LEFT JOIN LATERAL (
    SELECT prev_state, next_state, attempt, occurred_at, data, NULL::uuid AS batch_id, NULL::uuid AS about
      FROM events WHERE events.job_id = due.job_id AND events.seq = due.seq
    UNION ALL
    SELECT NULL, NULL, NULL, occurred_at, data, batch_id, webhook_id
      FROM client_events WHERE client_events.event_id = due.event_id AND due.job_id IS NULL
    LIMIT 1) e ON true
), measured AS MATERIALIZED (
  SELECT *, sum(bytes) OVER (PARTITION BY client_id, endpoint_id ORDER BY place) - bytes AS before,
    sum(bytes) OVER (ORDER BY place, bytes, delivery_id) - bytes AS before_all FROM told WHERE bytes IS NOT NULL
), lost AS (
  DELETE FROM deliveries WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM told WHERE bytes IS NULL))
), claimed AS (
  UPDATE deliveries SET dispatch = dispatch + 1, claimed_until = clock_timestamp() + m.hold FROM measured m
  WHERE deliveries.delivery_id = m.delivery_id AND m.before < %[4]d AND m.before_all < %[5]d
  RETURNING deliveries.*, m.asked, m.place, m.prev_state, m.next_state, m.attempt, m.occurred_at, m.data, m.batch_id, m.about
)
SELECT i.asked::int - 1, i.seen, %[6]s, e.dispatch, coalesce(j.request_id, ''), coalesce(e.traceparent, ''), e.batch_id, e.about, w.url, w.content_mode, w.consecutive_failures,
  w.secret, w.old_secrets, w.old_secrets_until, %[7]s
FROM input i LEFT JOIN claimed e ON e.asked = i.asked LEFT JOIN jobs j ON j.job_id = e.job_id
%[8]s
LEFT JOIN LATERAL (SELECT * FROM webhooks WHERE webhook_id = e.webhook_id LIMIT 1) w ON true ORDER BY e.place`,
	takesSome, waiting, batchBytes, maxClaimBytes, maxPickupBytes, strings.ReplaceAll(deliveryColumns, "deliveries.", "e."), eventColumns, ofAttempt)

func (s *Store) pickUp(ctx context.Context, db querier, asked []pickup) ([]answer[pickedUp], error) {
	rows, err := db.Query(ctx, claimDeliveries,
		column(asked, func(p pickup) pgtype.UUID { return uuid(p.client) }),
		column(asked, func(p pickup) pgtype.UUID { return uuid(p.endpoint) }),
		column(asked, func(p pickup) int { return p.n }),
		column(asked, func(p pickup) time.Duration { return p.hold }))
	if err != nil {
		return nil, err
	}
	claimed, err := pgx.CollectRows(rows, scanClaimed)
	if err != nil {
		return nil, err
	}
	var ids []job.ID
	for _, c := range claimed {
		if !c.batch.IsZero() {
			ids = append(ids, c.batch)
		}
	}
	// What is claimed stays so, whether the batches can be read or not: whoever
	// asked for such deliveries gets them again when the claim has ended.
	batches, err := s.endedBatches(ctx, ids)
	answers := make([]answer[pickedUp], len(asked))
	taken := make([]int, len(asked))
	for _, c := range claimed {
		a := &answers[c.asked]
		if !c.ID.IsZero() {
			taken[c.asked]++
		}
		a.value.more = c.seen >= asked[c.asked].n || taken[c.asked] < c.seen
		if c.ID.IsZero() {
			continue
		}
		if !c.batch.IsZero() {
			if err != nil {
				a.err = err
				continue
			}
			if c.Occurrence.Batch = batches[c.batch]; c.Occurrence.Batch == nil {
				continue // removed since; events go before their batches
			}
		}
		a.value.parcels = append(a.value.parcels, c.ClaimedDelivery)
	}
	return answers, nil
}

// claimed is a row of claimDeliveries: of what was asked for at that place, a
// delivery, or none.
type claimed struct {
	job.ClaimedDelivery
	asked, seen int
	batch       job.ID
}

func scanClaimed(row pgx.CollectableRow) (c claimed, err error) {
	var d deliveryScanner
	var e eventScanner
	var about job.ID
	var url, mode *string
	var failures *int
	var secrets secretScanner
	columns := append([]any{&c.asked, &c.seen}, d.columns()...)
	if row.RawValues()[2] == nil { // no delivery
		return c, row.Scan(append(columns[:2], make([]any, len(row.RawValues())-2)...)...)
	}
	err = row.Scan(append(append(columns, &c.Fence, &c.RequestID, &c.TraceParent, scanID(&c.batch), scanID(&about),
		&url, &mode, &failures, &secrets.current, &secrets.old, &secrets.until), e.columns()...)...)
	if err != nil {
		return c, err
	}
	c.Delivery, c.Occurrence = d.delivery(), *e.occurrence()
	c.Occurrence.Webhook = about
	if c.WebhookID.IsZero() {
		c.Target = job.Target{URL: c.URL, ContentMode: job.ContentBinary}
		return c, nil
	}
	c.Target = job.Target{
		URL: deref(url), ContentMode: job.ContentMode(deref(mode)), Failures: deref(failures), Secrets: secrets.valid(time.Now()),
	}
	return c, nil
}

// ReleaseDeliveries gives claims back: the deliveries are due as they were.
// Claims that are not current are skipped.
func (s *Store) ReleaseDeliveries(ctx context.Context, parcels []job.ClaimedDelivery) error {
	return s.exec(ctx, "release", releaseDeliveries,
		column(parcels, func(p job.ClaimedDelivery) pgtype.UUID { return uuid(p.ID) }),
		column(parcels, func(p job.ClaimedDelivery) int { return p.Fence }))
}

// releaseDeliveries locks the deliveries in order of their ids, found by primary key.
const releaseDeliveries = `
WITH held AS MATERIALIZED (
  SELECT d.delivery_id FROM deliveries d JOIN unnest($1::uuid[], $2::int[]) AS i(id, fence) ON d.delivery_id = i.id
  WHERE ` + stillClaimed + ` AND d.dispatch = i.fence ORDER BY d.delivery_id FOR NO KEY UPDATE OF d
)
UPDATE deliveries SET claimed_until = NULL WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM held))`

// ReclaimDeliveries ends at most limit claims whose time is over, and tells how
// many: whoever sends such a delivery is given up, and it is due again.
func (s *Store) ReclaimDeliveries(ctx context.Context, limit int) (n int, err error) {
	return s.change(ctx, "reclaim", reclaimDeliveries, limit)
}

// reclaimDeliveries walks the index deliveries_claimed.
const reclaimDeliveries = `
WITH expired AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE claimed_until <= now() ORDER BY claimed_until LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET claimed_until = NULL WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM expired))`

// change runs a statement and tells how many rows it changed.
func (s *Store) change(ctx context.Context, operation, sql string, args ...any) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, sql, args...)
	if err != nil {
		return 0, s.failed(operation, err)
	}
	return int(tag.RowsAffected()), nil
}
