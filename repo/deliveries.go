package repo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// errDeliveryNotFound is the same for a delivery that never existed and for one
// of another owner.
var errDeliveryNotFound = job.Errorf(job.CodeRequestNotFound, "No delivery with this id was found.")

// deliveryColumns is the one column list of a delivery, read by scanDelivery.
const deliveryColumns = `deliveries.delivery_id, deliveries.client_id, deliveries.endpoint_id, deliveries.webhook_id, deliveries.url,
  deliveries.job_id, deliveries.seq, deliveries.event_id, deliveries.event_name, deliveries.created_at,
  deliveries.state, deliveries.attempts, deliveries.resent_at, deliveries.next_attempt_at, deliveries.claimed_until, deliveries.settled_at,
  deliveries.last_status, deliveries.last_error`

// deliveryScanner reads deliveryColumns.
type deliveryScanner struct {
	job.Delivery
	resentAt  int
	url       *string
	status    *int
	lastError *string
}

func (s *deliveryScanner) columns() []any {
	d := &s.Delivery
	return []any{
		scanID(&d.ID), scanID(&d.ClientID), scanID(&d.Endpoint), scanID(&d.WebhookID), &s.url,
		scanID(&d.JobID), &d.Seq, scanID(&d.EventID), &d.EventName, &d.CreatedAt,
		&d.State, &d.Attempts, &s.resentAt, &d.NextAttemptAt, &d.ClaimedUntil, &d.SettledAt,
		&s.status, &s.lastError,
	}
}

func (s *deliveryScanner) delivery() job.Delivery {
	d := s.Delivery
	d.Tries = d.Attempts - s.resentAt
	d.URL, d.LastStatus, d.LastError = deref(s.url), deref(s.status), job.SendError(deref(s.lastError))
	return d
}

func scanDelivery(row pgx.CollectableRow) (job.Delivery, error) {
	var d deliveryScanner
	err := row.Scan(d.columns()...)
	return d.delivery(), err
}

// ownsWebhook guards what is told of a webhook's deliveries.
const ownsWebhook = `EXISTS (SELECT FROM webhooks WHERE webhook_id = $2 AND client_id = $1 AND deleted_at IS NULL)`

// ownsEnabled guards what is sent to a webhook.
const ownsEnabled = `EXISTS (SELECT FROM webhooks WHERE webhook_id = $2 AND client_id = $1 AND deleted_at IS NULL AND disabled_at IS NULL)`

// listDeliveriesBy makes the statement of a list that follows an index (owner,
// delivery_id) backwards, as listBy does for jobs.
func listDeliveriesBy(owner, guard string) string {
	return fmt.Sprintf(`
WITH looked AS (
  SELECT * FROM deliveries WHERE (%[1]s, delivery_id) < ($2::uuid, $3) AND (%[1]s, delivery_id) >= ($2::uuid, $4) AND %[1]s IS NOT NULL AND %[2]s
  ORDER BY %[1]s DESC, delivery_id DESC LIMIT %[3]d
), judged AS (
  SELECT *, row_number() OVER (ORDER BY %[1]s DESC, delivery_id DESC) AS place,
    client_id = $1 AND ($5::text IS NULL OR state = $5) AND ($6::text IS NULL OR event_name = $6)
      AND ($7::timestamptz IS NULL OR created_at >= $7) AND ($8::timestamptz IS NULL OR created_at < $8) AS wanted FROM looked
)
SELECT place = %[3]d, wanted, %[4]s FROM judged AS deliveries WHERE wanted OR place = %[3]d
ORDER BY %[1]s DESC, delivery_id DESC LIMIT $9`, owner, guard, maxLooked, deliveryColumns)
}

var (
	listByWebhook = listDeliveriesBy("webhook_id", ownsWebhook)
	listFailed    = listDeliveriesBy("webhook_id", ownsWebhook+` AND state = 'FAILED'`) // by the index deliveries_failed
	listByJob     = listDeliveriesBy("job_id", `EXISTS (SELECT FROM jobs WHERE job_id = $2 AND client_id = $1)`)
)

// Deliveries lists the deliveries of a client's webhook or job, the newest
// first by their ids. A page that found fewer than its limit among the first
// 20,000 of its range ends there.
func (s *Store) Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	statement, owner := listByWebhook, q.Owner.WebhookID
	switch {
	case owner.IsZero():
		statement, owner = listByJob, q.Owner.JobID
	case q.State == job.DeliveryFailed:
		statement = listFailed
	}
	type line struct {
		job.Delivery
		last, wanted bool
	}
	from, to := idRange(job.Query{After: q.After, CreatedAfter: q.CreatedAfter, CreatedBefore: q.CreatedBefore})
	lines, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l line, err error) {
		var d deliveryScanner
		err = row.Scan(append([]any{&l.last, &l.wanted}, d.columns()...)...)
		l.Delivery = d.delivery()
		return l, err
	}, statement, uuid(client), uuid(owner), pgtype.UUID{Bytes: to, Valid: true}, pgtype.UUID{Bytes: from, Valid: true},
		nullable(string(q.State)), nullable(q.EventName), q.CreatedAfter, q.CreatedBefore, q.Limit+1)
	if err != nil {
		return job.DeliveryPage{}, err
	}
	if len(lines) == 0 {
		return job.DeliveryPage{}, s.owns(ctx, client, q.Owner)
	}
	var page job.DeliveryPage
	for _, l := range lines {
		if l.last {
			page.Next = l.ID
		}
		if l.wanted {
			page.Deliveries = append(page.Deliveries, l.Delivery)
		}
	}
	if len(page.Deliveries) > q.Limit {
		page.Deliveries = page.Deliveries[:q.Limit]
		page.Next = page.Deliveries[q.Limit-1].ID
	}
	return page, nil
}

// owns is an error if the owner of deliveries is not the client's.
func (s *Store) owns(ctx context.Context, client job.ID, o job.DeliveryOwner) error {
	if o.WebhookID.IsZero() {
		_, err := s.look(ctx, client, o.JobID)
		return err
	}
	_, err := s.Webhook(ctx, client, o.WebhookID)
	return err
}

// ofOwner finds one delivery, by primary key, if it is the client's and the
// owner's: the webhook's, or the job's if that is given.
const ofOwner = `deliveries.delivery_id = $1 AND deliveries.client_id = $2
  AND CASE WHEN $3::uuid IS NULL THEN deliveries.job_id = $4::uuid ELSE deliveries.webhook_id = $3
    AND EXISTS (SELECT FROM webhooks WHERE webhook_id = $3 AND deleted_at IS NULL) END`

// maxAttemptsKept bounds the log of one delivery; a client may have it sent
// again and again.
const maxAttemptsKept = 100

// readDelivery reads a delivery and its latest attempts in one snapshot, in no
// order. It yields one row at least.
const readDelivery = `
SELECT ` + deliveryColumns + `, a.number, a.started_at, a.duration_ms, a.status, a.error, a.response_header, a.response_body, a.body_truncated
FROM deliveries LEFT JOIN LATERAL (
  SELECT * FROM delivery_attempts WHERE delivery_id = deliveries.delivery_id ORDER BY number DESC LIMIT $5
) a ON true
WHERE ` + ofOwner

// Delivery reads one delivery and what became of its attempts, from the first
// one on; at most the latest 100 of them.
func (s *Store) Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error) {
	var d deliveryScanner
	tries, err := queryRows(ctx, s, func(row pgx.CollectableRow) (a job.DeliveryAttempt, err error) {
		var number, status *int
		var started *time.Time
		var ms *int64
		var failed *string
		var truncated *bool
		err = row.Scan(append(d.columns(), &number, &started, &ms, &status, &failed, &a.Header, &a.Body, &truncated)...)
		a.Number, a.StartedAt, a.Duration = deref(number), deref(started), time.Duration(deref(ms))*time.Millisecond
		a.Status, a.Error, a.Truncated = deref(status), job.SendError(deref(failed)), deref(truncated)
		return a, err
	}, readDelivery, uuid(id), uuid(client), uuid(owner.WebhookID), uuid(owner.JobID), maxAttemptsKept)
	switch {
	case err != nil:
		return nil, nil, err
	case len(tries) == 0:
		if err := s.owns(ctx, client, owner); err != nil {
			return nil, nil, err
		}
		return nil, nil, errDeliveryNotFound
	}
	found := d.delivery()
	if tries[0].Number == 0 { // it was not tried yet
		return &found, nil, nil
	}
	slices.SortFunc(tries, func(a, b job.DeliveryAttempt) int { return a.Number - b.Number })
	return &found, tries, nil
}

// canGetSome guards deliveries that are to be sent: their webhook is enabled,
// or they are of a callback.
const canGetSome = `NOT EXISTS (SELECT FROM webhooks w WHERE w.webhook_id = deliveries.webhook_id AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL))`

// dueAgain makes a settled delivery due, and a waiting one at once.
const dueAgain = `state = 'PENDING', settled_at = NULL, resent_at = CASE state WHEN 'PENDING' THEN resent_at ELSE attempts END,
  next_attempt_at = CASE WHEN claimed_until IS NULL THEN least(next_attempt_at, clock_timestamp()) ELSE next_attempt_at END`

// redeliver locks the delivery, by primary key.
const redeliver = `
UPDATE deliveries SET ` + dueAgain + ` WHERE ` + ofOwner + ` AND ` + canGetSome + `
RETURNING ` + deliveryColumns

// Redeliver has a settled delivery sent again, and one that waits at once. One
// that is being sent is left as it is. It is a conflict if the webhook is disabled.
func (s *Store) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	found, err := queryRows(ctx, s, scanDelivery, redeliver, uuid(id), uuid(client), uuid(owner.WebhookID), uuid(owner.JobID))
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return &found[0], nil
	}
	if _, _, err := s.Delivery(ctx, client, owner, id); err != nil {
		return nil, err
	}
	return nil, errWebhookDisabled
}

// redeliverFailed walks the index deliveries_failed, in which a delivery's id
// stands for its time, and skips what somebody else has locked.
const redeliverFailed = `
WITH failed AS MATERIALIZED (
  SELECT delivery_id FROM deliveries WHERE webhook_id = $2 AND state = 'FAILED' AND delivery_id >= $5 AND created_at >= $3 AND ` + ownsEnabled + `
  ORDER BY webhook_id, delivery_id LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE deliveries SET ` + dueAgain + ` WHERE delivery_id = ANY (ARRAY(SELECT delivery_id FROM failed))`

// RedeliverFailed has FAILED deliveries of a webhook sent again that were made
// since the given time, the oldest first.
func (s *Store) RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error) {
	w, err := s.Webhook(ctx, client, webhook)
	switch {
	case err != nil:
		return job.Replay{}, err
	case w.Disabled != nil:
		return job.Replay{}, errWebhookDisabled
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, redeliverFailed, uuid(client), uuid(webhook), since, limit, [16]byte(firstIDOf(since.Add(-idSkew))))
	if err != nil {
		return job.Replay{}, s.failed("redeliver", err)
	}
	n := int(tag.RowsAffected())
	return job.Replay{Queued: n, More: n == limit}, nil
}

// testWebhook writes an event and its one delivery; the trigger
// client_events_delivered makes none of it.
const testWebhook = `
WITH target AS MATERIALIZED (
  SELECT webhook_id, client_id, uuid7(at) AS event_id, at FROM webhooks, (VALUES (clock_timestamp())) AS v(at)
  WHERE webhook_id = $1 AND client_id = $2 AND deleted_at IS NULL AND disabled_at IS NULL
), event AS (
  INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data)
  SELECT event_id, client_id, '` + job.EventWebhookTest + `', at, webhook_id, jsonb_build_object('webhookId', webhook_id) FROM target
)
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at)
SELECT uuid7(at), client_id, webhook_id, webhook_id, 0, event_id, '` + job.EventWebhookTest + `', at, at FROM target
RETURNING ` + deliveryColumns

// TestWebhook has an event of no consequence sent to a webhook, and to no other
// one. It is a conflict if the webhook is disabled.
func (s *Store) TestWebhook(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	found, err := queryRows(ctx, s, scanDelivery, testWebhook, uuid(id), uuid(client))
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return &found[0], nil
	}
	if _, err := s.Webhook(ctx, client, id); err != nil {
		return nil, err
	}
	return nil, errWebhookDisabled
}
