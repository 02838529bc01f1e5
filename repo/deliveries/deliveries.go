package deliveries

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// ErrNotFound is returned for an unknown delivery and for a delivery of another owner.
var ErrNotFound = job.Errorf(job.CodeRequestNotFound, "No delivery with this id was found.")

func scanDelivery(row pgx.CollectableRow, d *job.Delivery, leading []any, trailing ...any) error {
	var resentAt int
	err := pg.ScanRow(row, slices.Concat(leading, []any{
		&d.ID, &d.ClientID, &d.Endpoint, &d.WebhookID, &d.URL,
		&d.JobID, &d.Seq, &d.EventID, &d.EventName, &d.CreatedAt,
		&d.State, &d.Attempts, &resentAt, &d.NextAttemptAt, &d.ClaimedUntil, &d.SettledAt,
		&d.LastStatus, &d.LastError, &d.LastReason,
	}, trailing)...)
	d.Tries = d.Attempts - resentAt
	return err
}

func scanOneDelivery(row pgx.CollectableRow) (*job.Delivery, error) {
	var d job.Delivery
	return &d, scanDelivery(row, &d, nil)
}

// Deliveries lists the deliveries of a client's webhook or job, the newest first by id. A call reads at most 20,000 rows, so a page can
// have fewer entries than its limit.
func (s *Store) Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error) {
	list, owner := statement("listByWebhook"), q.Owner.WebhookID
	switch {
	case owner.IsZero():
		list, owner = statement("listByJob"), q.Owner.JobID
	case q.State == job.DeliveryFailed:
		list = statement("listFailed")
	}
	from, to := pg.IDRange(job.Query{After: q.After, CreatedAfter: q.CreatedAfter, CreatedBefore: q.CreatedBefore})
	rows, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (l pg.Listed[job.Delivery, job.ID], err error) {
		err = scanDelivery(row, &l.Item, []any{&l.Last, &l.Wanted})
		l.Place = l.Item.ID
		return l, err
	}, list, pg.UUID(client), pg.UUID(owner), [16]byte(to), [16]byte(from),
		pg.Nullable(string(q.State)), pg.Nullable(q.EventName), q.CreatedAfter, q.CreatedBefore, q.Limit+1)
	if err == nil && len(rows) == 0 {
		err = s.owns(ctx, client, q.Owner)
	}
	deliveries, next := pg.OnePage(rows, q.Limit)
	return job.DeliveryPage{Deliveries: deliveries, Next: next}, err
}

func (s *Store) owns(ctx context.Context, client job.ID, o job.DeliveryOwner) error {
	if o.WebhookID.IsZero() {
		_, err := s.jobs.Look(ctx, client, o.JobID)
		return err
	}
	_, err := s.Webhook(ctx, client, o.WebhookID)
	return err
}

// MaxAttemptsKept limits the log of one delivery, because a client may redeliver it any number of times.
const MaxAttemptsKept = 100

// Delivery reads one delivery and its latest attempts in order, at most MaxAttemptsKept.
func (s *Store) Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (
	*job.Delivery, []job.DeliveryAttempt, error,
) {
	var d job.Delivery
	tries, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (a job.DeliveryAttempt, err error) {
		var ms int64
		err = scanDelivery(row, &d, nil, &a.Number, &a.StartedAt, &ms, &a.Status, &a.Error, &a.Reason, &a.Header, &a.Body, &a.Truncated)
		a.Duration = time.Duration(ms) * time.Millisecond
		return a, err
	}, statement("readDelivery"), pg.UUID(id), pg.UUID(client), pg.UUID(owner.WebhookID), pg.UUID(owner.JobID), MaxAttemptsKept)
	switch {
	case err != nil:
		return nil, nil, err
	case len(tries) == 0:
		if err := s.owns(ctx, client, owner); err != nil {
			return nil, nil, err
		}
		return nil, nil, ErrNotFound
	}
	if tries[0].Number == 0 { // not tried yet
		return &d, nil, nil
	}
	slices.SortFunc(tries, func(a, b job.DeliveryAttempt) int { return a.Number - b.Number })
	return &d, tries, nil
}

// Redeliver makes a completed or waiting delivery due now. It does not change a delivery that is being sent. If the webhook is disabled,
// Redeliver returns a conflict. If the webhook is deleted, it returns a not-found error.
func (s *Store) Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error) {
	d, found, err := pg.QueryFirst(ctx, s.db, scanOneDelivery, statement("redeliver"),
		pg.UUID(id), pg.UUID(client), pg.UUID(owner.WebhookID), pg.UUID(owner.JobID))
	if err == nil && !found {
		var unsent *job.Delivery
		if unsent, _, err = s.Delivery(ctx, client, owner, id); err == nil {
			err = s.whyNotSent(ctx, client, unsent.WebhookID)
		}
	}
	return d, err
}

// RedeliverFailed makes FAILED deliveries of a webhook due again, the oldest first. It changes only deliveries that were created at or
// after the time `since`.
func (s *Store) RedeliverFailed(ctx context.Context, client, webhook job.ID, since time.Time, limit int) (job.Replay, error) {
	w, err := s.Webhook(ctx, client, webhook)
	switch {
	case err != nil:
		return job.Replay{}, err
	case w.Disabled != nil:
		return job.Replay{}, errWebhookDisabled
	}
	first := pg.FirstIDOf(since.Add(-pg.IDSkew))
	n, err := s.db.Change(ctx, "redeliver", statement("redeliverFailed"), pg.UUID(client), pg.UUID(webhook), since, limit, [16]byte(first))
	return job.Replay{Queued: n, More: n == limit && err == nil}, err
}

// TestWebhook sends a test event to the given webhook and to no other. For a disabled webhook, it returns a conflict.
func (s *Store) TestWebhook(ctx context.Context, client, id job.ID) (*job.Delivery, error) {
	d, found, err := pg.QueryFirst(ctx, s.db, scanOneDelivery, statement("testWebhook"), pg.UUID(id), pg.UUID(client))
	if err == nil && !found {
		err = s.whyNotSent(ctx, client, id)
	}
	return d, err
}

const (
	// maxReplayed is the maximum number of events that one call of ReplayEvents reads.
	maxReplayed = 5000

	// The stream is not sorted by time: an event may be older than its predecessor, but at most by replaySlack. Transactions that write events
	// are shorter than replaySlack.
	replaySlack = time.Minute
)

// ReplayEvents sends a webhook the events that it missed since the given time. First it makes the FAILED deliveries due. Then it queues a
// delivery for each matching event that has no delivery to the webhook, in stream order. ReplayEvents reads a limited number of events.
// If more events remain, it returns the position to continue after. Pass the zero position to begin.
//
// It skips the events of webhook tests, and the events that report that this webhook was disabled.
func (s *Store) ReplayEvents(ctx context.Context, client, webhook job.ID, since time.Time, after job.Position, limit int) (
	job.Replay, error,
) {
	failed := 0
	if after == (job.Position{}) {
		again, err := s.RedeliverFailed(ctx, client, webhook, since, limit)
		if err != nil || again.More {
			return again, err
		}
		failed = again.Queued
		// This position is a little before the first event since the given time.
		if after.Tx, err = pg.QueryValue[uint64](ctx, s.db, statement("findReplayStart"), pg.UUID(client), since.Add(-replaySlack)); err != nil {
			return again, err
		}
	}
	type result struct {
		job.Replay
		future bool
	}
	r, found, err := pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (r result, err error) {
		return r, row.Scan(&r.future, &r.Queued, &r.More, &r.Next.Tx, &r.Next.ID, &r.Next.Seq)
	}, statement("replayEvents"), pg.UUID(client), pg.UUID(webhook), since, limit-failed, after.Tx, [16]byte(after.ID), after.Seq, maxReplayed)
	switch {
	case err != nil:
		return job.Replay{Queued: failed}, err
	case !found:
		return job.Replay{Queued: failed}, s.whyNotSent(ctx, client, webhook)
	case r.future:
		return job.Replay{Queued: failed}, errFuturePosition
	}
	r.Queued += failed
	if !r.More {
		r.Next = job.Position{}
	}
	return r.Replay, nil
}

func (s *Store) whyNotSent(ctx context.Context, client, webhook job.ID) error {
	if _, err := s.Webhook(ctx, client, webhook); err != nil {
		return err
	}
	return errWebhookDisabled
}
