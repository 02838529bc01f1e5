package operator

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

// bulkFilterView is a filter in the names of the list of jobs.
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
	ClientID *job.ID        `json:"client_id"` // whose operation it is; null of an operator's
	Filter   bulkFilterView `json:"filter"`
	Override bool           `json:"override"`
}

func bulkViewOf(b *job.Bulk) bulkView {
	return bulkView{view.BulkOf(b), view.OrNull(b.Owner.ClientID), bulkFilterViewOf(b.Filter), b.Override}
}

// bulkDetailView is an operation with the reasons of the items that it did not change.
type bulkDetailView struct {
	bulkView
	Left []job.BulkReason `json:"left"`
}

func bulkCountViewOf(n job.BulkCount) view.BulkCount[admin.JobSummary] {
	return view.BulkCountOf(n, admin.SummaryOf)
}

func bulkOwner(r *httpkit.Request) job.BulkOwner { return job.BulkOwner{Operator: r.Caller.Operator} }

// bulkDetail is what the audit log keeps of an operation.
func bulkDetail(_ *httpkit.Request, asked job.BulkRequest) any {
	return map[string]any{
		"action": asked.Action, "filter": bulkFilterViewOf(asked.Filter), "dry_run": asked.DryRun, "rate": asked.Rate,
		"override": asked.Override,
	}
}

// beginBulk begins an operation, or as a dry run counts what it would be about.
func (a *API) beginBulk(r *httpkit.Request, asked job.BulkRequest) error {
	asked.Owner, asked.RequestID = bulkOwner(r), r.ID
	if asked.DryRun {
		return httpkit.Respond(r, fiber.StatusOK, bulkCountViewOf)(a.deps.Bulk.Count(r.Ctx, asked))
	}
	b, err := a.deps.Bulk.Begin(r.Ctx, asked)
	if err != nil {
		return err
	}
	r.Made = b.ID
	return r.JSON(fiber.StatusAccepted, view.BulkReceiptOf(b))
}

func (a *API) listBulks(r *httpkit.Request) error {
	return paged(r, bulkViewOf, func(after job.ID, limit int) ([]*job.Bulk, job.ID, error) {
		return a.deps.Bulk.Bulks(r.Ctx, bulkOwner(r), job.BulkQuery{After: after, Limit: limit})
	})
}

func (a *API) listBulkItems(r *httpkit.Request) error {
	return paged(r, view.BulkItemOf, func(after job.ID, limit int) ([]job.BulkItem, job.ID, error) {
		q := job.BulkQuery{After: after, Limit: limit, Result: job.BulkResult(r.Query("result"))}
		return a.deps.Bulk.Items(r.Ctx, bulkOwner(r), r.PathID(), q)
	})
}

func (a *API) getBulk(r *httpkit.Request) error {
	b, err := a.deps.Bulk.Bulk(r.Ctx, bulkOwner(r), r.PathID())
	if err != nil {
		return err
	}
	left, err := a.deps.Store.BulkLeft(r.Ctx, r.PathID())
	return ok(r, bulkDetailView{bulkViewOf(b), left}, err)
}

func (a *API) abortBulk(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, bulkViewOf)(a.deps.Bulk.Abort(r.Ctx, bulkOwner(r), r.PathID()))
}
