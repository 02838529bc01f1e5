package operator

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

func queryOf(r *httpkit.Request) admin.JobQuery {
	return admin.JobQuery{
		ClientID: query.IDOf(r.Query("client_id")), BatchID: query.IDOf(r.Query("batch_id")),
		ScheduleID: query.IDOf(r.Query("schedule_id")), State: job.State(r.Query("state")),
		Type: job.Type(r.Query("type")), WorkKind: job.Kind(r.Query("kind")), CorrelationID: r.Query("correlation_id"),
		FailureCode: job.Code(r.Query("failure_code")), From: query.TimeOf(r.Query("from")), To: query.TimeOf(r.Query("to")),
	}
}

// placeBytes is the length of a position in a list of jobs. A position consists of a time, in microseconds since 1970, and a job id.
const placeBytes = 8 + len(job.ID{})

func bytesOf(p admin.Place) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(p.At.UnixMicro())), p.ID[:]...)
}

func placeOf(position []byte) admin.Place {
	return admin.Place{At: time.UnixMicro(int64(binary.BigEndian.Uint64(position))).UTC(), ID: job.ID(position[8:])}
}

func (a *API) listJobs(r *httpkit.Request) error {
	read := func(after []byte, limit int) (jobs []admin.JobSummary, next []byte, err error) {
		q := queryOf(r)
		if q.Limit = limit; after != nil {
			q.After = placeOf(after)
		}
		page, err := a.store.Jobs(r.Ctx, q)
		for i := range page.Jobs {
			j := &page.Jobs[i]
			j.Progress = a.progressOf(r.Ctx, j.JobID, j.State, j.Attempt)
		}
		if !page.Next.IsZero() {
			next = bytesOf(page.Next)
		}
		return page.Jobs, next, err
	}
	return httpkit.PagedAt(r, scope(r), placeBytes, httpkit.As, read)
}

func (a *API) countJobs(r *httpkit.Request) error {
	v, err := a.store.Count(r.Ctx, queryOf(r))
	return ok(r, v, err)
}

func (a *API) getJob(r *httpkit.Request) error {
	j, err := a.store.Job(r.Ctx, r.PathID())
	if err != nil {
		return err
	}
	j.Progress = a.progressOf(r.Ctx, j.JobID, j.State, j.Attempt)
	if w := j.Waiting; w != nil && a.deps.Stopped != nil {
		w.Reason = a.deps.Stopped().Reason(w.Reason, j.WorkKind, j.ClientID)
		w.Detail = w.Reason.Text()
	}
	if j.TraceID != nil && a.cfg.TraceURL != "" {
		j.TraceURL = new(strings.ReplaceAll(a.cfg.TraceURL, TraceIDMark, *j.TraceID))
	}
	return ok(r, j, nil)
}

func (a *API) progressOf(ctx context.Context, id job.ID, state job.State, attempt int) *job.Progress {
	if state != job.Running {
		return nil
	}
	return a.deps.Progress(ctx, id, attempt)
}

func owned[T any](a *API, r *httpkit.Request, do func(ctx context.Context, client, id job.ID) (T, error)) (v T, err error) {
	client, err := a.store.OwnerOf(r.Ctx, r.PathID())
	if err != nil {
		return v, err
	}
	return do(r.Ctx, client, r.PathID())
}

func (a *API) cancelJob(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, views.Retried)(owned(a, r, a.deps.Jobs.Cancel))
}

func (a *API) retryJob(r *httpkit.Request, override bool) error {
	retry := a.deps.Jobs.Retry
	if override {
		retry = a.deps.Jobs.RetryAnyway
	}
	return httpkit.Respond(r, fiber.StatusAccepted, views.Retried)(owned(a, r, retry))
}

func retryDetail(_ *httpkit.Request, override bool) any { return map[string]bool{"override": override} }

func (a *API) deleteJob(r *httpkit.Request) error {
	_, err := owned(a, r, func(ctx context.Context, client, id job.ID) (none struct{}, err error) {
		return none, a.deps.Jobs.Delete(ctx, client, id)
	})
	return err
}

func (a *API) submitJob(r *httpkit.Request, asked decode.ForClient) error {
	key, err := r.IdempotencyKey()
	if err != nil {
		return err
	}
	if _, err := a.store.Client(r.Ctx, asked.ClientID); err != nil {
		return err
	}
	request, err := decode.Job(asked.Request, key, a.DecodeLimits())
	if err != nil {
		return within("/job", err)
	}
	request.ClientID, request.RequestID, request.ReceivedAt = asked.ClientID, r.ID, time.Now()
	if request.Language == "" {
		request.Language = job.Languages[0]
	}
	receipt, err := a.deps.Jobs.Submit(r.Ctx, request)
	if err != nil {
		return within("/job", err)
	}
	r.Made = receipt.JobID
	return r.JSON(fiber.StatusAccepted, api.JobReceipt{
		JobID: receipt.JobID, State: receipt.State, CreatedAt: job.Time(receipt.CreatedAt), Warnings: pointInto("/job", request.Warnings),
	})
}

func within(member string, err error) error {
	var known *job.Error
	if !errors.As(err, &known) || len(known.Violations) == 0 {
		return err
	}
	moved := *known
	moved.Violations = pointInto(member, known.Violations)
	return &moved
}

func pointInto(member string, violations []job.Violation) []job.Violation {
	moved := make([]job.Violation, len(violations))
	for i, v := range violations {
		if v.Parameter == "" {
			v.Pointer = member + v.Pointer
		}
		moved[i] = v
	}
	return moved
}

// getResult sends the result of a job as a download. The response omits the media type that the client chose, so browsers cannot run the
// result as a page or script of this origin.
func (a *API) getResult(r *httpkit.Request) error {
	result, err := owned(a, r, a.deps.Jobs.Result)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderContentType, fiber.MIMEOctetStream)
	r.Set(fiber.HeaderContentDisposition, `attachment; filename="`+r.PathID().String()+`"`)
	return r.Send(result.Body)
}

func (a *API) enableWebhook(enabled bool) httpkit.Handler {
	return func(r *httpkit.Request) error {
		webhook, err := a.store.Webhook(r.Ctx, r.PathID())
		if err != nil {
			return err
		}
		if _, err := a.deps.Webhooks.Update(r.Ctx, webhook.ClientID, r.PathID(), job.WebhookPatch{Enabled: &enabled}); err != nil {
			return err
		}
		webhook, err = a.store.Webhook(r.Ctx, r.PathID())
		return ok(r, webhook, err)
	}
}

func (a *API) testWebhook(r *httpkit.Request) error {
	webhook, err := a.store.Webhook(r.Ctx, r.PathID())
	if err != nil {
		return err
	}
	return a.accepted(r)(a.deps.Webhooks.Test(r.Ctx, webhook.ClientID, r.PathID()))
}

func (a *API) redeliver(r *httpkit.Request) error {
	d, err := a.store.Delivery(r.Ctx, r.PathID())
	if err != nil {
		return err
	}
	var owner job.DeliveryOwner
	switch {
	case d.WebhookID != nil:
		owner.WebhookID = *d.WebhookID
	case d.JobID != nil:
		owner.JobID = *d.JobID
	}
	return a.accepted(r)(a.deps.Webhooks.Redeliver(r.Ctx, d.ClientID, owner, r.PathID()))
}

func (a *API) accepted(r *httpkit.Request) func(*job.Delivery, error) error {
	return func(sent *job.Delivery, err error) error {
		if err != nil {
			return err
		}
		r.Made = sent.ID
		return httpkit.Respond(r, fiber.StatusAccepted, httpkit.As[*admin.LoggedDelivery])(a.store.Delivery(r.Ctx, sent.ID))
	}
}

type bulkFilterView struct {
	All           bool      `json:"all,omitempty"`
	State         job.State `json:"state,omitempty"`
	Type          job.Type  `json:"type,omitempty"`
	Kind          job.Kind  `json:"kind,omitempty"`
	ClientID      job.ID    `json:"client_id,omitzero"`
	BatchID       job.ID    `json:"batch_id,omitzero"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	FailureCode   job.Code  `json:"failure_code,omitempty"`
	FailureDetail string    `json:"failure_detail,omitempty"`
	From          *job.Time `json:"from,omitempty"`
	To            *job.Time `json:"to,omitempty"`
}

func bulkFilterViewOf(f job.BulkFilter) bulkFilterView {
	return bulkFilterView{
		All: f.All, State: f.State, Type: f.Type, Kind: f.WorkKind, ClientID: f.ClientID, BatchID: f.BatchID,
		CorrelationID: f.CorrelationID, FailureCode: f.FailureCode, FailureDetail: f.FailureDetail, From: f.CreatedAfter, To: f.CreatedBefore,
	}
}

type bulkView struct {
	view.Bulk
	ClientID *job.ID        `json:"client_id"` // owner; null if an operator started it
	Filter   bulkFilterView `json:"filter"`
	Override bool           `json:"override"`
}

func bulkViewOf(b *job.Bulk) bulkView {
	return bulkView{view.BulkOf(b), view.OrNull(b.Owner.ClientID), bulkFilterViewOf(b.Filter), b.Override}
}

type bulkDetailView struct {
	bulkView
	Left []job.BulkReason `json:"left"` // counts the jobs that did not change, by reason
}

func bulkCountViewOf(n job.BulkCount) view.BulkCount[admin.JobSummary] {
	return view.BulkCountOf(n, admin.SummaryOf)
}

func bulkDetail(_ *httpkit.Request, asked job.BulkRequest) any {
	return map[string]any{
		"action": asked.Action, "filter": bulkFilterViewOf(asked.Filter), "dry_run": asked.DryRun, "rate": asked.Rate,
		"override": asked.Override,
	}
}

func (a *API) beginBulk(r *httpkit.Request, asked job.BulkRequest) error {
	asked.Owner, asked.RequestID = job.BulkOwner{Operator: r.Caller.Operator}, r.ID
	if asked.DryRun {
		return httpkit.Respond(r, fiber.StatusOK, bulkCountViewOf)(a.deps.Bulk.Count(r.Ctx, asked))
	}
	b, err := a.deps.Bulk.Begin(r.Ctx, asked)
	if err != nil {
		return err
	}
	r.Made = b.ID
	return r.JSON(fiber.StatusAccepted, views.BulkReceipt(b))
}

func (a *API) listBulks(r *httpkit.Request) error {
	return paged(r, bulkViewOf, func(after job.ID, limit int) ([]*job.Bulk, job.ID, error) {
		return a.deps.Bulk.Bulks(r.Ctx, job.ID{}, job.BulkQuery{After: after, Limit: limit})
	})
}

func (a *API) listBulkItems(r *httpkit.Request) error {
	return paged(r, views.BulkItem, func(after job.ID, limit int) ([]job.BulkItem, job.ID, error) {
		q := job.BulkQuery{After: after, Limit: limit, Result: job.BulkResult(r.Query("result"))}
		return a.deps.Bulk.BulkItems(r.Ctx, job.ID{}, r.PathID(), q)
	})
}

func (a *API) getBulk(r *httpkit.Request) error {
	b, err := a.deps.Bulk.Bulk(r.Ctx, job.ID{}, r.PathID())
	if err != nil {
		return err
	}
	left, err := a.store.BulkLeft(r.Ctx, r.PathID())
	return ok(r, bulkDetailView{bulkViewOf(b), left}, err)
}

func (a *API) abortBulk(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, bulkViewOf)(a.deps.Bulk.Abort(r.Ctx, job.ID{}, r.PathID()))
}
