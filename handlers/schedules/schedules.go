// Package schedules handles requests for schedules, which submit jobs at planned times.
package schedules

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// API handles requests about schedules.
type API struct {
	*httpkit.Kit
	Schedules *schedules.Service
}

// Routes returns the routes of schedules.
func (s *API) Routes() []httpkit.Route {
	const get, post, client = httpkit.Get, httpkit.Post, httpkit.ClientKey
	remove := httpkit.Bodyless(httpkit.RemoveByID(s.Schedules.Delete))
	pause, resume := httpkit.Bodyless(s.setPaused(true)), httpkit.Bodyless(s.setPaused(false))
	return []httpkit.Route{
		httpkit.Row(post, "/v1/schedules", client, "create_schedule", fiber.StatusCreated, httpkit.Once(s.create)),
		httpkit.Row(get, "/v1/schedules", client, "list_schedules", fiber.StatusOK, s.list, query.Page...),
		httpkit.Row(get, "/v1/schedules/:id", client, "get_schedule", fiber.StatusOK, httpkit.ByID(s.Schedules.Schedule, s.show)),
		httpkit.Row(httpkit.Patch, "/v1/schedules/:id", client, "update_schedule", fiber.StatusOK, s.update),
		httpkit.Row(httpkit.Delete, "/v1/schedules/:id", client, "delete_schedule", fiber.StatusNoContent, remove),
		httpkit.Row(post, "/v1/schedules/:id/pause", client, "pause_schedule", fiber.StatusOK, httpkit.Once(pause)),
		httpkit.Row(post, "/v1/schedules/:id/resume", client, "resume_schedule", fiber.StatusOK, httpkit.Once(resume)),
		httpkit.Row(post, "/v1/schedules/:id/trigger", client, "trigger_schedule", fiber.StatusAccepted,
			httpkit.Once(httpkit.Bodyless(s.trigger))),
	}
}

func (s *API) create(r *httpkit.Request) error {
	req, err := httpkit.Decoded(r, false, s.DecodeLimits().Schedule)
	if err != nil {
		return err
	}
	from, err := r.Provenance()
	if err != nil {
		return err
	}
	req.Job.ClientID = r.Caller.ClientID
	req.Schedule.ClientID, req.Schedule.RequestID, req.Schedule.Language = r.Caller.ClientID, r.ID, from.Language
	created, err := s.Schedules.Create(r.Ctx, req)
	if err != nil {
		return err
	}
	r.Made = created.ID
	r.About(httpkit.ScheduleID, created.ID)
	r.Set(fiber.HeaderLocation, s.Links.At(job.SchedulePath(created.ID)))
	v := s.show(created)
	v.Warnings = req.Warnings
	return r.JSON(fiber.StatusCreated, v)
}

func (s *API) list(r *httpkit.Request) error {
	return httpkit.Paged(r, "schedules", s.show, func(after job.ID, limit int) ([]*job.Schedule, job.ID, error) {
		return s.Schedules.Schedules(r.Ctx, r.Caller.ClientID, job.ScheduleQuery{After: after, Limit: limit})
	})
}

func (s *API) update(r *httpkit.Request) error {
	patch, err := httpkit.Decoded(r, false, s.DecodeLimits().SchedulePatch, httpkit.MergePatch)
	if err != nil {
		return err
	}
	if patch.Job != nil {
		from, err := r.Provenance()
		if err != nil {
			return err
		}
		patch.Job.ClientID, patch.Job.Language = r.Caller.ClientID, from.Language
	}
	changed, err := s.Schedules.Change(r.Ctx, r.Caller.ClientID, r.PathID(), patch)
	if err != nil {
		return err
	}
	v := s.show(changed)
	if patch.Job != nil {
		v.Warnings = patch.Job.Warnings
	}
	return r.JSON(fiber.StatusOK, v)
}

func (s *API) setPaused(paused bool) func(*httpkit.Request) error {
	return func(r *httpkit.Request) error {
		return httpkit.Respond(r, fiber.StatusOK, s.show)(s.Schedules.SetPaused(r.Ctx, r.Caller.ClientID, r.PathID(), paused))
	}
}

func (s *API) trigger(r *httpkit.Request) error {
	now := s.ReceivedAt()
	j, err := s.Schedules.Trigger(r.Ctx, r.Caller.ClientID, r.PathID(), now, r.ID)
	if err != nil {
		return err
	}
	r.Made = j.ID
	r.About(httpkit.JobID, j.ID)
	r.AcceptedAt(views.JobPath(j.ID), false)
	r.Set(fiber.HeaderRetryAfter, "1")
	return r.JSON(fiber.StatusAccepted, api.JobReceipt{JobID: j.ID, State: job.Queued, CreatedAt: job.Time(now)})
}

type scheduleView struct {
	view.Schedule
	Jitter     *string               `json:"jitter"`
	StartAt    *job.Time             `json:"start_at"`
	EndAt      *job.Time             `json:"end_at"`
	CatchUpMax int                   `json:"catch_up_max"`
	Job        api.JobRequestMembers `json:"job"`
	Paused     bool                  `json:"paused"`
	UpdatedAt  job.Time              `json:"updated_at"`
	WaitingFor *job.Time             `json:"waiting_for"`
	Links      api.ScheduleLinks     `json:"links"`
	Warnings   []job.Violation       `json:"warnings,omitempty"` // only in responses to the creation or a change of the schedule
}

func (s *API) show(x *job.Schedule) *scheduleView {
	self, j := s.Links.At(job.SchedulePath(x.ID)), x.Job
	v := &scheduleView{
		Schedule: view.ScheduleOf(x), Jitter: view.DurationOrNull(x.Jitter), StartAt: job.TimeOf(x.StartAt), EndAt: job.TimeOf(x.EndAt),
		CatchUpMax: x.CatchUpMax, Paused: x.Paused, UpdatedAt: job.Time(x.UpdatedAt), WaitingFor: job.TimeOf(x.Pending),
		Job: api.JobRequestMembers{
			Type: j.Type, WorkKind: view.OrNull(j.WorkKind), Callback: view.OrNull(j.Callback), Params: j.Params, Event: j.Emit,
			Retry: views.Policy(j.Retry), CorrelationID: view.OrNull(j.CorrelationID),
		},
		Links: api.ScheduleLinks{Self: self, Jobs: s.Links.At("/v1/jobs?schedule_id=") + x.ID.String(), Trigger: self + "/trigger"},
	}
	if j.AutoRetry || j.Retry != nil { // a retry policy makes auto_retry true by default, so an explicit false must be shown
		v.Job.AutoRetry = &j.AutoRetry
	}
	if x.Paused {
		v.Links.Resume = new(self + "/resume")
	} else {
		v.Links.Pause = new(self + "/pause")
	}
	return v
}
