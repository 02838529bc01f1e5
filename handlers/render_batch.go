package handlers

import "github.com/forgerun/forgerun/job"

// batchReceiptView is the answer to a batch request.
type batchReceiptView struct {
	BatchID   job.ID            `json:"batch_id"`
	CreatedAt job.Time          `json:"created_at"`
	Jobs      []itemReceiptView `json:"jobs"`
}

// itemReceiptView has a job, or says why the item was refused.
type itemReceiptView struct {
	ItemID  string       `json:"item_id"`
	JobID   *job.ID      `json:"job_id,omitempty"`
	State   job.State    `json:"state,omitempty"`
	Failure *refusalView `json:"failure,omitempty"`
}

// refusalView is what an answer of its own would have said of the item.
type refusalView struct {
	Type            string          `json:"type"`
	Title           string          `json:"title"`
	Status          int             `json:"status"`
	Detail          string          `json:"detail"`
	Code            job.Code        `json:"code"`
	Violations      []job.Violation `json:"violations,omitempty"`
	Retryable       bool            `json:"retryable"`
	ProcessingStage job.Stage       `json:"processingStage"`
}

func (s *Server) batchReceiptOf(b *job.Batch) batchReceiptView {
	v := batchReceiptView{BatchID: b.ID, CreatedAt: job.Time(b.CreatedAt), Jobs: make([]itemReceiptView, len(b.Items))}
	for i, item := range b.Items {
		v.Jobs[i] = itemReceiptView{ItemID: item.ItemID, JobID: idOrNull(item.JobID), State: item.State, Failure: s.refusalViewOf(item.Refusal)}
	}
	return v
}

func (s *Server) refusalViewOf(r *job.Refusal) *refusalView {
	if r == nil {
		return nil
	}
	p := s.problem(r.Code, r.Detail)
	return &refusalView{
		Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Code: p.Code,
		Violations: r.Violations, ProcessingStage: job.StageValidation,
	}
}

type batchView struct {
	BatchID       job.ID            `json:"batch_id"`
	Status        job.Status        `json:"status"`
	CreatedAt     job.Time          `json:"created_at"`
	CompletedAt   *job.Time         `json:"completed_at"`
	Total         int               `json:"total"`
	Counts        countsView        `json:"counts"`
	Outcome       *batchOutcomeView `json:"outcome"` // null until all jobs were final for the first time
	CorrelationID *string           `json:"correlation_id"`
	Links         batchLinksView    `json:"links"`
}

// countsView counts a batch's items by their state now. Deleted jobs are in
// none of them.
type countsView struct {
	Created   int `json:"created"`
	Queued    int `json:"queued"`
	Assigned  int `json:"assigned"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Canceled  int `json:"canceled"`
	Refused   int `json:"refused"`
}

type batchOutcomeView struct {
	Status      job.Status        `json:"status"`
	Succeeded   int               `json:"succeeded"`
	Failed      int               `json:"failed"`
	Canceled    int               `json:"canceled"`
	FailedItems []itemFailureView `json:"failed_items"` // at most job.MaxFailedItems
}

type itemFailureView struct {
	ItemID          string     `json:"item_id"`
	JobID           *job.ID    `json:"job_id"` // null for a refused item
	Status          job.Status `json:"status"`
	Detail          string     `json:"detail"`
	Retryable       bool       `json:"retryable"`
	ProcessingStage job.Stage  `json:"processing_stage"`
}

type batchLinksView struct {
	Self   string `json:"self"`
	Jobs   string `json:"jobs"`
	Cancel string `json:"cancel,omitempty"`
}

func batchJobsPath(id job.ID) string { return job.BatchPath(id) + "/jobs" }

func batchViewOf(b *job.Batch) *batchView {
	c := b.Counts
	v := &batchView{
		BatchID: b.ID, Status: b.Status(), CreatedAt: job.Time(b.CreatedAt), Total: b.Total(),
		Counts: countsView{
			c[job.Created], c[job.Queued], c[job.Assigned], c[job.Running],
			c[job.Succeeded], c[job.Failed], c[job.Canceled], b.Refused(),
		},
		CorrelationID: orNull(b.CorrelationID),
		Links:         batchLinksView{Self: job.BatchPath(b.ID), Jobs: batchJobsPath(b.ID)},
	}
	for _, state := range job.States {
		if !state.Final() && c[state] > 0 {
			v.Links.Cancel = job.BatchPath(b.ID) + "/cancel"
		}
	}
	if b.Outcome != nil {
		v.CompletedAt = job.TimeOf(&b.Outcome.CompletedAt)
		v.Outcome = batchOutcomeViewOf(b.Outcome, b.Language)
	}
	return v
}

func batchOutcomeViewOf(o *job.BatchOutcome, language string) *batchOutcomeView {
	v := &batchOutcomeView{
		Status: o.Status, Succeeded: o.Succeeded, Failed: o.Failed, Canceled: o.Canceled,
		FailedItems: make([]itemFailureView, len(o.Failures)),
	}
	for i, f := range o.Failures {
		v.FailedItems[i] = itemFailureView{f.ItemID, idOrNull(f.JobID), f.Status, f.In(language), f.Retryable, f.Stage}
	}
	return v
}
