package repo

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	listAllWorkers  = statement("adminWorkers")
	groupQueues     = statement("adminQueues")
	groupFailures   = statement("adminFailures")
	listAllClients  = statement("adminClients")
	listKeysOf      = statement("adminKeys")
	anyWebhooks     = statement("adminWebhooks", "{{range}}", "webhook_id < @after", "{{sort}}", "webhook_id DESC")
	oneWebhook      = statement("adminWebhooks", "{{range}}", "webhook_id = @webhook AND webhook_id <= @after", "{{sort}}", "webhook_id DESC")
	clientsWebhooks = statement("adminWebhooks", "{{range}}", "(client_id, webhook_id) < (@client::uuid, @after)"+
		" AND (client_id, webhook_id) >= (@client::uuid, '00000000-0000-0000-0000-000000000000'::uuid) AND deleted_at IS NULL",
		"{{sort}}", "client_id DESC, webhook_id DESC")
	anyDeliveries     = statement("adminDeliveries", "{{range}}", "delivery_id < @after", "{{sort}}", "delivery_id DESC")
	webhookDeliveries = statement("adminDeliveries", "{{range}}", ownersDeliveries("webhook_id"),
		"{{sort}}", "webhook_id DESC, delivery_id DESC")
	jobDeliveries   = statement("adminDeliveries", "{{range}}", ownersDeliveries("job_id"), "{{sort}}", "job_id DESC, delivery_id DESC")
	readAnyDelivery = statement("adminDelivery")
	listAllBatches  = statement("adminBatches")
	readAnyBatch    = statement("adminBatch")
	readSystem      = statement("adminSystem")
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

// pageOf cuts what was read with limit+1 down to a page.
func pageOf[T any](all []T, err error, limit int, id func(T) job.ID) (admin.Page[T], error) {
	p := admin.Page[T]{Data: all}
	if len(all) > limit {
		p.Data = all[:limit]
		p.Next = id(all[limit-1])
	}
	return p, err
}

// Workers lists worker processes.
func (a Admin) Workers(ctx context.Context, r admin.Range) (admin.Page[admin.Worker], error) {
	all, err := queryRows(ctx, a.store, scanJSON[admin.Worker], listAllWorkers,
		nullable(r.State), [16]byte(afterOf(r.After)), r.Limit+1, maxShownHeld)
	return pageOf(all, err, r.Limit, func(w admin.Worker) job.ID { return w.WorkerID })
}

// Queues counts what waits by client and kind.
func (a Admin) Queues(ctx context.Context, r admin.Range) (admin.Bounded[admin.Queue], error) {
	queues, _, err := queryFirst(ctx, a.store, scanJSON[admin.Bounded[admin.Queue]], groupQueues,
		uuid(r.ClientID), nullable(string(r.WorkKind)), maxGrouped, maxGroups)
	return queues, err
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
	groups, _, err := queryFirst(ctx, a.store, scanJSON[admin.Bounded[admin.FailureGroup]], groupFailures,
		uuid(r.ClientID), nullable(string(r.WorkKind)), nullable(string(r.Code)), from, to, maxGrouped, maxGroups)
	return groups, err
}

// Clients lists clients with their use of limits; the limits are not known here.
func (a Admin) Clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	all, err := queryRows(ctx, a.store, scanJSON[admin.Client], listAllClients,
		uuid(r.ClientID), [16]byte(afterOf(r.After)), maxGrouped, r.Limit+1)
	return pageOf(all, err, r.Limit, func(c admin.Client) job.ID { return c.ClientID })
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
	keys, err := queryRows(ctx, a.store, scanJSON[admin.Key], listKeysOf, uuid(id), maxShownKeys)
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
	return pageThrough(ctx, a.store, r.Limit, afterOf(r.After), func(w admin.Webhook) job.ID { return w.WebhookID },
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
	return pageThrough(ctx, a.store, r.Limit, to, func(d admin.Delivery) job.ID { return d.DeliveryID },
		func(after job.ID, limit int) (string, []any) {
			return list, []any{uuid(r.ClientID), uuid(owner), nullable(r.State), nullable(r.EventName), r.From, r.To,
				[16]byte(after), [16]byte(from), limit + 1}
		})
}

// Batches lists batches of all clients.
func (a Admin) Batches(ctx context.Context, r admin.Range) (admin.Page[admin.Batch], error) {
	from, to := idRange(job.Query{After: r.After, CreatedAfter: r.From, CreatedBefore: r.To})
	return pageThrough(ctx, a.store, r.Limit, to, func(b admin.Batch) job.ID { return b.BatchID },
		func(after job.ID, limit int) (string, []any) {
			return listAllBatches, []any{uuid(r.ClientID), r.From, r.To, [16]byte(after), [16]byte(from), limit + 1}
		})
}

// pageThrough looks for the entries of a page in portions of maxLooked, for a bounded time.
func pageThrough[T any](
	ctx context.Context, s *Store, limit int, after job.ID, id func(T) job.ID, portion func(after job.ID, limit int) (string, []any),
) (admin.Page[T], error) {
	page, began := admin.Page[T]{Data: []T{}}, time.Now()
	for {
		sql, args := portion(after, limit-len(page.Data))
		rows, err := queryRows(ctx, s, func(row pgx.CollectableRow) (l listed[T], err error) {
			var encoded []byte
			if err := row.Scan(&l.last, &l.wanted, &encoded); err != nil {
				return l, err
			}
			return l, json.Unmarshal(encoded, &l.item)
		}, sql, args...)
		if err != nil {
			return admin.Page[T]{}, err
		}
		found, next := onePage(rows, limit-len(page.Data), id)
		page.Data, page.Next, after = append(page.Data, found...), next, next
		if next.IsZero() || len(page.Data) == limit || time.Since(began) > searchFor {
			return page, nil
		}
	}
}

// Delivery reads a delivery with its attempts.
func (a Admin) Delivery(ctx context.Context, id job.ID) (*admin.LoggedDelivery, error) {
	d, found, err := queryFirst(ctx, a.store, scanJSON[admin.LoggedDelivery], readAnyDelivery, uuid(id), maxAttemptsKept)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errDeliveryNotFound
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
	b, found, err := queryFirst(ctx, a.store, scanJSON[admin.Batch], readAnyBatch, uuid(id))
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errBatchNotFound
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
	system, found, err := queryFirst(ctx, a.store, scanJSON[admin.System], readSystem, MaxCount, [16]byte{}, [16]byte{}, maxLookedEndpoints)
	if err == nil && !found {
		err = job.Errorf(job.CodeStorageUnavailable, "The database has no schema yet.")
	}
	return &system, err
}
