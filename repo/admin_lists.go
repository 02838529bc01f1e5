package repo

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

const (
	// maxGrouped is how many jobs are looked at to group them, maxGroups how many groups are told.
	maxGrouped = 100_000
	maxGroups  = 1000

	maxShownHeld = 100  // of each worker
	maxShownKeys = 1000 // of a client: it cannot have so many that are valid
)

var (
	anyWebhooks     = statement("adminWebhooks", "{{range}}", "webhook_id < @after", "{{sort}}", "webhook_id DESC")
	oneWebhook      = statement("adminWebhooks", "{{range}}", "webhook_id = @webhook AND webhook_id <= @after", "{{sort}}", "webhook_id DESC")
	clientsWebhooks = statement("adminWebhooks", "{{range}}", "(client_id, webhook_id) < (@client::uuid, @after)"+
		" AND (client_id, webhook_id) >= (@client::uuid, '00000000-0000-0000-0000-000000000000'::uuid) AND deleted_at IS NULL",
		"{{sort}}", "client_id DESC, webhook_id DESC")
	anyDeliveries     = statement("adminDeliveries", "{{range}}", "delivery_id < @after", "{{sort}}", "delivery_id DESC")
	webhookDeliveries = statement("adminDeliveries", "{{range}}", ownersDeliveries("webhook_id"),
		"{{sort}}", "webhook_id DESC, delivery_id DESC")
	jobDeliveries = statement("adminDeliveries", "{{range}}", ownersDeliveries("job_id"), "{{sort}}", "job_id DESC, delivery_id DESC")
)

func ownersDeliveries(owner string) string {
	return fmt.Sprintf("(%[1]s, delivery_id) < (@owner::uuid, @after) AND (%[1]s, delivery_id) >= (@owner::uuid, @from_id)"+
		" AND %[1]s IS NOT NULL", owner)
}

// afterOf is where a list from new to old goes on.
func afterOf(id job.ID) job.ID {
	if id.IsZero() {
		return lastID
	}
	return id
}

// Workers lists worker processes.
func (a Admin) Workers(ctx context.Context, r admin.Range) (admin.Page[admin.Worker], error) {
	all, next, err := queryPage(ctx, a.store, r.Limit, func(w admin.Worker) job.ID { return w.WorkerID }, scanJSON[admin.Worker],
		statement("adminWorkers"), nullable(r.State), [16]byte(afterOf(r.After)), r.Limit+1, maxShownHeld)
	return admin.Page[admin.Worker]{Data: all, Next: next}, err
}

// Queues counts what waits by client and kind.
func (a Admin) Queues(ctx context.Context, r admin.Range) (admin.Bounded[admin.Queue], error) {
	return queryOne(ctx, a.store, nil, scanJSON[admin.Bounded[admin.Queue]], statement("adminQueues"),
		uuid(r.ClientID), nullable(string(r.WorkKind)), maxGrouped, maxGroups)
}

// Failures groups failed jobs of the time from r.From, or the last 24 hours.
func (a Admin) Failures(ctx context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error) {
	from, to := time.Now().Add(-24*time.Hour), farAhead
	if r.From != nil {
		from = *r.From
	}
	if r.To != nil {
		to = *r.To
	}
	return queryOne(ctx, a.store, nil, scanJSON[admin.Bounded[admin.FailureGroup]], statement("adminFailures"),
		uuid(r.ClientID), nullable(string(r.WorkKind)), nullable(string(r.Code)), from, to, maxGrouped, maxGroups)
}

// Clients lists clients with their use of limits; the limits are not known here.
func (a Admin) Clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	all, next, err := queryPage(ctx, a.store, r.Limit, func(c admin.Client) job.ID { return c.ClientID }, scanJSON[admin.Client],
		statement("adminClients"), uuid(r.ClientID), [16]byte(afterOf(r.After)), maxGrouped, r.Limit+1)
	return admin.Page[admin.Client]{Data: all, Next: next}, err
}

// Client reads a client with its keys.
func (a Admin) Client(ctx context.Context, id job.ID) (*admin.ClientDetail, error) {
	found, err := a.Clients(ctx, admin.Range{ClientID: id, Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(found.Data) == 0:
		return nil, job.Errorf(job.CodeClientNotFound, "No client with this id was found.")
	}
	keys, err := queryRows(ctx, a.store, scanJSON[admin.Key], statement("adminKeys"), uuid(id), maxShownKeys)
	return &admin.ClientDetail{Client: found.Data[0], Keys: keys}, err
}

// Webhooks lists webhooks.
func (a Admin) Webhooks(ctx context.Context, r admin.Range) (admin.Page[admin.Webhook], error) {
	list := anyWebhooks
	switch {
	case !r.WebhookID.IsZero():
		list = oneWebhook
	case !r.ClientID.IsZero():
		list = clientsWebhooks
	}
	return pageByID(ctx, a.store, r.Limit, afterOf(r.After), func(w admin.Webhook) job.ID { return w.WebhookID },
		func(after job.ID, limit int) (string, []any) {
			return list, []any{uuid(r.WebhookID), uuid(r.ClientID), r.Enabled, [16]byte(after), limit + 1}
		})
}

// Webhook reads a webhook.
func (a Admin) Webhook(ctx context.Context, id job.ID) (*admin.Webhook, error) {
	found, err := a.Webhooks(ctx, admin.Range{WebhookID: id, Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(found.Data) == 0:
		return nil, errWebhookNotFound
	}
	return &found.Data[0], nil
}

// Deliveries lists deliveries of all clients, of a webhook or of a job.
func (a Admin) Deliveries(ctx context.Context, r admin.Range) (admin.Page[admin.Delivery], error) {
	list, owner := anyDeliveries, job.ID{}
	switch {
	case !r.WebhookID.IsZero():
		list, owner = webhookDeliveries, r.WebhookID
	case !r.JobID.IsZero():
		list, owner = jobDeliveries, r.JobID
	}
	from, to := idRange(job.Query{After: r.After, CreatedAfter: r.From, CreatedBefore: r.To})
	return pageByID(ctx, a.store, r.Limit, to, func(d admin.Delivery) job.ID { return d.DeliveryID },
		func(after job.ID, limit int) (string, []any) {
			return list, []any{uuid(r.ClientID), uuid(owner), nullable(r.State), nullable(r.EventName), r.From, r.To,
				[16]byte(after), [16]byte(from), limit + 1}
		})
}

// Batches lists batches of all clients.
func (a Admin) Batches(ctx context.Context, r admin.Range) (admin.Page[admin.Batch], error) {
	from, to := idRange(job.Query{After: r.After, CreatedAfter: r.From, CreatedBefore: r.To})
	return pageByID(ctx, a.store, r.Limit, to, func(b admin.Batch) job.ID { return b.BatchID },
		func(after job.ID, limit int) (string, []any) {
			return statement("adminBatches"), []any{uuid(r.ClientID), r.From, r.To, [16]byte(after), [16]byte(from), limit + 1}
		})
}

// pageThrough looks for the entries of a page in portions of maxLooked, for a bounded time.
func pageThrough[T any, P comparable](
	ctx context.Context, s *Store, limit int, after P, scan pgx.RowToFunc[listed[T, P]], portion func(after P, limit int) (string, []any),
) (page []T, next P, err error) {
	began := time.Now()
	for page = []T{}; ; after = next {
		sql, args := portion(after, limit-len(page))
		rows, err := queryRows(ctx, s, scan, sql, args...)
		if err != nil {
			return nil, next, err
		}
		var found []T
		found, next = onePage(rows, limit-len(page))
		page = append(page, found...)
		if next == *new(P) || len(page) == limit || time.Since(began) > searchFor {
			return page, next, nil
		}
	}
}

// pageByID is pageThrough for entries in JSON that are in order of their ids.
func pageByID[T any](
	ctx context.Context, s *Store, limit int, after job.ID, id func(T) job.ID, portion func(after job.ID, limit int) (string, []any),
) (page admin.Page[T], err error) {
	page.Data, page.Next, err = pageThrough(ctx, s, limit, after, func(row pgx.CollectableRow) (l listed[T, job.ID], err error) {
		err = row.Scan(&l.last, &l.wanted, &l.item)
		l.place = id(l.item)
		return l, err
	}, portion)
	return page, err
}

// Delivery reads a delivery with its attempts.
func (a Admin) Delivery(ctx context.Context, id job.ID) (*admin.LoggedDelivery, error) {
	d, err := queryOne(ctx, a.store, errDeliveryNotFound, scanJSON[admin.LoggedDelivery], statement("adminDelivery"),
		uuid(id), maxAttemptsKept)
	if err != nil {
		return nil, err
	}
	for _, attempt := range d.AttemptsLog {
		if attempt.Response != nil {
			showText(attempt.Response)
		}
	}
	return &d, nil
}

// showText shows a body that is text as such.
func showText(r *admin.Response) {
	body, err := base64.StdEncoding.DecodeString(r.BodyBase64)
	if err == nil && utf8.Valid(body) && !slices.Contains(body, 0) {
		text := string(body)
		r.Body, r.BodyBase64 = &text, ""
	}
}

// Batch reads a batch with the counts of its jobs.
func (a Admin) Batch(ctx context.Context, id job.ID) (*admin.Batch, error) {
	b, err := queryOne(ctx, a.store, errBatchNotFound, scanJSON[admin.Batch], statement("adminBatch"), uuid(id))
	if err != nil {
		return nil, err
	}
	for _, state := range job.States {
		if name := strings.ToLower(string(state)); b.Counts[name] == 0 {
			b.Counts[name] = 0 // it is told as well
		}
	}
	return &b, nil
}

// System reads what the service as a whole is doing; its version and its limits are not known here.
func (a Admin) System(ctx context.Context) (*admin.System, error) {
	system, err := queryOne(ctx, a.store, errNoSchema, scanJSON[admin.System], statement("adminSystem"),
		MaxCount, [16]byte{}, [16]byte{}, maxLookedEndpoints)
	return &system, err
}

var errNoSchema = job.Errorf(job.CodeStorageUnavailable, "The database has no schema yet.")

// maxMarked is how many held jobs are watched for events.
const maxMarked = 10_000

// Mark gives a text that is another one once something has happened that operators look at.
func (a Admin) Mark(ctx context.Context) (string, error) {
	return queryValue[string](ctx, a.store, statement("adminMark"), maxMarked)
}

// Situation tells how the service is at this moment.
func (a Admin) Situation(ctx context.Context) (admin.Situation, error) {
	return queryOne(ctx, a.store, errNoSchema, scanJSON[admin.Situation], statement("adminSituation"),
		MaxCount, [16]byte{}, [16]byte{}, maxLookedEndpoints)
}

// History tells what happened in a window, from old to new.
func (a Admin) History(ctx context.Context, w admin.Window) ([]admin.HistoryBucket, error) {
	length, step := w.Span()
	width := 60
	if step < time.Minute {
		width = int(historyWidth / time.Second)
	}
	return queryOne(ctx, a.store, nil, scanJSON[[]admin.HistoryBucket], statement("readHistory"), width, length, step)
}

// Ends counts how jobs ended in the last time, as far as history goes back: two days at most.
func (a Admin) Ends(ctx context.Context, last time.Duration) (admin.Ends, error) {
	return queryOne(ctx, a.store, nil, pgx.RowToStructByPos[admin.Ends], statement("sumHistory"), last)
}

const (
	historyWidth = 10 * time.Second // of the buckets that are counted; minutes are made of them
	historyKept  = 48 * time.Hour   // minutes

	// historyBack is how far back buckets that are missing are written: after a change of leader, or an outage.
	historyBack = 15 * time.Minute
	// historyMost is how many jobs one bucket counts: 20,000 a second.
	historyMost = 200_000
	// historyTimeout is how long Postgres may take for one bucket. It is tried again, as long as it is missing.
	historyTimeout = 2 * time.Second
)

// MissingHistory gives the buckets that are to be written, the latest first.
func (s *Store) MissingHistory(ctx context.Context) ([]time.Time, error) {
	return queryRowsAs(ctx, s, "history", pgx.RowTo[time.Time], statement("missingHistory"), historyBack)
}

// WriteHistory counts what happened in the bucket that begins at the given moment, and writes it. It may be repeated, by whomever.
//
// Jobs are submitted at the time in their ids, which is that of the api process: where its clock is behind Postgres' by more than
// the time in which a bucket is written again, its jobs are missing.
func (s *Store) WriteHistory(ctx context.Context, at time.Time) error {
	from, to := firstIDOf(at), firstIDOf(at.Add(historyWidth))
	return s.inHistory(ctx, statement("writeHistory"), at, [16]byte(from), [16]byte(to), historyMost)
}

// RollUpHistory makes minutes of what WriteHistory has written.
func (s *Store) RollUpHistory(ctx context.Context) error {
	return s.inHistory(ctx, statement("rollUpHistory"), historyBack+time.Minute)
}

// inHistory runs a statement that may take historyTimeout: Postgres itself ends it, whatever becomes of the connection.
func (s *Store) inHistory(ctx context.Context, sql string, args ...any) error {
	return s.inTx(ctx, "history", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = `+milliseconds(min(historyTimeout, s.cfg.Timeout))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// Begin stores what an operator is about to do. It returns only after the commit.
func (a Admin) Begin(ctx context.Context, e admin.AuditEntry) error {
	_, err := a.store.change(ctx, "audit", statement("auditBegin"),
		uuid(e.AuditID), e.Operator, e.Action, e.TargetType, e.TargetID, e.RequestID, e.Detail)
	return err
}

// End stores what became of it; target is "" unless the action made it.
func (a Admin) End(ctx context.Context, id job.ID, status int, target string) error {
	_, err := a.store.change(ctx, "audit", statement("auditEnd"), uuid(id), status, nullable(target))
	return err
}

// Audit lists what operators did.
func (a Admin) Audit(ctx context.Context, q admin.AuditQuery) (admin.Page[admin.AuditEntry], error) {
	from, to := idRange(job.Query{After: q.After, CreatedAfter: q.From, CreatedBefore: q.To})
	return pageByID(ctx, a.store, q.Limit, to, func(e admin.AuditEntry) job.ID { return e.AuditID },
		func(after job.ID, limit int) (string, []any) {
			return statement("auditList"), []any{nullable(q.Operator), nullable(q.Action), nullable(q.TargetID), q.From, q.To,
				[16]byte(after), [16]byte(from), limit + 1}
		})
}

// Logout ends a session of the console, whose cookies expire at a time at the latest.
func (a Admin) Logout(ctx context.Context, session string, expires time.Time) error {
	return a.store.exec(ctx, "session", statement("logout"), session, expires)
}

// LoggedOut reports whether a session was ended.
func (a Admin) LoggedOut(ctx context.Context, session string) (bool, error) {
	ended, err := queryRowsAs(ctx, a.store, "session", pgx.RowTo[bool], statement("loggedOut"), session)
	return err == nil && ended[0], err
}
