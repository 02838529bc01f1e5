package operator

import (
	"context"
	"net/http"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

// Schedules are the use cases of schedules; a zero client stands for all.
type Schedules interface {
	Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error)
	Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) ([]*job.Schedule, job.ID, error)
	SetPaused(ctx context.Context, client, id job.ID, paused bool) (*job.Schedule, error)
}

// scheduleView is a schedule without what its client sends with the jobs.
type scheduleView struct {
	ScheduleID job.ID             `json:"schedule_id"`
	ClientID   job.ID             `json:"client_id"`
	Name       *string            `json:"name"`
	State      job.ScheduleState  `json:"state"`
	Cron       *string            `json:"cron"`
	TimeZone   *string            `json:"time_zone"`
	Interval   *string            `json:"interval"`
	Overlap    job.Overlap        `json:"overlap"`
	CatchUp    job.CatchUp        `json:"catch_up"`
	Type       job.Type           `json:"type"`
	Kind       *job.Kind          `json:"kind"`
	CreatedAt  job.Time           `json:"created_at"`
	NextRuns   []job.Time         `json:"next_runs"`
	LastRunAt  *job.Time          `json:"last_run_at"`
	LastJobID  *job.ID            `json:"last_job_id"`
	Runs       int64              `json:"runs"`
	Missed     int64              `json:"missed"`
	Skipped    int64              `json:"skipped"`
	LastError  *job.ScheduleError `json:"last_error"`
}

func scheduleViewOf(s *job.Schedule) scheduleView {
	v := scheduleView{
		ScheduleID: s.ID, ClientID: s.ClientID, Name: orNull(s.Name), State: s.State(), Cron: orNull(s.Cron), TimeZone: orNull(s.TimeZone),
		Overlap: s.Overlap, CatchUp: s.CatchUp, Type: s.Job.Type, Kind: orNull(s.Job.WorkKind), CreatedAt: job.Time(s.CreatedAt),
		NextRuns: []job.Time{}, LastRunAt: job.TimeOf(s.LastDueAt), Runs: s.Runs, Missed: s.Missed, Skipped: s.Skipped, LastError: s.LastError,
	}
	if s.Interval > 0 {
		v.Interval = new(s.Interval.String())
	}
	if !s.LastJobID.IsZero() {
		v.LastJobID = &s.LastJobID
	}
	if times, err := timetable.New(s.Timetable, s.Anchor()); err == nil && s.DueAt != nil {
		for _, at := range times.Next(*s.DueAt, job.ShownRuns) {
			v.NextRuns = append(v.NextRuns, job.Time(at))
		}
	}
	return v
}

func (a *API) listSchedules(c *call) (answer, error) {
	q := job.ScheduleQuery{Limit: query.Limit(c.param("limit"), query.DefaultLimit)}
	position, err := c.openCursor(len(job.ID{}))
	if err != nil {
		return answer{}, err
	}
	copy(q.After[:], position)
	var client job.ID
	if text := c.param("client_id"); text != "" {
		client, _ = job.ParseID(text) // checked with the query
	}
	all, next, err := a.deps.Schedules.Schedules(c.Context(), client, q)
	if err != nil {
		return answer{}, err
	}
	views := make([]scheduleView, len(all))
	for i, s := range all {
		views[i] = scheduleViewOf(s)
	}
	return c.page(views, q.Limit, next.IsZero(), next[:])
}

// ofSchedule answers with the schedule that the path names, after do.
func ofSchedule(do func(ctx context.Context, id job.ID) (*job.Schedule, error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		id, err := c.pathID(job.CodeScheduleMissing, "schedule")
		if err != nil {
			return answer{}, err
		}
		s, err := do(c.Context(), id)
		if err != nil {
			return answer{}, err
		}
		return asJSON(http.StatusOK, scheduleViewOf(s))
	}
}

func (a *API) getSchedule(ctx context.Context, id job.ID) (*job.Schedule, error) {
	return a.deps.Schedules.Schedule(ctx, job.ID{}, id)
}

// pauseSchedule pauses a schedule of any client, or resumes it.
func (a *API) pauseSchedule(paused bool) func(context.Context, job.ID) (*job.Schedule, error) {
	return func(ctx context.Context, id job.ID) (*job.Schedule, error) {
		return a.deps.Schedules.SetPaused(ctx, job.ID{}, id, paused)
	}
}

// orNull makes the absent value null.
func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}
