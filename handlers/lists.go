package handlers

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// listView is a part of a list.
type listView[T any] struct {
	Data []T      `json:"data"`
	Page pageView `json:"page"`
}

type pageView struct {
	Limit      int     `json:"limit"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

// defaultLimit is the size of a page of jobs when none is asked for.
const defaultLimit = 50

func (s *Server) listJobs(r *call) error {
	q := job.Query{
		State: job.State(r.Query("state")), Type: job.Type(r.Query("type")), WorkKind: job.Kind(r.Query("work_kind")),
		CreatedAfter: r.queryTime("created_after"), CreatedBefore: r.queryTime("created_before"),
	}
	if batch := r.Query("batch_id"); batch != "" {
		q.BatchID, _ = job.ParseID(batch) // checked with the query
	}
	return s.sendJobs(r, q, "jobs?"+r.filters(), summaryViewOf)
}

// filters names the filters of a list, for the scope of its cursors. Values
// are of forms without separators.
func (r *call) filters() string {
	var scope strings.Builder
	for _, name := range r.route.queryNames() {
		if value := r.Query(name); value != "" && name != "limit" && name != "cursor" {
			scope.WriteString(name + "=" + value + "&")
		}
	}
	return scope.String()
}

// listBatch answers with the jobs of a batch, as far as they still exist.
func (s *Server) listBatch(r *call) error {
	b, err := s.deps.Batches.Batch(r.ctx, r.caller.ClientID, r.pathBatch())
	if err != nil {
		return err
	}
	names := make(map[job.ID]string, len(b.Items))
	for _, item := range b.Items {
		names[item.JobID] = item.ItemID
	}
	return s.sendJobs(r, job.Query{BatchID: b.ID}, "batch "+b.ID.String(), func(j *job.Job) summaryView {
		v := summaryViewOf(j)
		v.ItemID = orNull(names[j.ID])
		return v
	})
}

// sendJobs answers with the page of a list of jobs that the query asks for.
func (s *Server) sendJobs(r *call, q job.Query, scope string, show func(*job.Job) summaryView) error {
	client := r.caller.ClientID
	q.Limit = r.queryLimit(defaultLimit)
	if cursor := r.Query("cursor"); cursor != "" {
		place, err := s.openCursor(r.ctx, client, scope, cursor, len(q.After))
		if err != nil {
			return err
		}
		q.After = job.ID(place)
	}
	page, err := s.deps.Reader.List(r.ctx, client, q)
	if err != nil {
		return err
	}
	list := listView[summaryView]{Data: make([]summaryView, len(page.Jobs)), Page: pageView{Limit: q.Limit}}
	for i, j := range page.Jobs {
		list.Data[i] = show(j)
	}
	if !page.Next.IsZero() {
		next, err := s.sealCursor(r.ctx, client, scope, page.Next[:])
		if err != nil {
			return err
		}
		list.Page.NextCursor = &next
	}
	return r.json(fiber.StatusOK, list)
}
