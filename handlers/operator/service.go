package operator

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Overviewer makes overviews of the service.
type Overviewer interface {
	Overview(ctx context.Context, w admin.Window) (*admin.Overview, error)
}

var windowQuery = query.Choice("window", []admin.Window{admin.LastQuarterHour, admin.LastHour, admin.LastDay})

// getOverview answers with what an operator looks at first.
func (a *API) getOverview(c *call) (answer, error) {
	return ok(a.deps.Overview.Overview(c.Context(), cmp.Or(admin.Window(c.param("window")), admin.LastQuarterHour)))
}

func (a *API) getSystem(c *call) (answer, error) {
	system, err := a.deps.Reader.System(c.Context())
	if err != nil {
		return answer{}, err
	}
	system.Version, system.TestBed = a.cfg.Version, a.deps.Testbed != nil
	return ok(system, nil)
}

// find answers with what has an id.
func (a *API) find(c *call) (answer, error) {
	found, err := a.deps.Reader.Find(c.Context(), query.IDOf(c.param("id")))
	return ok(map[string][]admin.Found{"data": found}, err)
}

type catalogueView struct {
	Types []job.Type `json:"types"`
	Kinds []kindView `json:"kinds"`

	Profiles []fault.Profile `json:"profiles"` // of faults; empty unless this is a test bed
}

type kindView struct {
	WorkKind        job.Kind `json:"work_kind"`
	Description     string   `json:"description"`
	ShouldFail      bool     `json:"should_fail"`
	DurationMS      int64    `json:"duration_ms"`
	ExpectedOutcome string   `json:"expected_outcome"`
}

// kindDescriptions says what each kind does, as the API's document has it.
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
		panic(err) // cannot happen: the document is embedded
	}
	return d.Components.Schemas.WorkKind.Descriptions
})

// getCatalogue answers with what jobs can do on this server.
func (a *API) getCatalogue(*call) (answer, error) {
	v := catalogueView{Types: a.cfg.Catalogue.Types, Profiles: []fault.Profile{}}
	if a.deps.Testbed != nil {
		v.Profiles = fault.Profiles
	}
	for _, kind := range a.cfg.Catalogue.Offered() {
		spec, _ := job.SpecOf(kind, a.cfg.Catalogue.MaxRuntime)
		v.Kinds = append(v.Kinds, kindView{kind, kindDescriptions()[kind], spec.ShouldFail, spec.DurationMS, spec.Expected})
	}
	return ok(v, nil)
}

// Pauses stops and resumes jobs.
type Pauses interface {
	Pause(ctx context.Context, p job.Pause) (stored job.Pause, added bool, err error)
	Resume(ctx context.Context, id job.ID) error
	Pauses(ctx context.Context) (job.Pauses, error)
}

type pauseView struct {
	PauseID   job.ID         `json:"pause_id"`
	Scope     job.PauseScope `json:"scope"`
	Target    *string        `json:"target"` // null of all
	Mode      job.PauseMode  `json:"mode"`
	Operator  string         `json:"operator"`
	Reason    string         `json:"reason"`
	CreatedAt job.Time       `json:"created_at"`
}

func pauseViewOf(p job.Pause) pauseView {
	return pauseView{p.ID, p.Scope, view.OrNull(p.Target), p.Mode, p.Operator, p.Reason, job.Time(p.CreatedAt)}
}

// pauseDetail is what the audit log keeps of the request.
func pauseDetail(_ *call, p job.Pause) any {
	return map[string]any{"scope": p.Scope, "target": p.Target, "mode": p.Mode, "reason": p.Reason}
}

// pause stops something.
func (a *API) pause(c *call, asked job.Pause) (answer, error) {
	if asked.Scope == job.PauseClient {
		if _, err := a.deps.Reader.Client(c.Context(), query.IDOf(asked.Target)); err != nil {
			return answer{}, err
		}
	}
	asked.Operator = c.operator.Name
	p, added, err := a.deps.Pauses.Pause(c.Context(), asked)
	if err != nil {
		return answer{}, err
	}
	c.made = p.ID.String()
	status := http.StatusOK
	if added {
		status = http.StatusCreated
	}
	return answer{status: status, value: pauseViewOf(p)}, nil
}

// resume ends a pause.
func (a *API) resume(c *call) (answer, error) {
	return answer{status: http.StatusNoContent}, a.deps.Pauses.Resume(c.Context(), c.subject)
}

func (a *API) listPauses(c *call) (answer, error) {
	return render(http.StatusOK, func(all job.Pauses) any {
		return struct {
			Data []pauseView `json:"data"`
		}{query.ListOf(all, 0, pauseViewOf).Data}
	})(a.deps.Pauses.Pauses(c.Context()))
}

// Schedules are the use cases of schedules; a zero client stands for all.
type Schedules interface {
	Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error)
	Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) ([]*job.Schedule, job.ID, error)
	Create(ctx context.Context, r job.ScheduleRequest) (*job.Schedule, error)
	Delete(ctx context.Context, client, id job.ID) error
	SetPaused(ctx context.Context, client, id job.ID, paused bool) (*job.Schedule, error)
	Trigger(ctx context.Context, client, id job.ID, now time.Time, requestID string) (*job.Job, error)
}

// scheduleView is a schedule without what its client sends with the jobs.
type scheduleView struct {
	view.Schedule
	ClientID job.ID    `json:"client_id"`
	Type     job.Type  `json:"type"`
	Kind     *job.Kind `json:"kind"`
}

func scheduleViewOf(s *job.Schedule) scheduleView {
	return scheduleView{view.ScheduleOf(s), s.ClientID, s.Job.Type, view.OrNull(s.Job.WorkKind)}
}

func (a *API) listSchedules(c *call) (answer, error) {
	return paged(c, scheduleViewOf, func(after job.ID, limit int) ([]*job.Schedule, job.ID, error) {
		return a.deps.Schedules.Schedules(c.Context(), query.IDOf(c.param("client_id")), job.ScheduleQuery{After: after, Limit: limit})
	})
}

func (a *API) getSchedule(c *call) (answer, error) {
	return render(http.StatusOK, scheduleViewOf)(a.deps.Schedules.Schedule(c.Context(), job.ID{}, c.subject))
}

// createSchedule creates a schedule in the name of a client, in the form of the public API.
func (a *API) createSchedule(c *call, asked decode.ForClient) (answer, error) {
	if _, err := a.deps.Reader.Client(c.Context(), asked.ClientID); err != nil {
		return answer{}, err
	}
	request, err := decode.Schedule(asked.Request, a.decodeLimits())
	if err != nil {
		return answer{}, within("/schedule", err)
	}
	request.Job.ClientID, request.Schedule.ClientID = asked.ClientID, asked.ClientID
	request.Schedule.RequestID, request.Schedule.Language = c.requestID, job.Languages[0]
	created, err := a.deps.Schedules.Create(c.Context(), request)
	if err != nil {
		return answer{}, within("/schedule", err)
	}
	c.made = created.ID.String()
	return answer{status: http.StatusCreated, value: scheduleViewOf(created)}, nil
}

func (a *API) deleteSchedule(c *call) (answer, error) {
	s, err := a.deps.Schedules.Schedule(c.Context(), job.ID{}, c.subject)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.deps.Schedules.Delete(c.Context(), s.ClientID, c.subject)
}

// triggerSchedule submits a job of the schedule now.
func (a *API) triggerSchedule(c *call) (answer, error) {
	return render(http.StatusAccepted, func(j *job.Job) view.Receipt {
		return view.Receipt{JobID: j.ID, State: job.Queued, CreatedAt: job.Time(j.CreatedAt)}
	})(a.deps.Schedules.Trigger(c.Context(), job.ID{}, c.subject, time.Now(), c.requestID))
}

// pauseSchedule pauses a schedule of any client, or resumes it.
func (a *API) pauseSchedule(paused bool) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		return render(http.StatusOK, scheduleViewOf)(a.deps.Schedules.SetPaused(c.Context(), job.ID{}, c.subject, paused))
	}
}
