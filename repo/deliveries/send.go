package deliveries

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// MaxLookedEndpoints is the maximum number of endpoints that are read when deliveries are counted for operators.
const MaxLookedEndpoints = 10_000

// NewDeliveries finds deliveries that wait for their first attempt. It looks only at the latest deliveries of each job, and at the
// deliveries of each client's latest events without a job.
func (s *Store) NewDeliveries(ctx context.Context, jobs, clients []job.ID) ([]job.DeliveryTask, error) {
	return pg.Query(ctx, s.db, func(row pgx.CollectableRow) (t job.DeliveryTask, err error) {
		return t, row.Scan(&t.ID, &t.ClientID, &t.Endpoint)
	}, statement("newDeliveries"), pg.Column(jobs, pg.UUID), pg.Column(clients, pg.UUID))
}

// DueDeliveries finds waiting deliveries that are due now, or within the time `soon`. It returns the first `perEndpoint` deliveries of each
// endpoint, and at most `limit` in all. It skips untried deliveries younger than `minAge`. It reads at most `look` endpoints, beginning
// after the endpoint `after`. `last` is the endpoint to continue after, zero at the end. `limit` must exceed `perEndpoint`.
func (s *Store) DueDeliveries(ctx context.Context, after job.EndpointKey, look, perEndpoint, limit int, minAge, soon time.Duration) (
	due []job.DeliveryTask, last job.EndpointKey, err error,
) {
	type seen struct {
		Last   bool
		Client job.ID
		At     job.ID
		ID     job.ID // delivery; zero if the endpoint has no due delivery
		Due    *time.Time
	}
	rows, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (r seen, err error) {
		return r, pg.ScanRow(row, &r.Last, &r.Client, &r.At, &r.ID, &r.Due)
	}, statement("dueDeliveries"), [16]byte(after.Client), [16]byte(after.Endpoint), look, perEndpoint, minAge, soon, limit)
	if err != nil {
		return nil, job.EndpointKey{}, err
	}
	for _, r := range rows {
		if !r.ID.IsZero() {
			due = append(due, job.DeliveryTask{ID: r.ID, ClientID: r.Client, Endpoint: r.At, At: *r.Due})
		}
		if r.Last {
			last = job.EndpointKey{Client: r.Client, Endpoint: r.At}
		}
	}
	if len(rows) == limit { // the last endpoint may have more due deliveries, so the next call begins with it
		end := rows[limit-1]
		first := slices.IndexFunc(rows, func(r seen) bool { return r.Client == end.Client && r.At == end.At })
		last = job.EndpointKey{Client: rows[first-1].Client, Endpoint: rows[first-1].At}
	}
	return due, last, nil
}

// maxClaimBytes limits the event data of one statement, in bytes, because delivery workers keep the data in memory until it is sent. The
// event that reaches the limit is still included.
const maxClaimBytes = 8 << 20

type claimRequest struct {
	id   job.ID
	hold time.Duration
}

// ClaimDelivery claims a due delivery for the time `hold` and returns it with all the data to send it. If the delivery is locked or not yet
// due, ClaimDelivery returns nil and the time to wait before the next call. It returns nil and 0 if the delivery is settled, being sent or
// removed. It also returns nil and 0 if the delivery's webhook is disabled or deleted.
func (s *Store) ClaimDelivery(ctx context.Context, id job.ID, hold time.Duration) (*job.ClaimedDelivery, time.Duration, error) {
	c, err := s.claims.Do(ctx, claimRequest{id, hold})
	return c.delivery, c.wait, err
}

func (s *Store) claimDeliveries(ctx context.Context, db pg.Conn, all []claimRequest) ([]pg.Answer[claim], error) {
	rows, err := pg.RowsIn(ctx, db, scanClaimed, statement("claimDeliveries"),
		pg.Column(all, func(r claimRequest) pgtype.UUID { return pg.UUID(r.id) }),
		pg.Column(all, func(r claimRequest) time.Duration { return r.hold }))
	if err != nil {
		return nil, err
	}
	// If the batches cannot be read, their deliveries stay claimed. The deliveries are due again when their claims expire.
	batches, err := s.endedBatches(ctx, pg.Column(rows, func(c claimed) job.ID { return c.batch }))
	answers := make([]pg.Answer[claim], len(all))
	for _, c := range rows {
		a := &answers[c.index]
		a.Value.wait = c.wait
		switch {
		case c.ID.IsZero():
			continue
		case !c.batch.IsZero() && err != nil:
			a.Err = err
			continue
		case !c.batch.IsZero():
			if c.Occurrence.Batch = batches[c.batch]; c.Occurrence.Batch == nil {
				continue // a batch is removed only after its events, so this event was removed meanwhile
			}
		}
		a.Value.delivery = &c.ClaimedDelivery
	}
	return answers, nil
}

type claim struct {
	delivery *job.ClaimedDelivery
	wait     time.Duration
}

type claimed struct {
	job.ClaimedDelivery
	index int
	wait  time.Duration
	batch job.ID
}

func scanClaimed(row pgx.CollectableRow) (c claimed, err error) {
	var e eventScanner
	var secrets secretScanner
	t := job.Target{ContentMode: job.ContentBinary}
	err = scanDelivery(row, &c.Delivery, []any{&c.index, &c.wait}, append([]any{
		&c.Fence, &c.RequestID, &c.TraceParent, &c.batch, &e.Webhook,
		&t.URL, &t.ContentMode, &t.Failures, &secrets.current, &secrets.old, &secrets.until}, e.columns()...)...)
	if err != nil || c.ID.IsZero() {
		return c, err
	}
	c.Occurrence, c.Target = *e.occurrence(), t
	if c.WebhookID.IsZero() {
		c.Target.URL = c.URL
	} else {
		c.Target.Secrets = secrets.valid(time.Now())
	}
	return c, nil
}

// ReleaseDelivery ends a claim without an attempt. The delivery keeps the due time that it had before the claim. If the claim is not
// current, ReleaseDelivery does nothing.
func (s *Store) ReleaseDelivery(ctx context.Context, id job.ID, fence int) error {
	return s.db.Exec(ctx, "release", statement("releaseDelivery"), pg.UUID(id), fence)
}

// ReclaimDeliveries ends at most `limit` expired claims and returns their number. Their deliveries are due again.
func (s *Store) ReclaimDeliveries(ctx context.Context, limit int) (n int, err error) {
	return s.db.Change(ctx, "reclaim", statement("reclaimDeliveries"), limit)
}

// RecordDelivery writes the result of an attempt to send a claimed delivery: the attempt, the delivery's state, and the health of its
// webhook. It returns job.ErrStale and writes nothing if the claim is no longer current.
//
// It disables the webhook if r.Disable is set, or if both limits of WebhookLimits are reached. RecordDelivery then also writes the event
// webhook.disabled.
//
// An internal failure, job.SendInternal, is not the receiver's fault. It counts neither against the webhook nor as a try of the delivery.
func (s *Store) RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error) {
	return s.records.Do(ctx, r)
}

var disabledTexts = map[job.DisabledReason]string{
	job.DisabledGone: job.DisabledGone.Text(), job.DisabledFailing: job.DisabledFailing.Text(),
}

func (s *Store) recordDeliveries(ctx context.Context, db pg.Conn, results []job.DeliveryResult) ([]pg.Answer[job.Recorded], error) {
	type result = job.DeliveryResult
	headers, err := pg.JSONColumn(results, func(r result) (map[string][]string, bool) {
		return r.Sent.Attempt.Header, r.Sent.Attempt.Header != nil
	})
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, statement("recordDeliveries"),
		pg.Column(results, func(r result) pgtype.UUID { return pg.UUID(r.DeliveryID) }),
		pg.Column(results, func(r result) int { return r.Fence }),
		pg.Column(results, func(r result) string { return string(r.State) }),
		pg.Column(results, func(r result) time.Duration { return r.Wait }),
		pg.Column(results, func(r result) *string { return pg.Nullable(string(r.Disable)) }),
		pg.Column(results, func(r result) time.Time { return r.Sent.Attempt.StartedAt }),
		pg.Column(results, func(r result) int64 { return r.Sent.Attempt.Duration.Milliseconds() }),
		pg.Column(results, func(r result) *string { return pg.Nullable(string(r.Sent.Attempt.Error)) }),
		pg.Column(results, func(r result) *string { return pg.Nullable(r.Sent.Attempt.Reason) }),
		pg.Column(results, func(r result) *int { return pg.Nullable(r.Sent.Attempt.Status) }),
		headers,
		pg.Column(results, func(r result) []byte { return r.Sent.Attempt.Body }),
		pg.Column(results, func(r result) bool { return r.Sent.Attempt.Truncated }),
		s.limits.DisableFailures, s.limits.DisableAfter, disabledTexts, MaxAttemptsKept)
	return collectRecorded(rows, err, results)
}

func collectRecorded(rows pgx.Rows, err error, results []job.DeliveryResult) ([]pg.Answer[job.Recorded], error) {
	type line struct {
		number  int
		webhook job.ID
		failed  bool
		reason  *job.DisabledReason
	}
	written, err := pg.CollectByID(rows, err, func(l *line) []any {
		return []any{&l.number, &l.webhook, &l.failed, &l.reason}
	})
	if err != nil {
		return nil, err
	}
	answers := make([]pg.Answer[job.Recorded], len(results))
	reported := map[job.ID]bool{}
	for i, r := range results {
		l, ok := written[r.DeliveryID]
		if !ok {
			answers[i].Err = job.ErrStale
			continue
		}
		answers[i].Value.Number = l.number
		reason := pg.Deref(l.reason)
		if reason != "" && !reported[l.webhook] && l.failed && (r.Disable == reason || reason == job.DisabledFailing) {
			answers[i].Value.Disabled, reported[l.webhook] = reason, true
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

// EndpointWalk is the result of a statement that walks endpoints with waiting deliveries.
type EndpointWalk struct {
	job.EndpointKey // last endpoint that was read
	Looked, Changed int
}

// Next returns the endpoint after which the next call must begin. The previous call began after `from`, and was limited to `look` endpoints
// and `limit` changed deliveries.
func (w EndpointWalk) Next(from job.EndpointKey, look, limit int) job.EndpointKey {
	switch {
	case w.Changed == limit: // the same endpoints may have more deliveries to change
		return from
	case w.Looked < look:
		return job.EndpointKey{}
	}
	return w.EndpointKey
}

// FailOrphans ends at most `limit` waiting deliveries of disabled or deleted webhooks and returns their ids. Each call reads a limited
// number of endpoints, from where the previous call ended. After the last endpoint, the next call begins with the first one.
func (s *Store) FailOrphans(ctx context.Context, look, limit int) ([]job.ID, error) {
	s.orphans.Lock()
	defer s.orphans.Unlock()
	from := s.orphans.At
	type found struct {
		job.EndpointKey
		Looked int
		Failed []job.ID
	}
	f, err := pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[found], statement("failOrphans"),
		[16]byte(from.Client), [16]byte(from.Endpoint), look, limit)
	if err == nil {
		s.orphans.At = EndpointWalk{f.EndpointKey, f.Looked, len(f.Failed)}.Next(from, look, limit)
	}
	return f.Failed, err
}
