package job

import (
	"encoding/json"
	"errors"
	"time"
)

// Limits of schedules.
const (
	DefaultCatchUp     = 100
	ShownRuns          = 5 // due times shown for a schedule
	MaxCronBytes       = 200
	MaxTimeZoneBytes   = 64
	ScheduleOnTime     = time.Minute // a due time without a run counts as missed after this time; a change of leader takes less
	scheduleErrorBytes = 500
)

// Overlap says what happens at a due time if an earlier run of the schedule is not final.
type Overlap string

// Overlap policies.
const (
	OverlapAllow    Overlap = "allow"     // submit a job anyway
	OverlapSkip     Overlap = "skip"      // submit no job for this due time
	OverlapQueueOne Overlap = "queue_one" // one due time waits for the end of the run, others are skipped
)

// CatchUp is the policy for missed due times. A due time is missed if ScheduleOnTime plus the schedule's Jitter pass without a run.
type CatchUp string

// Catch-up policies.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // submit a job for the latest missed due time
	CatchUpAll  CatchUp = "all"  // submit jobs for the latest missed due times, at most CatchUpMax
)

// Timetable determines when a schedule is due. It has either a Cron expression, evaluated in TimeZone, or an Interval.
type Timetable struct {
	Cron     string
	TimeZone string        // IANA name; with Cron only
	Interval time.Duration // 0 with Cron
	Jitter   time.Duration // maximum delay of a run after its due time
	StartAt  *time.Time    // first possible due time, and start of the first interval
	EndAt    *time.Time    // last possible due time
}

// ScheduledJob is the stored request for the job of each run.
type ScheduledJob struct {
	Type          Type            `json:"type"`
	WorkKind      Kind            `json:"work_kind,omitempty"`
	Callback      string          `json:"callback,omitempty"`
	Params        json.RawMessage `json:"params,omitempty"`
	AutoRetry     bool            `json:"auto_retry,omitempty"`
	Emit          *Emission       `json:"event,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Behavior      *Behavior       `json:"behavior,omitempty"` // behavior of a CUSTOM job, from Params
	Retry         *RetryPolicy    `json:"retry,omitempty"`
}

// ScheduledJobOf returns the part of a request that a schedule stores for its runs.
func ScheduledJobOf(r Request) ScheduledJob {
	return ScheduledJob{r.Type, r.WorkKind, r.Callback, r.Params, r.AutoRetry, r.Emit, r.CorrelationID, r.Behavior, r.Retry}
}

// Schedule submits jobs at set times.
type Schedule struct {
	ID       ID
	ClientID ID
	Name     string
	Timetable
	Overlap    Overlap
	CatchUp    CatchUp
	CatchUpMax int
	Job        ScheduledJob
	Language   string
	RequestID  string // id of the request that created the schedule; also the request id of the jobs
	Paused     bool
	CreatedAt  time.Time
	UpdatedAt  time.Time

	// Version increases with each change. An update of an older version fails.
	Version int64
	ScheduleProgress
}

// ScheduleProgress is the progress of a schedule.
type ScheduleProgress struct {
	DueAt    *time.Time // next due time; nil if the schedule is paused or has ended
	LookAt   *time.Time // next time when the leader must check the schedule; nil if there is none
	Pending  *time.Time // due time of a run that waits for an earlier run to end
	Retrying bool       // the submission for DueAt was refused and will be repeated

	Runs, Missed, Skipped int64 // numbers of due times: Runs got a job, Missed were too late, Skipped got no job because of Overlap
	LastDueAt             *time.Time
	LastJobID             ID
	LastError             *ScheduleError
}

// ScheduleError is the reason why a due time has no job, or no job yet.
type ScheduleError struct {
	DueAt  Time   `json:"scheduled_for"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// NewScheduleError returns the part of an error that the schedule's client may read.
func NewScheduleError(due time.Time, err error) *ScheduleError {
	e := &ScheduleError{DueAt: Time(due), Code: CodeOf(err), Detail: "The job could not be submitted."}
	var known *Error
	if errors.As(err, &known) && e.Code != CodeInternal {
		e.Detail = PlainText(known.Detail, scheduleErrorBytes)
	}
	return e
}

// ScheduleState says whether a schedule will run.
type ScheduleState string

// States of a schedule.
const (
	ScheduleActive ScheduleState = "ACTIVE"
	SchedulePaused ScheduleState = "PAUSED"
	ScheduleEnded  ScheduleState = "ENDED" // no due time is left
)

// State returns the schedule's current state.
func (s *Schedule) State() ScheduleState {
	switch {
	case s.Paused:
		return SchedulePaused
	case s.DueAt == nil && s.Pending == nil:
		return ScheduleEnded
	}
	return ScheduleActive
}

// Anchor returns the start of the schedule's first interval.
func (s *Schedule) Anchor() time.Time {
	if s.StartAt != nil {
		return *s.StartAt
	}
	return s.CreatedAt
}

// Request returns the request for the job of a run. The due time becomes ReceivedAt, which is also the seed of random values such as the
// work kind.
func (s *Schedule) Request(due time.Time) Request {
	j := s.Job
	return Request{
		ClientID: s.ClientID, RequestID: s.RequestID, ReceivedAt: due, Type: j.Type, WorkKind: j.WorkKind, Callback: j.Callback,
		Params: j.Params, AutoRetry: j.AutoRetry, Emit: j.Emit, Behavior: j.Behavior, CorrelationID: j.CorrelationID, Language: s.Language,
		Retry: j.Retry,
	}
}

// DueSchedule is a schedule that the leader must check.
type DueSchedule struct {
	Schedule
	Now  time.Time // current time by the service's clock
	Busy bool      // an earlier run is not final, and Overlap is not "allow"
	// Jumped is the time to which a test bed's clock jumped. Due times up to this time do not count as missed.
	Jumped *time.Time
}

// ScheduleStep is one update of a schedule by the leader, with the jobs to submit. If the schedule has another Version by now, nothing is
// written.
type ScheduleStep struct {
	ID      ID
	Version int64 // version of the schedule when it was read
	ScheduleProgress
	Jobs []Job // jobs to submit; their ScheduledFor is set
}

// ScheduleRequest is a decoded request for a schedule. Violations lists the mistakes that decoding found.
type ScheduleRequest struct {
	Schedule   Schedule
	Job        Request
	Violations []Violation
	Unlisted   int
	Malformed  bool
	Warnings   []Violation // warnings about Job
}

// Refusal returns the error for r with all violations.
func (r ScheduleRequest) Refusal(violations []Violation) *Error {
	return Request{Malformed: r.Malformed, Unlisted: r.Unlisted}.Refusal(violations)
}

// ScheduleQuery selects a part of a list of schedules.
type ScheduleQuery struct {
	After ID // the page begins after this schedule; the list runs from new to old
	Limit int
}

// SchedulePath returns the path of a schedule.
func SchedulePath(id ID) string { return "/v1/schedules/" + id.String() }

// SchedulePatch is a decoded change of a schedule. A nil field leaves the schedule's value unchanged.
type SchedulePatch struct {
	Name       *string
	Cron       *string        // "" removes it
	TimeZone   *string        // "" is UTC
	Interval   *time.Duration // 0 removes it
	Jitter     *time.Duration
	StartAt    **time.Time
	EndAt      **time.Time
	Overlap    *Overlap
	CatchUp    *CatchUp
	CatchUpMax *int
	Job        *Request
	Times      bool // the patch changes the due times

	Violations []Violation
	Unlisted   int
	Malformed  bool
}

// Apply applies the patch to a schedule.
func (p SchedulePatch) Apply(s *Schedule) {
	set(&s.Name, p.Name)
	set(&s.Cron, p.Cron)
	set(&s.TimeZone, p.TimeZone)
	set(&s.Interval, p.Interval)
	set(&s.Jitter, p.Jitter)
	set(&s.StartAt, p.StartAt)
	set(&s.EndAt, p.EndAt)
	set(&s.Overlap, p.Overlap)
	set(&s.CatchUp, p.CatchUp)
	set(&s.CatchUpMax, p.CatchUpMax)
	if p.Job != nil {
		s.Job = ScheduledJobOf(*p.Job)
		s.Language = p.Job.Language
	}
}

func set[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}
