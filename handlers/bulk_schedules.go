package handlers

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

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

// Schedules are the use cases of schedules.
type Schedules interface {
	Create(ctx context.Context, r job.ScheduleRequest) (*job.Schedule, error)
	Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error)
	Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) ([]*job.Schedule, job.ID, error)
	Change(ctx context.Context, client, id job.ID, p job.SchedulePatch) (*job.Schedule, error)
	Delete(ctx context.Context, client, id job.ID) error
	SetPaused(ctx context.Context, client, id job.ID, paused bool) (*job.Schedule, error)
	Trigger(ctx context.Context, client, id job.ID, now time.Time, requestID string) (*job.Job, error)
}

// scheduleRoutes are those of schedules.
func (s *Server) scheduleRoutes() []route {
	return []route{
		{post, "/v1/schedules", client, "create_schedule", nil, asJSON, fiber.StatusCreated, s.once(s.createSchedule)},
		{get, "/v1/schedules", client, "list_schedules", query.Page, asJSON, fiber.StatusOK, s.listSchedules},
		{get, "/v1/schedules/:id", client, "get_schedule", nil, asJSON, fiber.StatusOK, answering(s.deps.Schedules.Schedule, s.scheduleViewOf)},
		{fiber.MethodPatch, "/v1/schedules/:id", client, "update_schedule", nil, asJSON, fiber.StatusOK, s.updateSchedule},
		{fiber.MethodDelete, "/v1/schedules/:id", client, "delete_schedule", nil, asJSON, fiber.StatusNoContent,
			noBody(removing(s.deps.Schedules.Delete))},
		{post, "/v1/schedules/:id/pause", client, "pause_schedule", nil, asJSON, fiber.StatusOK, s.once(noBody(s.pauseSchedule(true)))},
		{post, "/v1/schedules/:id/resume", client, "resume_schedule", nil, asJSON, fiber.StatusOK, s.once(noBody(s.pauseSchedule(false)))},
		{post, "/v1/schedules/:id/trigger", client, "trigger_schedule", nil, asJSON, fiber.StatusAccepted, s.once(noBody(s.triggerSchedule))},
	}
}

func (s *Server) createSchedule(r *call) error {
	body, err := r.body(false)
	if err != nil {
		return err
	}
	req, err := decode.Schedule(body, s.cfg.decodeLimits())
	if err != nil {
		return err
	}
	from, err := s.provenance(r)
	if err != nil {
		return err
	}
	req.Job.ClientID = r.caller.ClientID
	req.Schedule.ClientID, req.Schedule.RequestID, req.Schedule.Language = r.caller.ClientID, r.idText, from.language
	created, err := s.deps.Schedules.Create(r.ctx, req)
	if err != nil {
		return err
	}
	r.scheduleID, r.made = created.ID, created.ID
	r.Set(fiber.HeaderLocation, s.links.At(job.SchedulePath(created.ID)))
	v := s.scheduleViewOf(created)
	v.Warnings = req.Warnings
	return r.json(fiber.StatusCreated, v)
}

func (s *Server) listSchedules(r *call) error {
	return paged(r, "schedules", s.scheduleViewOf, func(after job.ID, limit int) ([]*job.Schedule, job.ID, error) {
		return s.deps.Schedules.Schedules(r.ctx, r.caller.ClientID, job.ScheduleQuery{After: after, Limit: limit})
	})
}

func (s *Server) updateSchedule(r *call) error {
	body, err := r.bodyOf(false, fiber.MIMEApplicationJSON, mimeMergePatch)
	if err != nil {
		return err
	}
	patch, err := decode.SchedulePatch(body, s.cfg.decodeLimits())
	if err != nil {
		return err
	}
	if patch.Job != nil {
		from, err := s.provenance(r)
		if err != nil {
			return err
		}
		patch.Job.ClientID, patch.Job.Language = r.caller.ClientID, from.language
	}
	changed, err := s.deps.Schedules.Change(r.ctx, r.caller.ClientID, r.scheduleID, patch)
	if err != nil {
		return err
	}
	v := s.scheduleViewOf(changed)
	if patch.Job != nil {
		v.Warnings = patch.Job.Warnings
	}
	return r.json(fiber.StatusOK, v)
}

func (s *Server) pauseSchedule(paused bool) func(*call) error {
	return func(r *call) error {
		return respond(r, fiber.StatusOK, s.scheduleViewOf)(s.deps.Schedules.SetPaused(r.ctx, r.caller.ClientID, r.scheduleID, paused))
	}
}

// triggerSchedule answers 202 with the job, as a submission does.
func (s *Server) triggerSchedule(r *call) error {
	now := s.receivedAt()
	j, err := s.deps.Schedules.Trigger(r.ctx, r.caller.ClientID, r.scheduleID, now, r.idText)
	if err != nil {
		return err
	}
	r.jobID, r.made = j.ID, j.ID
	r.acceptedAt(jobPath(j.ID), false)
	r.Set(fiber.HeaderRetryAfter, "1")
	return r.json(fiber.StatusAccepted, view.Receipt{JobID: j.ID, State: job.Queued, CreatedAt: job.Time(now)})
}

type scheduleView struct {
	view.Schedule
	Jitter     *string           `json:"jitter"`
	StartAt    *job.Time         `json:"start_at"`
	EndAt      *job.Time         `json:"end_at"`
	CatchUpMax int               `json:"catch_up_max"`
	Job        scheduledJobView  `json:"job"`
	Paused     bool              `json:"paused"`
	UpdatedAt  job.Time          `json:"updated_at"`
	WaitingFor *job.Time         `json:"waiting_for"`
	Links      scheduleLinksView `json:"links"`
	Warnings   []job.Violation   `json:"warnings,omitempty"` // in the answer to its creation or change only
}

// scheduledJobView is the request for the job of each run, as a submission has it.
type scheduledJobView struct {
	Type          job.Type        `json:"type"`
	WorkKind      *job.Kind       `json:"work_kind,omitempty"`
	Callback      *string         `json:"callback,omitempty"`
	Params        json.RawMessage `json:"params,omitempty"`
	AutoRetry     *bool           `json:"auto_retry,omitempty"`
	Retry         *policyView     `json:"retry,omitempty"`
	Event         *job.Emission   `json:"event,omitempty"`
	CorrelationID *string         `json:"correlation_id,omitempty"`
}

type scheduleLinksView struct {
	Self    string `json:"self"`
	Jobs    string `json:"jobs"`
	Trigger string `json:"trigger"`
	Pause   string `json:"pause,omitempty"`
	Resume  string `json:"resume,omitempty"`
}

func (s *Server) scheduleViewOf(x *job.Schedule) *scheduleView {
	self, j := s.links.At(job.SchedulePath(x.ID)), x.Job
	v := &scheduleView{
		Schedule: view.ScheduleOf(x), Jitter: view.DurationOrNull(x.Jitter), StartAt: job.TimeOf(x.StartAt), EndAt: job.TimeOf(x.EndAt),
		CatchUpMax: x.CatchUpMax, Paused: x.Paused, UpdatedAt: job.Time(x.UpdatedAt), WaitingFor: job.TimeOf(x.Pending),
		Job: scheduledJobView{
			Type: j.Type, WorkKind: view.OrNull(j.WorkKind), Callback: view.OrNull(j.Callback), Params: j.Params, Event: j.Emit,
			Retry: policyViewOf(j.Retry), CorrelationID: view.OrNull(j.CorrelationID),
		},
		Links: scheduleLinksView{Self: self, Jobs: s.links.At("/v1/jobs?schedule_id=") + x.ID.String(), Trigger: self + "/trigger"},
	}
	if j.AutoRetry || j.Retry != nil { // which alone would mean yes
		v.Job.AutoRetry = &j.AutoRetry
	}
	if x.Paused {
		v.Links.Resume = self + "/resume"
	} else {
		v.Links.Pause = self + "/pause"
	}
	return v
}
