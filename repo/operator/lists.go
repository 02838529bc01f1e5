package operator

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/deliveries"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

const (
	maxGrouped = 100_000
	maxGroups  = 1000

	maxReasons = 100

	maxShownHeld = 100  // jobs per worker
	maxShownKeys = 1000 // keys per client, including keys that are no longer valid
)

// Workers lists worker processes.
func (a Admin) Workers(ctx context.Context, r admin.Range) (admin.Page[admin.Worker], error) {
	all, next, err := pg.QueryPage(ctx, a.store.db, r.Limit, func(w admin.Worker) job.ID { return w.WorkerID }, pg.ScanJSON[admin.Worker],
		statement("adminWorkers"), pg.Nullable(r.State), [16]byte(pg.AfterOf(r.After)), r.Limit+1, maxShownHeld)
	return admin.Page[admin.Worker]{Data: all, Next: next}, err
}

// Queues counts waiting jobs by client and kind.
func (a Admin) Queues(ctx context.Context, r admin.Range) (admin.Bounded[admin.Queue], error) {
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[admin.Bounded[admin.Queue]], statement("adminQueues"),
		pg.UUID(r.ClientID), pg.Nullable(string(r.WorkKind)), maxGrouped, maxGroups)
}

// Failures groups failed jobs by code, kind and detail. Without r.From, it reads the last 24 hours.
func (a Admin) Failures(ctx context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error) {
	from, to := time.Now().Add(-24*time.Hour), farFuture
	if r.From != nil {
		from = *r.From
	}
	if r.To != nil {
		to = *r.To
	}
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[admin.Bounded[admin.FailureGroup]], statement("adminFailures"),
		pg.UUID(r.ClientID), pg.Nullable(string(r.WorkKind)), pg.Nullable(string(r.Code)), from, to, maxGrouped, maxGroups)
}

// Clients lists clients with their usage. The caller adds the limits.
func (a Admin) Clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	all, next, err := pg.QueryPage(ctx, a.store.db, r.Limit, func(c admin.Client) job.ID { return c.ClientID }, pg.ScanJSON[admin.Client],
		statement("adminClients"), pg.UUID(r.ClientID), r.Named, [16]byte(pg.AfterOf(r.After)), maxGrouped, r.Limit+1)
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
	keys, err := pg.Query(ctx, a.store.db, pg.ScanJSON[admin.Key], statement("adminKeys"), pg.UUID(id), maxShownKeys)
	return &admin.ClientDetail{Client: found.Data[0], Keys: keys}, err
}

// Webhooks lists webhooks.
func (a Admin) Webhooks(ctx context.Context, r admin.Range) (admin.Page[admin.Webhook], error) {
	list := statement("anyWebhooks")
	switch {
	case !r.WebhookID.IsZero():
		list = statement("oneWebhook")
	case !r.ClientID.IsZero():
		list = statement("clientsWebhooks")
	}
	return pageByID(ctx, a.store, r.Limit, pg.AfterOf(r.After), func(w admin.Webhook) job.ID { return w.WebhookID },
		func(after job.ID, limit int) (string, []any) {
			return list, []any{pg.UUID(r.WebhookID), pg.UUID(r.ClientID), r.Enabled, [16]byte(after), limit + 1}
		})
}

// Webhook reads a webhook.
func (a Admin) Webhook(ctx context.Context, id job.ID) (*admin.Webhook, error) {
	found, err := a.Webhooks(ctx, admin.Range{WebhookID: id, Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(found.Data) == 0:
		return nil, deliveries.ErrWebhookNotFound
	}
	return &found.Data[0], nil
}

// Deliveries lists deliveries of all clients, of a webhook or of a job.
func (a Admin) Deliveries(ctx context.Context, r admin.Range) (admin.Page[admin.Delivery], error) {
	list, owner := statement("anyDeliveries"), job.ID{}
	switch {
	case !r.WebhookID.IsZero():
		list, owner = statement("webhookDeliveries"), r.WebhookID
	case !r.JobID.IsZero():
		list, owner = statement("jobDeliveries"), r.JobID
	}
	from, to := pg.IDRange(job.Query{After: r.After, CreatedAfter: r.From, CreatedBefore: r.To})
	return pageByID(ctx, a.store, r.Limit, to, func(d admin.Delivery) job.ID { return d.DeliveryID },
		func(after job.ID, limit int) (string, []any) {
			return list, []any{pg.UUID(r.ClientID), pg.UUID(owner), pg.Nullable(r.State), pg.Nullable(r.EventName), r.From, r.To,
				[16]byte(after), [16]byte(from), limit + 1}
		})
}

// Batches lists batches of all clients.
func (a Admin) Batches(ctx context.Context, r admin.Range) (admin.Page[admin.Batch], error) {
	from, to := pg.IDRange(job.Query{After: r.After, CreatedAfter: r.From, CreatedBefore: r.To})
	return pageByID(ctx, a.store, r.Limit, to, func(b admin.Batch) job.ID { return b.BatchID },
		func(after job.ID, limit int) (string, []any) {
			return statement("adminBatches"), []any{pg.UUID(r.ClientID), r.From, r.To, [16]byte(after), [16]byte(from), limit + 1}
		})
}

// Delivery reads a delivery with its attempts.
func (a Admin) Delivery(ctx context.Context, id job.ID) (*admin.LoggedDelivery, error) {
	d, err := pg.QueryOne(ctx, a.store.db, deliveries.ErrNotFound, pg.ScanJSON[admin.LoggedDelivery], statement("adminDelivery"),
		pg.UUID(id), deliveries.MaxAttemptsKept)
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

func showText(r *admin.Response) {
	body, err := base64.StdEncoding.DecodeString(r.BodyBase64)
	if err == nil && utf8.Valid(body) && !slices.Contains(body, 0) {
		text := string(body)
		r.Body, r.BodyBase64 = &text, ""
	}
}

// Batch reads a batch with the counts of its jobs.
func (a Admin) Batch(ctx context.Context, id job.ID) (*admin.Batch, error) {
	b, err := pg.QueryOne(ctx, a.store.db, jobs.ErrBatchNotFound, pg.ScanJSON[admin.Batch], statement("adminBatch"), pg.UUID(id))
	if err != nil {
		return nil, err
	}
	for _, state := range job.States {
		if name := strings.ToLower(string(state)); b.Counts[name] == 0 {
			b.Counts[name] = 0
		}
	}
	return &b, nil
}

// BulkLeft counts the items that a bulk operation did not change, by reason.
func (a Admin) BulkLeft(ctx context.Context, bulk job.ID) ([]job.BulkReason, error) {
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[[]job.BulkReason], statement("adminBulkLeft"), pg.UUID(bulk), maxReasons)
}

// Find returns everything that has the id, such as jobs and batches.
func (a Admin) Find(ctx context.Context, id job.ID) ([]admin.Found, error) {
	return pg.QueryOne(ctx, a.store.db, nil, pg.ScanJSON[[]admin.Found], statement("adminFind"), pg.UUID(id))
}

// System reads the state of the whole service. The caller adds the version and the limits.
func (a Admin) System(ctx context.Context) (*admin.System, error) {
	system, err := pg.QueryOne(ctx, a.store.db, errNoSchema, pg.ScanJSON[admin.System], statement("adminSystem"),
		MaxCount, [16]byte{}, [16]byte{}, deliveries.MaxLookedEndpoints)
	return &system, err
}

var errNoSchema = job.Errorf(job.CodeStorageUnavailable, "The database has no schema yet.")

// maxMarked limits the number of running or assigned jobs that Mark reads.
const maxMarked = 10_000

// Mark returns a text by which callers detect changes. The text is different after most changes that operators can see.
func (a Admin) Mark(ctx context.Context) (string, error) {
	return pg.QueryValue[string](ctx, a.store.db, statement("adminMark"), maxMarked)
}

// Situation returns the current state of the service.
func (a Admin) Situation(ctx context.Context) (admin.Situation, error) {
	return pg.QueryOne(ctx, a.store.db, errNoSchema, pg.ScanJSON[admin.Situation], statement("adminSituation"),
		MaxCount, [16]byte{}, [16]byte{}, deliveries.MaxLookedEndpoints, admin.FailingAfter)
}
