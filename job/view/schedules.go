package view

import (
	"time"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

// Schedule is a schedule without the request for its jobs, which contains the client's data.
type Schedule struct {
	ScheduleID job.ID             `json:"schedule_id"`
	Name       *string            `json:"name"`
	State      job.ScheduleState  `json:"state"`
	Cron       *string            `json:"cron"` // null with an interval
	TimeZone   *string            `json:"time_zone"`
	Interval   *string            `json:"interval"` // null with cron
	Overlap    job.Overlap        `json:"overlap"`
	CatchUp    job.CatchUp        `json:"catch_up"`
	CreatedAt  job.Time           `json:"created_at"`
	NextRuns   []job.Time         `json:"next_runs"` // due times without jitter; empty if paused or ended
	LastRunAt  *job.Time          `json:"last_run_at"`
	LastJobID  *job.ID            `json:"last_job_id"`
	Runs       int64              `json:"runs"`
	Missed     int64              `json:"missed"`
	Skipped    int64              `json:"skipped"`
	LastError  *job.ScheduleError `json:"last_error"`
}

// ScheduleOf returns the view of a schedule.
func ScheduleOf(s *job.Schedule) Schedule {
	v := Schedule{
		ScheduleID: s.ID, Name: OrNull(s.Name), State: s.State(), Cron: OrNull(s.Cron), TimeZone: OrNull(s.TimeZone),
		Interval: DurationOrNull(s.Interval), Overlap: s.Overlap, CatchUp: s.CatchUp, CreatedAt: job.Time(s.CreatedAt),
		NextRuns: []job.Time{}, LastRunAt: job.TimeOf(s.LastDueAt), LastJobID: OrNull(s.LastJobID),
		Runs: s.Runs, Missed: s.Missed, Skipped: s.Skipped, LastError: s.LastError,
	}
	times, err := timetable.New(s.Timetable, s.Anchor())
	if err != nil || s.DueAt == nil {
		return v
	}
	for _, at := range times.Next(*s.DueAt, job.ShownRuns) {
		v.NextRuns = append(v.NextRuns, job.Time(at))
	}
	return v
}

// DurationOrNull formats a duration; 0 becomes null.
func DurationOrNull(d time.Duration) *string {
	if d == 0 {
		return nil
	}
	return new(d.String())
}
