package operator

import (
	"context"
	"net/http"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

// BulkOperations is operations on many jobs. Operators see and abort those of clients, too.
type BulkOperations interface {
	Begin(ctx context.Context, r job.BulkRequest) (*job.Bulk, error)
	Count(ctx context.Context, r job.BulkRequest) (job.BulkCount, error)
	Bulk(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error)
	Bulks(ctx context.Context, owner job.BulkOwner, q job.BulkQuery) ([]*job.Bulk, job.ID, error)
	Items(ctx context.Context, owner job.BulkOwner, id job.ID, q job.BulkQuery) ([]job.BulkItem, job.ID, error)
	Abort(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error)
}

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

func (c *call) bulkOwner() job.BulkOwner { return job.BulkOwner{Operator: c.operator.Name} }

// bulkDetail is what the audit log keeps of an operation.
func bulkDetail(_ *call, r job.BulkRequest) any {
	return map[string]any{
		"action": r.Action, "filter": bulkFilterViewOf(r.Filter), "dry_run": r.DryRun, "rate": r.Rate, "override": r.Override,
	}
}

// beginBulk begins an operation, or as a dry run counts what it would be about.
func (a *API) beginBulk(c *call, r job.BulkRequest) (answer, error) {
	r.Owner, r.RequestID = c.bulkOwner(), c.requestID
	if r.DryRun {
		return render(http.StatusOK, bulkCountViewOf)(a.deps.Bulk.Count(c.Context(), r))
	}
	b, err := a.deps.Bulk.Begin(c.Context(), r)
	if err != nil {
		return answer{}, err
	}
	c.made = b.ID.String()
	return answer{status: http.StatusAccepted, value: view.BulkReceiptOf(b)}, nil
}

func (a *API) listBulks(c *call) (answer, error) {
	return paged(c, bulkViewOf, func(after job.ID, limit int) ([]*job.Bulk, job.ID, error) {
		return a.deps.Bulk.Bulks(c.Context(), c.bulkOwner(), job.BulkQuery{After: after, Limit: limit})
	})
}

func (a *API) listBulkItems(c *call) (answer, error) {
	return paged(c, view.BulkItemOf, func(after job.ID, limit int) ([]job.BulkItem, job.ID, error) {
		q := job.BulkQuery{After: after, Limit: limit, Result: job.BulkResult(c.param("result"))}
		return a.deps.Bulk.Items(c.Context(), c.bulkOwner(), c.subject, q)
	})
}

func (a *API) getBulk(c *call) (answer, error) {
	b, err := a.deps.Bulk.Bulk(c.Context(), c.bulkOwner(), c.subject)
	if err != nil {
		return answer{}, err
	}
	left, err := a.deps.Reader.BulkLeft(c.Context(), c.subject)
	return ok(bulkDetailView{bulkViewOf(b), left}, err)
}

func (a *API) abortBulk(c *call) (answer, error) {
	return render(http.StatusOK, bulkViewOf)(a.deps.Bulk.Abort(c.Context(), c.bulkOwner(), c.subject))
}
