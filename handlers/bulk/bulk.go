// Package bulk handles requests about bulk operations, which retry, cancel or delete many jobs.
package bulk

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// API handles requests about bulk operations.
type API struct {
	*httpkit.Kit
	Views views.Views
	Bulk  *bulk.Service
}

// Routes returns the routes of bulk operations.
func (s *API) Routes() []httpkit.Route {
	const get, post, client = httpkit.Get, httpkit.Post, httpkit.ClientKey
	return []httpkit.Route{
		httpkit.Row(post, "/v1/bulk", client, "begin_bulk", fiber.StatusAccepted, s.begin),
		httpkit.Row(get, "/v1/bulk", client, "list_bulks", fiber.StatusOK, s.list, query.Page...),
		httpkit.Row(get, "/v1/bulk/:id", client, "get_bulk", fiber.StatusOK, s.get),
		httpkit.Row(get, "/v1/bulk/:id/items", client, "list_bulk_items", fiber.StatusOK, s.listItems, itemsQuery...),
		httpkit.Row(post, "/v1/bulk/:id/abort", client, "abort_bulk", fiber.StatusOK, httpkit.Once(httpkit.Bodyless(s.abort))),
	}
}

// poll is the number of seconds until a client should poll a running operation again.
const poll = 1

var itemsQuery = append([]query.Parameter{query.Choice("result", job.BulkResults)}, query.Page...)

// A repeated idempotency key does not start another operation. A dry run does not store the key, because the transaction would stay open
// while jobs are counted.
func (s *API) begin(r *httpkit.Request) error {
	body, key, err := r.KeyedBody()
	if err != nil {
		return err
	}
	req, err := decode.Bulk(body)
	if err != nil {
		return err
	}
	if err := r.LimitItems(httpkit.FilteredCost, " A bulk operation or its dry run counts as %d requests."); err != nil {
		return err
	}
	req.Owner, req.RequestID = job.BulkOwner{ClientID: r.Caller.ClientID}, r.ID
	if req.DryRun {
		return httpkit.Respond(r, fiber.StatusOK, func(n job.BulkCount) view.BulkCount[api.JobSummary] {
			return view.BulkCountOf(n, s.Views.Summary)
		})(s.Bulk.Count(r.Ctx, req))
	}
	start := func(r *httpkit.Request) error {
		b, err := s.Bulk.Begin(r.Ctx, req)
		if err != nil {
			return err
		}
		r.Made = b.ID
		r.About(httpkit.BulkID, b.ID)
		r.AcceptedAt(job.BulkPath(b.ID), false)
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(poll))
		return r.JSON(fiber.StatusAccepted, views.BulkReceipt(b))
	}
	if key == "" {
		return start(r)
	}
	first, err := r.Once(r.RequestKey(key, decode.Canonical(body)), start)
	r.About(httpkit.BulkID, first.Subject)
	return err
}

func (s *API) list(r *httpkit.Request) error {
	return httpkit.Paged(r, "bulk", s.show, func(after job.ID, limit int) ([]*job.Bulk, job.ID, error) {
		return s.Bulk.Bulks(r.Ctx, r.Caller.ClientID, job.BulkQuery{After: after, Limit: limit})
	})
}

func (s *API) get(r *httpkit.Request) error {
	return s.send(r)(s.Bulk.Bulk(r.Ctx, r.Caller.ClientID, r.PathID()))
}

func (s *API) abort(r *httpkit.Request) error {
	return s.send(r)(s.Bulk.Abort(r.Ctx, r.Caller.ClientID, r.PathID()))
}

func (s *API) send(r *httpkit.Request) func(*job.Bulk, error) error {
	return func(b *job.Bulk, err error) error {
		if err != nil {
			return err
		}
		if b.FinishedAt == nil {
			r.Set(fiber.HeaderRetryAfter, strconv.Itoa(poll))
		}
		return r.JSON(fiber.StatusOK, s.show(b))
	}
}

func (s *API) listItems(r *httpkit.Request) error {
	scope := "bulk " + r.PathID().String() + "?" + r.Filters()
	return httpkit.Paged(r, scope, views.BulkItem, func(after job.ID, limit int) ([]job.BulkItem, job.ID, error) {
		q := job.BulkQuery{After: after, Limit: limit, Result: job.BulkResult(r.Query("result"))}
		return s.Bulk.BulkItems(r.Ctx, r.Caller.ClientID, r.PathID(), q)
	})
}

type bulkView struct {
	view.Bulk
	Filter job.BulkFilter `json:"filter"`
	Links  api.BulkLinks  `json:"links"`
}

func (s *API) show(b *job.Bulk) bulkView {
	self := s.Links.At(job.BulkPath(b.ID))
	v := bulkView{view.BulkOf(b), b.Filter, api.BulkLinks{Self: self, Items: self + "/items"}}
	if b.FinishedAt == nil {
		v.Links.Abort = new(self + "/abort")
	}
	return v
}
