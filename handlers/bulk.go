package handlers

import (
	"context"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
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
		return respond(r, fiber.StatusOK, func(n job.BulkCount) view.BulkCount[summaryView] {
			return view.BulkCountOf(n, s.summaryViewOf)
		})(s.deps.Bulk.Count(r.ctx, req))
	}
	begin := func(r *call) error {
		b, err := s.deps.Bulk.Begin(r.ctx, req)
		if err != nil {
			return err
		}
		r.bulkID, r.made = b.ID, b.ID
		r.acceptedAt(job.BulkPath(b.ID), false)
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(bulkPoll))
		return r.json(fiber.StatusAccepted, view.BulkReceiptOf(b))
	}
	if key == "" {
		return begin(r)
	}
	first, err := s.doOnce(r, r.requestKey(key, decode.Canonical(body)), begin)
	r.bulkID = first.Subject
	return err
}

func (s *Server) listBulks(r *call) error {
	return paged(r, "bulk", s.bulkViewOf, func(after job.ID, limit int) ([]*job.Bulk, job.ID, error) {
		return s.deps.Bulk.Bulks(r.ctx, r.bulkOwner(), job.BulkQuery{After: after, Limit: limit})
	})
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
	return paged(r, scope, view.BulkItemOf, func(after job.ID, limit int) ([]job.BulkItem, job.ID, error) {
		q := job.BulkQuery{After: after, Limit: limit, Result: job.BulkResult(r.Query("result"))}
		return s.deps.Bulk.Items(r.ctx, r.bulkOwner(), r.bulkID, q)
	})
}

type bulkView struct {
	view.Bulk
	Filter job.BulkFilter `json:"filter"`
	Links  bulkLinksView  `json:"links"`
}

type bulkLinksView struct {
	Self  string `json:"self"`
	Items string `json:"items"`
	Abort string `json:"abort,omitempty"`
}

func (s *Server) bulkViewOf(b *job.Bulk) bulkView {
	self := s.links.At(job.BulkPath(b.ID))
	v := bulkView{view.BulkOf(b), b.Filter, bulkLinksView{Self: self, Items: self + "/items"}}
	if b.FinishedAt == nil {
		v.Links.Abort = self + "/abort"
	}
	return v
}
