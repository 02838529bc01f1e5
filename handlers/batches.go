package handlers

import (
	"context"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Batches are the use cases of batches.
type Batches interface {
	SubmitBatch(ctx context.Context, r job.BatchRequest) (b *job.Batch, replayed bool, err error)
	Batch(ctx context.Context, client, id job.ID) (*job.Batch, error)
	CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error)
}

func (s *Server) submitBatch(r *call) error {
	var b *job.Batch
	var replayed bool
	var warnings []job.Violation
	err := admitted(r, s.deps.BatchAdmission, func(body []byte, key string) error {
		req, err := decode.Batch(body, key, s.cfg.decodeLimits())
		if err != nil {
			return err
		}
		warnings = req.Warnings()
		if err := s.completeBatch(r, &req); err != nil {
			return err
		}
		deliveries := 0
		for i := range req.Items {
			item := req.Items[i].Request
			item.ClientID = r.caller.ClientID
			deliveries += s.deps.Jobs.Deliveries(&item)
		}
		err = s.limitItems(r, max(len(req.Items), pieces(body), deliveries), " A batch counts as as many as it has jobs, as 16 KiB were "+
			"begun in its body, or as the events that its jobs may emit make deliveries, whichever are most, this one as %d. Nothing was accepted.")
		if err != nil {
			return err
		}
		b, replayed, err = s.deps.Batches.SubmitBatch(r.ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	r.batchID = b.ID
	r.acceptedAt(job.BatchPath(b.ID), replayed)
	r.Set(fiber.HeaderRetryAfter, strconv.Itoa(batchPoll))
	prefs := r.preferences()
	prefs.applyAsync()
	prefs.report(r)
	if b.Refused() > 0 {
		r.inLanguage(job.Languages[0]) // of the refusals
	}
	receipt := s.batchReceiptOf(b)
	receipt.Warnings = warnings
	return r.json(fiber.StatusAccepted, receipt)
}

// completeBatch adds to a batch request and its items what does not come from
// the body.
func (s *Server) completeBatch(r *call, req *job.BatchRequest) error {
	from, err := s.provenance(r)
	if err != nil {
		return err
	}
	req.ClientID, req.RequestID, req.ReceivedAt = r.caller.ClientID, r.idText, s.receivedAt()
	req.Language, req.CorrelationID = from.language, from.correlationID
	for i := range req.Items {
		item := &req.Items[i].Request
		from.complete(item)
		item.ClientID, item.RequestID, item.ReceivedAt = req.ClientID, req.RequestID, req.ReceivedAt
	}
	return nil
}

// getBatch answers with the batch, or with 304 while nothing happened to it.
func (s *Server) getBatch(r *call) error {
	b, err := s.deps.Batches.Batch(r.ctx, r.caller.ClientID, r.batchID)
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	if r.unchanged(batchTag(r, b)) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendBatch(r, b)
}

func (s *Server) cancelBatch(r *call) error {
	b, err := s.deps.Batches.CancelBatch(r.ctx, r.caller.ClientID, r.batchID)
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	return s.sendBatch(r, b)
}

// sendBatch answers with the batch, in the view that the client prefers.
func (s *Server) sendBatch(r *call, b *job.Batch) error {
	if r.wantsDocument() && r.unfinished() {
		open := *b
		open.Outcome = nil
		b = &open
	}
	if b.Outcome != nil {
		r.inLanguage(b.Language)
	}
	if r.wantsDocument() {
		document := s.links.BatchDocument(b)
		return r.send(fiber.StatusOK, mediaOf(document), document)
	}
	return r.json(fiber.StatusOK, s.batchViewOf(b))
}

func (s *Server) batchHeaders(r *call, b *job.Batch) {
	r.Set(fiber.HeaderETag, batchTag(r, b))
	r.Vary(fiber.HeaderAccept)
	r.relate(job.BatchPath(b.ID)+"/jobs", s.relation("batch-jobs"))
	switch {
	case b.Outcome != nil && !r.unfinished():
	case b.Outcome != nil || b.Counts[job.Queued]+b.Counts[job.Assigned]+b.Counts[job.Running] > 0:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(batchPoll))
	default:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(scheduledBatchPoll))
	}
}

// The advised wait before the next look at a batch, in seconds: while it has
// work to do, and while all of it is scheduled for later.
const (
	batchPoll          = 1
	scheduledBatchPoll = 10
)

// batchTag is the entity tag of a batch in the view that the client prefers.
// It changes with the counts, and with the outcome, which comes once.
func batchTag(r *call, b *job.Batch) string {
	var tag strings.Builder
	for _, state := range job.States {
		tag.WriteString(strconv.Itoa(b.Counts[state]) + ".")
	}
	tag.WriteString(string(b.Status()))
	if b.Outcome != nil {
		tag.WriteString("-completed")
	}
	if r.wantsDocument() {
		tag.WriteString("-document")
	}
	return `W/"` + tag.String() + `"`
}

// listBatch answers with the jobs of a batch, as far as they still exist.
func (s *Server) listBatch(r *call) error {
	b, err := s.deps.Batches.Batch(r.ctx, r.caller.ClientID, r.batchID)
	if err != nil {
		return err
	}
	names := make(map[job.ID]string, len(b.Items))
	for _, item := range b.Items {
		names[item.JobID] = item.ItemID
	}
	return s.sendJobs(r, job.Query{BatchID: b.ID}, "batch "+b.ID.String(), func(j *job.Job) summaryView {
		v := s.summaryViewOf(j)
		v.ItemID = view.OrNull(names[j.ID])
		return v
	})
}

// batchReceiptView is the answer to a batch request.
type batchReceiptView struct {
	BatchID   job.ID            `json:"batch_id"`
	CreatedAt job.Time          `json:"created_at"`
	Jobs      []itemReceiptView `json:"jobs"`
	Warnings  []job.Violation   `json:"warnings,omitempty"`
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
	Instance        string          `json:"instance"`
	Code            job.Code        `json:"code"`
	Violations      []job.Violation `json:"violations,omitempty"`
	Retryable       bool            `json:"retryable"`
	ProcessingStage job.Stage       `json:"processingStage"`
}

func (s *Server) batchReceiptOf(b *job.Batch) batchReceiptView {
	v := batchReceiptView{BatchID: b.ID, CreatedAt: job.Time(b.CreatedAt), Jobs: make([]itemReceiptView, len(b.Items))}
	for i, item := range b.Items {
		v.Jobs[i] = itemReceiptView{ItemID: item.ItemID, JobID: view.OrNull(item.JobID), State: item.State}
		if item.Refusal != nil {
			p := problem.Of(s.links, &job.Error{Code: item.Refusal.Code, Detail: item.Refusal.Detail})
			v.Jobs[i].Failure = &refusalView{
				Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Instance: s.links.At(job.ItemInstance(b.ID, i)), Code: p.Code,
				Violations: item.Refusal.Violations, ProcessingStage: job.StageValidation,
			}
		}
	}
	return v
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

// open counts the items that have not ended.
func (c *countsView) open() int { return c.Created + c.Queued + c.Assigned + c.Running }

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

func (s *Server) batchViewOf(b *job.Batch) *batchView {
	c, self := b.Counts, s.links.At(job.BatchPath(b.ID))
	v := &batchView{
		BatchID: b.ID, Status: b.Status(), CreatedAt: job.Time(b.CreatedAt), Total: b.Total(),
		Counts: countsView{
			c[job.Created], c[job.Queued], c[job.Assigned], c[job.Running],
			c[job.Succeeded], c[job.Failed], c[job.Canceled], b.Refused(),
		},
		CorrelationID: view.OrNull(b.CorrelationID),
		Links:         batchLinksView{Self: self, Jobs: self + "/jobs"},
	}
	for _, state := range job.States {
		if !state.Final() && c[state] > 0 {
			v.Links.Cancel = self + "/cancel"
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
		v.FailedItems[i] = itemFailureView{f.ItemID, view.OrNull(f.JobID), f.Status, f.In(language), f.Retryable, f.Stage}
	}
	return v
}
