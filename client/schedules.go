package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// What becomes of a due time while an earlier run of its schedule is not final.
const (
	OverlapAllow    = "allow"
	OverlapSkip     = "skip"
	OverlapQueueOne = "queue_one"
)

// Which due times are run of those that are more than a minute late.
const (
	CatchUpNone = "none"
	CatchUpLast = "last"
	CatchUpAll  = "all"
)

// ScheduleRequest is a schedule to be created, with Cron or Interval.
type ScheduleRequest struct {
	Name       string     `json:"name,omitempty"`
	Cron       string     `json:"cron,omitempty"`      // five fields, or six with seconds first
	TimeZone   string     `json:"time_zone,omitempty"` // IANA, of Cron; "": UTC
	Interval   string     `json:"interval,omitempty"`  // as time.Duration writes it, from 1s on
	Jitter     string     `json:"jitter,omitempty"`
	StartAt    time.Time  `json:"start_at,omitzero"`
	EndAt      time.Time  `json:"end_at,omitzero"`
	Overlap    string     `json:"overlap,omitempty"`      // OverlapAllow if ""
	CatchUp    string     `json:"catch_up,omitempty"`     // CatchUpNone if ""
	CatchUpMax int        `json:"catch_up_max,omitempty"` // 0: 100
	Paused     bool       `json:"paused,omitempty"`
	Job        JobRequest `json:"job"` // Execute or EmitEvent
}

// Schedule is a schedule as the service shows it.
type Schedule struct {
	ScheduleID string            `json:"schedule_id"`
	Name       string            `json:"name"`
	State      string            `json:"state"` // ACTIVE, PAUSED or ENDED
	Cron       string            `json:"cron"`
	TimeZone   string            `json:"time_zone"`
	Interval   string            `json:"interval"`
	Jitter     string            `json:"jitter"`
	StartAt    time.Time         `json:"start_at"`
	EndAt      time.Time         `json:"end_at"`
	Overlap    string            `json:"overlap"`
	CatchUp    string            `json:"catch_up"`
	CatchUpMax int               `json:"catch_up_max"`
	Job        JobRequest        `json:"job"`
	Paused     bool              `json:"paused"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	NextRuns   []time.Time       `json:"next_runs"` // up to five due times, without jitter
	WaitingFor time.Time         `json:"waiting_for"`
	LastRunAt  time.Time         `json:"last_run_at"`
	LastJobID  string            `json:"last_job_id"`
	Runs       int64             `json:"runs"`
	Missed     int64             `json:"missed"`
	Skipped    int64             `json:"skipped"`
	LastError  *ScheduleError    `json:"last_error"`
	Links      map[string]string `json:"links"`
	Warnings   []Violation       `json:"warnings"` // in the answer to CreateSchedule and UpdateSchedule only
	Meta       `json:"-"`
}

// ScheduleError says why a due time got no job, or none yet.
type ScheduleError struct {
	ScheduledFor time.Time `json:"scheduled_for"`
	Code         string    `json:"code"`
	Detail       string    `json:"detail"`
}

// CreateSchedule creates a schedule. A request whose answer is lost is sent again with the
// same idempotency key, so that there is one.
func (c *Client) CreateSchedule(ctx context.Context, schedule ScheduleRequest, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules").with(schedule).keyed())
}

// Schedule reads a schedule.
func (c *Client) Schedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, get(options, "schedules", id).of(id))
}

// Schedules lists the client's schedules, newest first.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[Schedule, error] {
	return list[Schedule](ctx, c, get(nil, "schedules"), false)
}

// UpdateSchedule changes the members that the patch has (a JSON merge patch): nil removes
// one, such as "cron" when "interval" is given. The names are those of ScheduleRequest.
func (c *Client) UpdateSchedule(ctx context.Context, id string, patch map[string]any, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, newRequest(http.MethodPatch, options, []string{"schedules", id}).with(patch).of(id))
}

// DeleteSchedule removes a schedule; its jobs stay. A 404 to a repetition after a lost
// answer counts as deleted.
func (c *Client) DeleteSchedule(ctx context.Context, id string, options ...Option) error {
	return c.remove(ctx, options, "schedules", id)
}

// PauseSchedule has nothing be due any more. Safe to repeat.
func (c *Client) PauseSchedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules", id, "pause").of(id))
}

// ResumeSchedule has a schedule be due again, from now on. Safe to repeat.
func (c *Client) ResumeSchedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules", id, "resume").of(id))
}

// TriggerSchedule submits a job of a schedule now, beside its due times.
func (c *Client) TriggerSchedule(ctx context.Context, id string, options ...Option) (*Accepted, error) {
	return fetch[Accepted](ctx, c, post(options, "schedules", id, "trigger").keyed())
}
