// Package batches handles requests about batches, which submit many jobs at once.
package batches

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// API handles requests about batches.
type API struct {
	*httpkit.Kit
	Views     views.Views
	Jobs      *jobs.Service
	Admission *jobs.Backlog // limits how many batches wait to be stored; nil: no limit
}

// Routes returns the routes of batches.
func (s *API) Routes() []httpkit.Route {
	const get, post, client = httpkit.Get, httpkit.Post, httpkit.ClientKey
	return []httpkit.Route{
		httpkit.Row(post, "/v1/jobs/batch", client, "submit_batch", fiber.StatusAccepted, s.submitBatch),
		httpkit.Row(get, "/v1/batches/:id", client, "get_batch", fiber.StatusOK, s.getBatch),
		httpkit.Row(get, "/v1/batches/:id/jobs", client, "list_batch", fiber.StatusOK, s.listBatch, query.Page...),
		httpkit.Row(post, "/v1/batches/:id/cancel", client, "cancel_batch", fiber.StatusOK, httpkit.Once(httpkit.Bodyless(s.cancelBatch))),
	}
}

func (s *API) submitBatch(r *httpkit.Request) error {
	var b *job.Batch
	var replayed bool
	var warnings []job.Violation
	err := httpkit.Admitted(r, s.Admission, func(body []byte, key string) error {
		req, err := decode.Batch(body, key, s.DecodeLimits())
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
			item.ClientID = r.Caller.ClientID
			deliveries += s.Jobs.Deliveries(&item)
		}
		err = r.LimitItems(max(len(req.Items), httpkit.Pieces(body), deliveries),
			" This batch counts as %d requests, the highest of three numbers: its jobs, "+
				"the 16 KiB blocks of its body, and the deliveries for events that its jobs may emit. Nothing was accepted.")
		if err != nil {
			return err
		}
		b, replayed, err = s.Jobs.SubmitBatch(r.Ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	r.About(httpkit.BatchID, b.ID)
	r.AcceptedAt(job.BatchPath(b.ID), replayed)
	r.Set(fiber.HeaderRetryAfter, strconv.Itoa(batchPoll))
	prefs := r.Preferences()
	prefs.ApplyAsync()
	r.Honored(prefs)
	if b.Refused() > 0 {
		r.InLanguage(job.Languages[0]) // the errors of refused items are always in this language
	}
	receipt := s.receiptOf(b)
	receipt.Warnings = warnings
	return r.JSON(fiber.StatusAccepted, receipt)
}

func (s *API) completeBatch(r *httpkit.Request, req *job.BatchRequest) error {
	from, err := r.Provenance()
	if err != nil {
		return err
	}
	req.ClientID, req.RequestID, req.ReceivedAt = r.Caller.ClientID, r.ID, s.ReceivedAt()
	req.Language, req.CorrelationID = from.Language, from.CorrelationID
	for i := range req.Items {
		item := &req.Items[i].Request
		from.Complete(item)
		item.ClientID, item.RequestID, item.ReceivedAt = req.ClientID, req.RequestID, req.ReceivedAt
	}
	return nil
}

func (s *API) getBatch(r *httpkit.Request) error {
	b, err := s.Jobs.Batch(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	if r.Unchanged(batchTag(r, b)) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendBatch(r, b)
}

func (s *API) cancelBatch(r *httpkit.Request) error {
	b, err := s.Jobs.CancelBatch(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	return s.sendBatch(r, b)
}

func (s *API) sendBatch(r *httpkit.Request, b *job.Batch) error {
	if r.WantsDocument() && r.Hides {
		open := *b
		open.Outcome = nil
		b = &open
	}
	if b.Outcome != nil {
		r.InLanguage(b.Language)
	}
	if r.WantsDocument() {
		document := s.Links.BatchDocument(b)
		return r.SendAs(fiber.StatusOK, views.MediaOf(document), document)
	}
	return r.JSON(fiber.StatusOK, s.batchOf(b))
}

func (s *API) batchHeaders(r *httpkit.Request, b *job.Batch) {
	r.Set(fiber.HeaderETag, batchTag(r, b))
	r.Vary(fiber.HeaderAccept)
	r.Relate(job.BatchPath(b.ID)+"/jobs", s.Relation("batch-jobs"))
	switch {
	case b.Outcome != nil && !r.Hides:
	case b.Outcome != nil || b.Counts[job.Queued]+b.Counts[job.Assigned]+b.Counts[job.Running] > 0:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(batchPoll))
	default:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(scheduledBatchPoll))
	}
}

// Retry-After of a batch, in seconds. scheduledBatchPoll is for batches with only scheduled jobs left.
const (
	batchPoll          = 1
	scheduledBatchPoll = 10
)

// batchTag returns the ETag of the representation that the client prefers: JSON or the outcome document. The tag changes with the number of
// jobs in each state and with the outcome.
func batchTag(r *httpkit.Request, b *job.Batch) string {
	var tag strings.Builder
	for _, state := range job.States {
		tag.WriteString(strconv.Itoa(b.Counts[state]) + ".")
	}
	tag.WriteString(string(b.Status()))
	if b.Outcome != nil {
		tag.WriteString("-completed")
	}
	if r.WantsDocument() {
		tag.WriteString("-document")
	}
	return `W/"` + tag.String() + `"`
}

// listBatch sends the jobs of a batch. It leaves out deleted jobs.
func (s *API) listBatch(r *httpkit.Request) error {
	b, err := s.Jobs.Batch(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	names := make(map[job.ID]string, len(b.Items))
	for _, item := range b.Items {
		names[item.JobID] = item.ItemID
	}
	show := func(j *job.Job) itemView { return itemView{names[j.ID], s.Views.Summary(j)} }
	return httpkit.Paged(r, "batch "+b.ID.String(), show, func(after job.ID, limit int) ([]*job.Job, job.ID, error) {
		page, err := s.Jobs.Jobs(r.Ctx, r.Caller.ClientID, job.Query{BatchID: b.ID, After: after, Limit: limit})
		return page.Jobs, page.Next, err
	})
}

type itemView struct {
	ItemID string `json:"item_id"`
	api.JobSummary
}

func (s *API) receiptOf(b *job.Batch) api.BatchReceipt {
	v := api.BatchReceipt{BatchID: b.ID, CreatedAt: job.Time(b.CreatedAt), Jobs: make([]api.BatchReceipt_Jobs, len(b.Items))}
	for i, item := range b.Items {
		v.Jobs[i] = api.BatchReceipt_Jobs{ItemID: &item.ItemID, JobID: view.OrNull(item.JobID), State: view.OrNull(item.State)}
		if item.Refusal != nil {
			p := problem.Of(s.Links, &job.Error{Code: item.Refusal.Code, Detail: item.Refusal.Detail})
			v.Jobs[i].Failure = &api.Refusal{
				Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Instance: s.Links.At(job.ItemInstance(b.ID, i)), Code: p.Code,
				Violations: item.Refusal.Violations, ProcessingStage: job.StageValidation,
			}
		}
	}
	return v
}

func (s *API) batchOf(b *job.Batch) api.Batch {
	c, self := b.Counts, s.Links.At(job.BatchPath(b.ID))
	v := api.Batch{
		BatchID: b.ID, Status: b.Status(), CreatedAt: job.Time(b.CreatedAt), Total: b.Total(),
		Counts: api.BatchCounts{
			Created: c[job.Created], Queued: c[job.Queued], Assigned: c[job.Assigned], Running: c[job.Running],
			Succeeded: c[job.Succeeded], Failed: c[job.Failed], Canceled: c[job.Canceled], Refused: b.Refused(),
		},
		CorrelationID: view.OrNull(b.CorrelationID), Links: api.BatchLinks{Self: self, Jobs: self + "/jobs"},
	}
	for _, state := range job.States {
		if !state.Final() && c[state] > 0 {
			v.Links.Cancel = new(self + "/cancel")
		}
	}
	if o := b.Outcome; o != nil {
		v.CompletedAt = job.TimeOf(&o.CompletedAt)
		v.Outcome = &api.BatchOutcome{
			Status: o.Status, Succeeded: o.Succeeded, Failed: o.Failed, Canceled: o.Canceled, FailedItems: make([]api.FailedItem, len(o.Failures)),
		}
		for i, f := range o.Failures {
			v.Outcome.FailedItems[i] = api.FailedItem{
				ItemID: f.ItemID, JobID: view.OrNull(f.JobID), Status: f.Status, Detail: f.In(b.Language), Retryable: f.Retryable,
				ProcessingStage: f.Stage,
			}
		}
	}
	return v
}
