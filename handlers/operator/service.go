package operator

import (
	"cmp"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (a *API) getOverview(r *httpkit.Request) error {
	v, err := a.deps.Overview(r.Ctx, cmp.Or(admin.Window(r.Query("window")), admin.LastQuarterHour))
	return ok(r, v, err)
}

func (a *API) getSystem(r *httpkit.Request) error {
	system, err := a.store.System(r.Ctx)
	if err != nil {
		return err
	}
	system.Version, system.TestBed = a.cfg.Version, a.deps.Testbed != nil
	return ok(r, system, nil)
}

func (a *API) find(r *httpkit.Request) error {
	found, err := a.store.Find(r.Ctx, query.IDOf(r.Query("id")))
	return ok(r, map[string][]admin.Found{"data": found}, err)
}

var kindDescriptions = sync.OnceValue(func() map[job.Kind]string {
	var d struct {
		Components struct {
			Schemas struct {
				WorkKind struct {
					Descriptions map[job.Kind]string `yaml:"x-enumDescriptions"`
				} `yaml:"WorkKind"`
			}
		}
	}
	if err := yaml.Unmarshal(Document(), &d); err != nil {
		panic(err) // cannot fail: the document is embedded
	}
	return d.Components.Schemas.WorkKind.Descriptions
})

func (a *API) getCatalogue(r *httpkit.Request) error {
	v := admin.Catalogue{Types: a.cfg.Catalogue.Types, Profiles: []string{}}
	for _, p := range fault.Profiles {
		if a.deps.Testbed != nil {
			v.Profiles = append(v.Profiles, string(p))
		}
	}
	for _, kind := range a.cfg.Catalogue.Offered() {
		spec, _ := job.SpecOf(kind, a.cfg.Catalogue.MaxRuntime)
		v.Kinds = append(v.Kinds, admin.KindInfo{
			WorkKind: kind, Description: kindDescriptions()[kind], ShouldFail: spec.ShouldFail, DurationMS: spec.DurationMS,
			ExpectedOutcome: spec.Expected,
		})
	}
	return ok(r, v, nil)
}

func (a *API) listAudit(r *httpkit.Request) error {
	return paged(r, httpkit.As, func(after job.ID, limit int) ([]admin.AuditEntry, job.ID, error) {
		page, err := a.store.Audit(r.Ctx, admin.AuditQuery{
			Operator: r.Query("operator"), Action: r.Query("action"), TargetID: r.Query("target_id"),
			From: query.TimeOf(r.Query("from")), To: query.TimeOf(r.Query("to")), After: after, Limit: limit,
		})
		return page.Data, page.Next, err
	})
}

func pauseViewOf(p job.Pause) admin.Pause {
	return admin.Pause{
		PauseID: p.ID, Scope: p.Scope, Target: view.OrNull(p.Target), Mode: p.Mode, Operator: p.Operator, Reason: p.Reason,
		CreatedAt: job.Time(p.CreatedAt),
	}
}

func pauseDetail(_ *httpkit.Request, p job.Pause) any {
	return map[string]any{"scope": p.Scope, "target": p.Target, "mode": p.Mode, "reason": p.Reason}
}

func (a *API) pause(r *httpkit.Request, asked job.Pause) error {
	if asked.Scope == job.PauseClient {
		if _, err := a.store.Client(r.Ctx, query.IDOf(asked.Target)); err != nil {
			return err
		}
	}
	asked.Operator = r.Caller.Operator
	p, added, err := a.deps.Pauses.Pause(r.Ctx, asked)
	if err != nil {
		return err
	}
	r.Made = p.ID
	status := fiber.StatusOK
	if added {
		status = fiber.StatusCreated
	}
	return r.JSON(status, pauseViewOf(p))
}

func (a *API) resume(r *httpkit.Request) error {
	return a.deps.Pauses.Resume(r.Ctx, r.PathID())
}

func (a *API) listPauses(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, func(all job.Pauses) any {
		return map[string]any{"data": query.ListOf(all, 0, pauseViewOf).Data}
	})(a.deps.Pauses.Pauses(r.Ctx))
}

// scheduleView omits the params and other client data of the job that the schedule submits.
type scheduleView struct {
	view.Schedule
	ClientID job.ID    `json:"client_id"`
	Type     job.Type  `json:"type"`
	Kind     *job.Kind `json:"kind"`
}

func scheduleViewOf(s *job.Schedule) scheduleView {
	return scheduleView{view.ScheduleOf(s), s.ClientID, s.Job.Type, view.OrNull(s.Job.WorkKind)}
}

func (a *API) listSchedules(r *httpkit.Request) error {
	return paged(r, scheduleViewOf, func(after job.ID, limit int) ([]*job.Schedule, job.ID, error) {
		return a.deps.Schedules.Schedules(r.Ctx, query.IDOf(r.Query("client_id")), job.ScheduleQuery{After: after, Limit: limit})
	})
}

func (a *API) getSchedule(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, scheduleViewOf)(a.deps.Schedules.Schedule(r.Ctx, job.ID{}, r.PathID()))
}

func (a *API) createSchedule(r *httpkit.Request, asked decode.ForClient) error {
	if _, err := a.store.Client(r.Ctx, asked.ClientID); err != nil {
		return err
	}
	request, err := a.DecodeLimits().Schedule(asked.Request)
	if err != nil {
		return within("/schedule", err)
	}
	request.Job.ClientID, request.Schedule.ClientID = asked.ClientID, asked.ClientID
	request.Schedule.RequestID, request.Schedule.Language = r.ID, job.Languages[0]
	created, err := a.deps.Schedules.Create(r.Ctx, request)
	if err != nil {
		return within("/schedule", err)
	}
	r.Made = created.ID
	return r.JSON(fiber.StatusCreated, scheduleViewOf(created))
}

func (a *API) deleteSchedule(r *httpkit.Request) error {
	s, err := a.deps.Schedules.Schedule(r.Ctx, job.ID{}, r.PathID())
	if err != nil {
		return err
	}
	return a.deps.Schedules.Delete(r.Ctx, s.ClientID, r.PathID())
}

func (a *API) triggerSchedule(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusAccepted, func(j *job.Job) api.JobReceipt {
		return api.JobReceipt{JobID: j.ID, State: job.Queued, CreatedAt: job.Time(j.CreatedAt)}
	})(a.deps.Schedules.Trigger(r.Ctx, job.ID{}, r.PathID(), time.Now(), r.ID))
}

func (a *API) pauseSchedule(paused bool) httpkit.Handler {
	return func(r *httpkit.Request) error {
		return httpkit.Respond(r, fiber.StatusOK, scheduleViewOf)(a.deps.Schedules.SetPaused(r.Ctx, job.ID{}, r.PathID(), paused))
	}
}
