package handlers

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

func (s *Server) submitBatch(r *call) error {
	b, replayed, err := s.takeBatch(r)
	if err != nil {
		return err
	}
	r.batchID = b.ID
	r.acceptedAt(job.BatchPath(b.ID), replayed)
	r.Set(fiber.HeaderRetryAfter, strconv.Itoa(batchPoll))
	w := r.wishes()
	w.applyAsync()
	w.tell(r)
	return r.json(fiber.StatusAccepted, s.batchReceiptOf(b))
}

// takeBatch reads a request for many jobs and has them accepted.
func (s *Server) takeBatch(r *call) (b *job.Batch, replayed bool, err error) {
	if err := enter(r, s.deps.BatchAdmission); err != nil {
		return nil, false, err
	}
	defer func() { leave(s.deps.BatchAdmission, err == nil) }()
	body, err := r.body(false)
	if err != nil {
		return nil, false, err
	}
	key, err := r.idempotencyKey()
	if err != nil {
		return nil, false, err
	}
	req, err := decodeBatch(body, key, s.cfg.MaxPayloadBytes)
	if err != nil {
		return nil, false, err
	}
	s.completeBatch(r, &req)
	return s.deps.Batches.SubmitBatch(r.ctx, req)
}

// completeBatch adds to a batch request and its items what does not come from
// the body.
func (s *Server) completeBatch(r *call, req *job.BatchRequest) {
	from := s.provenance(r)
	req.ClientID, req.RequestID, req.ReceivedAt = r.caller.ClientID, r.idText, s.receivedAt()
	req.Language, req.CorrelationID = from.language, from.correlationID
	for i := range req.Items {
		item := &req.Items[i].Request
		from.complete(item)
		item.ClientID, item.RequestID, item.ReceivedAt = req.ClientID, req.RequestID, req.ReceivedAt
	}
}

// getBatch answers with the batch, or with 304 while nothing happened to it.
func (s *Server) getBatch(r *call) error {
	b, err := s.deps.Batches.Batch(r.ctx, r.caller.ClientID, r.pathBatch())
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	if matchesETag(r.list(fiber.HeaderIfNoneMatch), batchTag(r, b)) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendBatch(r, b)
}

func (s *Server) cancelBatch(r *call) error {
	id := r.pathBatch()
	if err := r.emptyBody(); err != nil {
		return err
	}
	b, err := s.deps.Batches.CancelBatch(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	s.batchHeaders(r, b)
	return s.sendBatch(r, b)
}

// sendBatch answers with the batch, in the view that the client prefers.
func (s *Server) sendBatch(r *call, b *job.Batch) error {
	if b.Outcome != nil {
		r.inLanguage(b.Language)
	}
	if r.wantsDocument() {
		document := s.links.BatchDocument(b)
		return r.send(fiber.StatusOK, mediaOf(document), document)
	}
	return r.json(fiber.StatusOK, batchViewOf(b))
}

func (s *Server) batchHeaders(r *call, b *job.Batch) {
	r.Set(fiber.HeaderETag, batchTag(r, b))
	r.Vary(fiber.HeaderAccept)
	r.relate(batchJobsPath(b.ID), s.relation("batch-jobs"))
	switch {
	case b.Outcome != nil:
	case b.Counts[job.Queued]+b.Counts[job.Assigned]+b.Counts[job.Running] > 0:
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
