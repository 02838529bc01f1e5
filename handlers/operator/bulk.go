package operator

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
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
	From          *job.Time `json:"from,omitempty"`
	To            *job.Time `json:"to,omitempty"`
}

func bulkFilterViewOf(f job.BulkFilter) bulkFilterView {
	return bulkFilterView{
		All: f.All, State: f.State, Type: f.Type, Kind: f.WorkKind, ClientID: f.ClientID, BatchID: f.BatchID,
		CorrelationID: f.CorrelationID, FailureCode: f.FailureCode, From: f.CreatedAfter, To: f.CreatedBefore,
	}
}

type bulkView struct {
	BulkID     job.ID         `json:"bulk_id"`
	ClientID   *job.ID        `json:"client_id"` // whose operation it is; null of an operator's
	Operator   *string        `json:"operator"`  // null of a client's
	Action     job.BulkAction `json:"action"`
	Filter     bulkFilterView `json:"filter"`
	Rate       int            `json:"rate"`
	Override   bool           `json:"override"`
	State      job.BulkState  `json:"state"`
	Total      int            `json:"total"` // so far, until all are gathered
	More       bool           `json:"more"`
	Done       int            `json:"done"`
	Succeeded  int            `json:"succeeded"`
	Skipped    int            `json:"skipped"`
	Failed     int            `json:"failed"`
	CreatedAt  job.Time       `json:"created_at"`
	StartedAt  *job.Time      `json:"started_at"`
	FinishedAt *job.Time      `json:"finished_at"`
}

func bulkViewOf(b *job.Bulk) bulkView {
	v := bulkView{
		BulkID: b.ID, Action: b.Action, Filter: bulkFilterViewOf(b.Filter), Rate: b.Rate, Override: b.Override, State: b.State(),
		Total: b.Total, More: b.More, Done: b.Done, Succeeded: b.Succeeded, Skipped: b.Skipped, Failed: b.Failed,
		CreatedAt: job.Time(b.CreatedAt), StartedAt: job.TimeOf(b.StartedAt), FinishedAt: job.TimeOf(b.FinishedAt),
	}
	if b.Owner.ClientID.IsZero() {
		v.Operator = &b.Owner.Operator
	} else {
		v.ClientID = &b.Owner.ClientID
	}
	return v
}

type bulkItemView struct {
	JobID  job.ID         `json:"job_id"`
	Result job.BulkResult `json:"result"`
	Code   *job.Code      `json:"code"`
	Detail *string        `json:"detail"`
	At     *job.Time      `json:"at"`
}

func bulkItemViewOf(i job.BulkItem) bulkItemView {
	v := bulkItemView{JobID: i.JobID, Result: i.Result, At: job.TimeOf(i.At)}
	if i.Code != "" {
		v.Code = &i.Code
	}
	if i.Detail != "" {
		v.Detail = &i.Detail
	}
	return v
}

func (c *call) bulkOwner() job.BulkOwner { return job.BulkOwner{Operator: c.operator.Name} }

func (c *call) bulkRequest() (job.BulkRequest, error) {
	r, err := decode.Bulk(c.body, true)
	r.Owner, r.RequestID = c.bulkOwner(), c.id
	return r, err
}

// bulkDetail is what the audit log keeps of an operation.
func bulkDetail(c *call) (json.RawMessage, error) {
	r, err := c.bulkRequest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"action": r.Action, "filter": bulkFilterViewOf(r.Filter), "dry_run": r.DryRun, "rate": r.Rate, "override": r.Override,
	})
}

// beginBulk begins an operation, or as a dry run counts what it would be about.
func (a *API) beginBulk(c *call) (answer, error) {
	r, err := c.bulkRequest()
	if err != nil {
		return answer{}, err
	}
	if r.DryRun {
		count, err := a.deps.Bulk.Count(c.Context(), r)
		if err != nil {
			return answer{}, err
		}
		sample := make([]admin.JobSummary, len(count.Sample))
		for i, j := range count.Sample {
			sample[i] = admin.SummaryOf(j)
		}
		return asJSON(http.StatusOK, struct {
			Count  int                `json:"count"`
			More   bool               `json:"more"`
			Sample []admin.JobSummary `json:"sample"`
		}{count.Count, count.More, sample})
	}
	b, err := a.deps.Bulk.Begin(c.Context(), r)
	if err != nil {
		return answer{}, err
	}
	c.made = b.ID.String()
	return asJSON(http.StatusAccepted, struct {
		BulkID    job.ID        `json:"bulk_id"`
		State     job.BulkState `json:"state"`
		CreatedAt job.Time      `json:"created_at"`
	}{b.ID, b.State(), job.Time(b.CreatedAt)})
}

func (a *API) listBulks(c *call) (answer, error) {
	q, err := c.bulkQuery()
	if err != nil {
		return answer{}, err
	}
	all, next, err := a.deps.Bulk.Bulks(c.Context(), c.bulkOwner(), q)
	if err != nil {
		return answer{}, err
	}
	views := make([]bulkView, len(all))
	for i, b := range all {
		views[i] = bulkViewOf(b)
	}
	return c.page(views, q.Limit, next.IsZero(), next[:])
}

func (c *call) bulkQuery() (job.BulkQuery, error) {
	q := job.BulkQuery{Limit: query.Limit(c.param("limit"), query.DefaultLimit), Result: job.BulkResult(c.param("result"))}
	position, err := c.openCursor(len(job.ID{}))
	copy(q.After[:], position)
	return q, err
}

func (a *API) listBulkItems(c *call) (answer, error) {
	id, err := c.pathID(job.CodeBulkNotFound, "bulk operation")
	if err != nil {
		return answer{}, err
	}
	q, err := c.bulkQuery()
	if err != nil {
		return answer{}, err
	}
	items, next, err := a.deps.Bulk.Items(c.Context(), c.bulkOwner(), id, q)
	if err != nil {
		return answer{}, err
	}
	views := make([]bulkItemView, len(items))
	for i, item := range items {
		views[i] = bulkItemViewOf(item)
	}
	return c.page(views, q.Limit, next.IsZero(), next[:])
}

// ofBulk answers with the operation that the path names, after do.
func ofBulk(do func(context.Context, job.BulkOwner, job.ID) (*job.Bulk, error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		id, err := c.pathID(job.CodeBulkNotFound, "bulk operation")
		if err != nil {
			return answer{}, err
		}
		b, err := do(c.Context(), c.bulkOwner(), id)
		if err != nil {
			return answer{}, err
		}
		return asJSON(http.StatusOK, bulkViewOf(b))
	}
}
