package job

import (
	"encoding/json"
	"errors"
	"time"
)

// Bounds of schedules.
const (
	MaxCatchUp         = 1000
	DefaultCatchUp     = 100
	MinInterval        = time.Second
	MaxInterval        = 366 * 24 * time.Hour
	MaxScheduleJitter  = time.Hour
	MaxScheduleName    = 100 // characters
	ShownRuns          = 5   // due times that a schedule shows
	MaxCronBytes       = 200
	MaxTimeZoneBytes   = 64
	ScheduleOnTime     = time.Minute // how late a due time is not yet left to CatchUp: leaders change meanwhile
	scheduleErrorBytes = 500
)

// Overlap says what becomes of a due time while an earlier run of the schedule is not final.
type Overlap string

// The overlap policies.
const (
	OverlapAllow    Overlap = "allow"     // it is run
	OverlapSkip     Overlap = "skip"      // it is not run
	OverlapQueueOne Overlap = "queue_one" // one waits for the end of the run, others are not run
)

// Overlaps are all there are.
var Overlaps = []Overlap{OverlapAllow, OverlapSkip, OverlapQueueOne}

// CatchUp says which due times are run that passed unnoticed: those that
// are more than ScheduleOnTime late.
type CatchUp string

// The catch-up policies.
const (
	CatchUpNone CatchUp = "none"
	CatchUpLast CatchUp = "last" // the latest one
	CatchUpAll  CatchUp = "all"  // the latest ones, so many as CatchUpMax says
)

// CatchUps are all there are.
var CatchUps = []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll}

// Timetable says when a schedule is due: by Cron in TimeZone, or at each Interval.
type Timetable struct {
	Cron     string
	TimeZone string        // IANA; of Cron only
	Interval time.Duration // 0 with Cron
	Jitter   time.Duration // a run begins so much after its due time at most
	StartAt  *time.Time    // no due time is before it; intervals count from it
	EndAt    *time.Time    // no due time is after it
}

// ScheduledJob is the request for the job of each run. It is stored.
type ScheduledJob struct {
	Type          Type            `json:"type"`
	WorkKind      Kind            `json:"work_kind,omitempty"`
	Callback      string          `json:"callback,omitempty"`
	Params        json.RawMessage `json:"params,omitempty"`
	AutoRetry     bool            `json:"auto_retry,omitempty"`
	Emit          *Emission       `json:"event,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Behavior      *Behavior       `json:"behavior,omitempty"` // of a CUSTOM job, as Params say
	Retry         *RetryPolicy    `json:"retry,omitempty"`
}

// ScheduledJobOf is what of a request is kept for each run.
func ScheduledJobOf(r Request) ScheduledJob {
	return ScheduledJob{r.Type, r.WorkKind, r.Callback, r.Params, r.AutoRetry, r.Emit, r.CorrelationID, r.Behavior, r.Retry}
}

// Schedule submits jobs at times.
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
	RequestID  string // of its creation; its jobs have it too
	Paused     bool
	CreatedAt  time.Time
	UpdatedAt  time.Time

	// Version rises with each change. An update against an older version fails.
	Version int64
	ScheduleProgress
}

// ScheduleProgress is how far a schedule has come.
type ScheduleProgress struct {
	DueAt    *time.Time // the due time that comes next; nil: it is paused, or none is left
	LookAt   *time.Time // when the leader has something to do about it; nil: never
	Pending  *time.Time // the due time that waits for the end of an earlier run
	Retrying bool       // the submission at DueAt was refused, and is tried again

	Runs, Missed, Skipped int64 // due times that got a job; that got none; that got none for Overlap
	LastDueAt             *time.Time
	LastJobID             ID
	LastError             *ScheduleError
}

// ScheduleError is why a due time got no job, or none yet.
type ScheduleError struct {
	DueAt  Time   `json:"scheduled_for"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// NewScheduleError tells of an error what its client may read.
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

// The states of a schedule.
const (
	ScheduleActive ScheduleState = "ACTIVE"
	SchedulePaused ScheduleState = "PAUSED"
	ScheduleEnded  ScheduleState = "ENDED" // no due time is left
)

// State is the schedule's state now.
func (s *Schedule) State() ScheduleState {
	switch {
	case s.Paused:
		return SchedulePaused
	case s.DueAt == nil && s.Pending == nil:
		return ScheduleEnded
	}
	return ScheduleActive
}

// Anchor is the moment from which intervals count.
func (s *Schedule) Anchor() time.Time {
	if s.StartAt != nil {
		return *s.StartAt
	}
	return s.CreatedAt
}

// Request is the request for the job of a run at its due time, which is the seed of
// what is drawn.
func (s *Schedule) Request(due time.Time) Request {
	j := s.Job
	return Request{
		ClientID: s.ClientID, RequestID: s.RequestID, ReceivedAt: due, Type: j.Type, WorkKind: j.WorkKind, Callback: j.Callback,
		Params: j.Params, AutoRetry: j.AutoRetry, Emit: j.Emit, Behavior: j.Behavior, CorrelationID: j.CorrelationID, Language: s.Language,
		Retry: j.Retry,
	}
}

// DueSchedule is a schedule that the leader is to look at.
type DueSchedule struct {
	Schedule
	Now  time.Time // by the clock that decides what is due
	Busy bool      // an earlier run is not final; not looked at where Overlap allows it
	// Jumped: due times up to then were jumped over by a test bed's clock, and count as
	// on time.
	Jumped *time.Time
}

// ScheduleStep is what is written of a schedule that the leader has looked at: all of
// it or, if the schedule is not at Version any more, nothing.
type ScheduleStep struct {
	ID      ID
	Version int64 // that it had
	ScheduleProgress
	Jobs []Job // with ScheduledFor
}

// ScheduleRequest is a decoded request for a schedule. Violations holds what decoding
// found wrong with it.
type ScheduleRequest struct {
	Schedule   Schedule
	Job        Request
	Violations []Violation
	Unlisted   int
	Malformed  bool
	Warnings   []Violation // about the job
}

// Refusal is the error for r with all that is wrong with it.
func (r ScheduleRequest) Refusal(violations []Violation) *Error {
	return Request{Malformed: r.Malformed, Unlisted: r.Unlisted}.Refusal(violations)
}

// ScheduleQuery chooses a part of a list of schedules.
type ScheduleQuery struct {
	After ID // go on after this schedule; the list runs from new to old
	Limit int
}

// SchedulePath is the path of a schedule.
func SchedulePath(id ID) string { return "/v1/schedules/" + id.String() }

// SchedulePatch is a decoded change of a schedule: what is nil stays as it is.
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
	Times      bool // something changes of when it is due

	Violations []Violation
	Unlisted   int
	Malformed  bool
}

// Apply changes a schedule.
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
