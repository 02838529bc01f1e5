package handlers

import (
	"context"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// Bulk are the use cases of operations on many jobs. A position that is not zero is where
// a list goes on.
type Bulk interface {
	Begin(ctx context.Context, r job.BulkRequest) (*job.Bulk, error)
	Count(ctx context.Context, r job.BulkRequest) (job.BulkCount, error)
	Bulk(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error)
	Bulks(ctx context.Context, owner job.BulkOwner, q job.BulkQuery) ([]*job.Bulk, job.ID, error)
	Items(ctx context.Context, owner job.BulkOwner, id job.ID, q job.BulkQuery) ([]job.BulkItem, job.ID, error)
	Abort(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error)
}

// bulkPoll is the advised wait before the next look at an operation, in seconds.
const bulkPoll = 1

// bulkItemsQuery chooses items by their result.
var bulkItemsQuery = append([]query.Parameter{query.Choice("result", job.BulkResults)}, query.Page...)

func (r *call) bulkOwner() job.BulkOwner { return job.BulkOwner{ClientID: r.caller.ClientID} }

// beginBulk begins an operation, once for each idempotency key. A dry run begins none, so
// it needs no key; it would keep the key's transaction open for long.
func (s *Server) beginBulk(r *call) error {
	body, key, err := r.keyedBody()
	if err != nil {
		return err
	}
	req, err := decode.Bulk(body, false)
	if err != nil {
		return err
	}
	if err := s.limitItems(r, filteredCost, " A bulk operation, or a dry run of one, counts as %d."); err != nil {
		return err
	}
	req.Owner, req.RequestID = r.bulkOwner(), r.idText
	if req.DryRun {
		return respond(r, fiber.StatusOK, s.bulkCountViewOf)(s.deps.Bulk.Count(r.ctx, req))
	}
	begin := func(r *call) error {
		b, err := s.deps.Bulk.Begin(r.ctx, req)
		if err != nil {
			return err
		}
		r.bulkID, r.made = b.ID, b.ID
		r.acceptedAt(job.BulkPath(b.ID), false)
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(bulkPoll))
		return r.json(fiber.StatusAccepted, bulkReceiptView{b.ID, b.State(), job.Time(b.CreatedAt)})
	}
	if key == "" {
		return begin(r)
	}
	first, err := s.doOnce(r, r.requestKey(key, decode.Canonical(body)), begin)
	r.bulkID = first.Subject
	return err
}

func (s *Server) listBulks(r *call) error {
	const scope = "bulk"
	after, err := s.cursorID(r, scope)
	if err != nil {
		return err
	}
	list, next, err := s.deps.Bulk.Bulks(r.ctx, r.bulkOwner(), job.BulkQuery{After: after, Limit: r.queryLimit(query.DefaultLimit)})
	if err != nil {
		return err
	}
	return sendPage(s, r, scope, list, next, s.bulkViewOf)
}

func (s *Server) getBulk(r *call) error {
	return r.sendBulk(s.deps.Bulk.Bulk(r.ctx, r.bulkOwner(), r.bulkID))
}

func (s *Server) abortBulk(r *call) error {
	return r.sendBulk(s.deps.Bulk.Abort(r.ctx, r.bulkOwner(), r.bulkID))
}

func (r *call) sendBulk(b *job.Bulk, err error) error {
	if err != nil {
		return err
	}
	if b.FinishedAt == nil {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(bulkPoll))
	}
	return r.json(fiber.StatusOK, r.server.bulkViewOf(b))
}

func (s *Server) listBulkItems(r *call) error {
	scope := "bulk " + r.bulkID.String() + "?" + r.filters()
	after, err := s.cursorID(r, scope)
	if err != nil {
		return err
	}
	q := job.BulkQuery{After: after, Limit: r.queryLimit(query.DefaultLimit), Result: job.BulkResult(r.Query("result"))}
	items, next, err := s.deps.Bulk.Items(r.ctx, r.bulkOwner(), r.bulkID, q)
	if err != nil {
		return err
	}
	return sendPage(s, r, scope, items, next, bulkItemViewOf)
}

type bulkReceiptView struct {
	BulkID    job.ID        `json:"bulk_id"`
	State     job.BulkState `json:"state"`
	CreatedAt job.Time      `json:"created_at"`
}

// bulkCountView is the answer to a dry run.
type bulkCountView struct {
	Count  int           `json:"count"`
	More   bool          `json:"more"`
	Sample []summaryView `json:"sample"`
}

func (s *Server) bulkCountViewOf(c job.BulkCount) bulkCountView {
	v := bulkCountView{Count: c.Count, More: c.More, Sample: make([]summaryView, len(c.Sample))}
	for i, j := range c.Sample {
		v.Sample[i] = s.summaryViewOf(j)
	}
	return v
}

type bulkView struct {
	BulkID     job.ID         `json:"bulk_id"`
	Action     job.BulkAction `json:"action"`
	Filter     job.BulkFilter `json:"filter"`
	Rate       int            `json:"rate"`
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
	Operator   *string        `json:"operator"` // null of a client's operation
	Links      bulkLinksView  `json:"links"`
}

type bulkLinksView struct {
	Self  string `json:"self"`
	Items string `json:"items"`
	Abort string `json:"abort,omitempty"`
}

func (s *Server) bulkViewOf(b *job.Bulk) bulkView {
	self := s.links.At(job.BulkPath(b.ID))
	v := bulkView{
		BulkID: b.ID, Action: b.Action, Filter: b.Filter, Rate: b.Rate, State: b.State(), Total: b.Total, More: b.More,
		Done: b.Done, Succeeded: b.Succeeded, Skipped: b.Skipped, Failed: b.Failed,
		CreatedAt: job.Time(b.CreatedAt), StartedAt: job.TimeOf(b.StartedAt), FinishedAt: job.TimeOf(b.FinishedAt),
		Operator: orNull(b.Owner.Operator),
		Links:    bulkLinksView{Self: self, Items: self + "/items"},
	}
	if b.FinishedAt == nil {
		v.Links.Abort = self + "/abort"
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
	return bulkItemView{i.JobID, i.Result, orNull(i.Code), orNull(i.Detail), job.TimeOf(i.At)}
}
