package deliveries

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Bounds of DueEndpoints: how many endpoints it gives, and how many it looks at.
const (
	maxEndpoints       = 1000
	MaxLookedEndpoints = 10_000
)

// DueEndpoints gives endpoints of a client that have something due which
// no worker is sending: at most 1,000, of the first 10,000 by id that have
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

// lookForDue walks a client's endpoints after the given one, and reports
// whether it stopped because it has looked at so many.
func (s *Store) lookForDue(ctx context.Context, client, after job.ID, limit int) (due []job.ID, cut bool, err error) {
	type seen struct {
		ID        job.ID
		Due, Last bool
	}
	endpoints, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[seen], statement("dueEndpoints"),
		pg.UUID(client), [16]byte(after), limit, MaxLookedEndpoints)
	for _, e := range endpoints {
		if e.Due {
			due = append(due, e.ID)
		}
		cut = cut || e.Last
	}
	return due, cut, err
}

// DueClients looks at so many endpoints with waiting deliveries after the given
// one, and gives the clients of those that have had something due for minAge.
// It answers with the last endpoint that it looked at, or with the zero one when
// there are no more.
func (s *Store) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (
	clients []job.ID, last job.EndpointKey, err error,
) {
	type seen struct {
		job.EndpointKey
		Due, Last bool
	}
	endpoints, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[seen], statement("dueClients"),
		[16]byte(after.Client), [16]byte(after.Endpoint), look, minAge)
	for _, e := range endpoints {
		if e.Due && (len(clients) == 0 || clients[len(clients)-1] != e.Client) {
			clients = append(clients, e.Client)
		}
		if e.Last {
			last = e.EndpointKey
		}
	}
	return clients, last, err
}

// Bounds of the data of events that is read at once, in bytes: a
// delivery worker holds it until they are sent. What reaches a bound is still taken.
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

// ClaimDeliveries takes at most n due deliveries of an endpoint, for the given
// time, in the order in which they are due, those of one moment by job and
// seq, with all that it takes to send them. It takes fewer if their events have
// much data, and none of a disabled or deleted webhook. There may be more, since
// it has taken n, or not all that it saw.
func (s *Store) ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (job.DeliveryClaim, error) {
	return s.pickups.Do(ctx, pickup{client, endpoint, n, hold})
}

func (s *Store) pickUp(ctx context.Context, db pg.Conn, asked []pickup) ([]pg.Answer[job.DeliveryClaim], error) {
	rows, err := pg.RowsIn(ctx, db, scanClaimed, statement("claimDeliveries"),
		pg.Column(asked, func(p pickup) pgtype.UUID { return pg.UUID(p.client) }),
		pg.Column(asked, func(p pickup) pgtype.UUID { return pg.UUID(p.endpoint) }),
		pg.Column(asked, func(p pickup) int { return p.n }),
		pg.Column(asked, func(p pickup) time.Duration { return p.hold }))
	if err != nil {
		return nil, err
	}
	// What is claimed stays so, whether the batches can be read or not: such
	// deliveries are due again when the claim has ended.
	batches, err := s.endedBatches(ctx, pg.Column(rows, func(c claimed) job.ID { return c.batch }))
	answers := make([]pg.Answer[job.DeliveryClaim], len(asked))
	taken := make([]int, len(asked))
	for _, c := range rows {
		a := &answers[c.asked]
		if !c.ID.IsZero() {
			taken[c.asked]++
		}
		a.Value.More, a.Value.Next = c.seen >= asked[c.asked].n || taken[c.asked] < c.seen, c.next
		if c.ID.IsZero() {
			continue
		}
		if !c.batch.IsZero() {
			if err != nil {
				a.Err = err
				continue
			}
			if c.Occurrence.Batch = batches[c.batch]; c.Occurrence.Batch == nil {
				continue // removed since; events go before their batches
			}
		}
		a.Value.Deliveries = append(a.Value.Deliveries, c.ClaimedDelivery)
	}
	return answers, nil
}

// claimed is a row of claimDeliveries: a delivery for the pickup at that index,
// or none.
type claimed struct {
	job.ClaimedDelivery
	asked, seen int
	next        time.Duration
	batch       job.ID
}

func scanClaimed(row pgx.CollectableRow) (c claimed, err error) {
	var e eventScanner
	var secrets secretScanner
	t := job.Target{ContentMode: job.ContentBinary}
	err = scanDelivery(row, &c.Delivery, []any{&c.asked, &c.seen, &c.next}, append([]any{
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

// ReleaseDeliveries gives claims back: the deliveries are due as they were.
// Claims that are not current are skipped.
func (s *Store) ReleaseDeliveries(ctx context.Context, claimed []job.ClaimedDelivery) error {
	return s.db.Exec(ctx, "release", statement("releaseDeliveries"),
		pg.Column(claimed, func(d job.ClaimedDelivery) pgtype.UUID { return pg.UUID(d.ID) }),
		pg.Column(claimed, func(d job.ClaimedDelivery) int { return d.Fence }))
}

// ReclaimDeliveries ends at most limit claims whose time is over, and gives
// their number: the process that sends such a delivery is given up, and it is due again.
func (s *Store) ReclaimDeliveries(ctx context.Context, limit int) (n int, err error) {
	return s.db.Change(ctx, "reclaim", statement("reclaimDeliveries"), limit)
}

// RecordDelivery writes the result of an attempt to send a claimed
// delivery: the attempt, the delivery's state, and the health of its webhook.
// job.ErrStale: the claim is no longer current and nothing was written.
//
// A webhook that has failed too often in a row, and for too long, is disabled,
// and so is one for which the result asks for it; the client's event
// webhook.disabled is written once for it.
//
// A failure of our own, job.SendInternal, says nothing about the receiver: it
// does not count, neither against the webhook nor as one of the delivery's tries.
func (s *Store) RecordDelivery(ctx context.Context, r job.DeliveryResult) (job.Recorded, error) {
	return s.records.Do(ctx, r)
}

// disabledTexts are the sentences for the reasons that are found here.
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

// collectRecorded reports a disabled webhook once: with the first of the
// failures that it was disabled for.
func collectRecorded(rows pgx.Rows, err error, results []job.DeliveryResult) ([]pg.Answer[job.Recorded], error) {
	type line struct {
		number  int
		next    *time.Time
		webhook job.ID
		failed  bool
		reason  *job.DisabledReason
	}
	written, err := pg.CollectByID(rows, err, func(l *line) []any {
		return []any{&l.number, &l.next, &l.webhook, &l.failed, &l.reason}
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
		answers[i].Value.Number, answers[i].Value.NextAttemptAt = l.number, l.next
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

// EndpointWalk is what a statement answers with that looks at endpoints with waiting deliveries.
type EndpointWalk struct {
	job.EndpointKey // the last one that it looked at
	Looked, Changed int
}

// Next is the endpoint behind which a walk goes on that was to look at so many, and to change limit deliveries at most.
func (w EndpointWalk) Next(from job.EndpointKey, look, limit int) job.EndpointKey {
	switch {
	case w.Changed == limit: // there may be more of these
		return from
	case w.Looked < look:
		return job.EndpointKey{}
	}
	return w.EndpointKey
}

// FailOrphans gives up waiting deliveries whose webhook was disabled or deleted,
// at most limit of them, and gives their number. Each call looks at so many
// endpoints with waiting deliveries, from where the call before ended; after the
// last one it begins again.
func (s *Store) FailOrphans(ctx context.Context, look, limit int) (n int, err error) {
	s.orphans.Lock()
	defer s.orphans.Unlock()
	from := s.orphans.At
	found, err := pg.QueryOne(ctx, s.db, nil, pgx.RowToStructByPos[EndpointWalk], statement("failOrphans"),
		[16]byte(from.Client), [16]byte(from.Endpoint), look, limit)
	if err == nil {
		s.orphans.At = found.Next(from, look, limit)
	}
	return found.Changed, err
}
