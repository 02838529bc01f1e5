package testbed

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// ClockState is the time and the rate of a test bed's clock.
type ClockState struct {
	Now    job.Time       `json:"now"`
	Offset fault.Duration `json:"offset"` // how far the clock is ahead of Postgres' clock
	Rate   float64        `json:"rate"`   // seconds of this clock per real second, unless frozen
	Frozen bool           `json:"frozen"`
}

// NextClock is the state of the clock, and the next time at which a job or a schedule becomes due.
type NextClock struct {
	ClockState
	NextDueAt *job.Time `json:"next_due_at"`
}

// MaxYears limits the offset of the clock from real time.
const MaxYears = 10

// ClockMove is a move of the clock. Exactly one field is set.
type ClockMove struct {
	Advance *time.Duration
	Set     *time.Time
	Freeze  *bool    // true stops the clock; false resumes it at its rate
	Rate    *float64 // new rate; a frozen clock resumes
}

// From returns the state of the clock after the move. It fails if the clock would go backwards, or too far.
func (m ClockMove) From(s ClockState) (ClockState, error) {
	now := time.Time(s.Now)
	switch {
	case m.Advance != nil:
		now = now.Add(*m.Advance)
	case m.Set != nil:
		now = *m.Set
	case m.Freeze != nil:
		s.Frozen = *m.Freeze
	case m.Rate != nil:
		s.Rate, s.Frozen = *m.Rate, false
	}
	if now.Before(time.Time(s.Now)) {
		return s, &job.Error{Code: job.CodeValidationFailed, Detail: "The clock cannot be moved backwards.",
			Violations: []job.Violation{{Pointer: "/set",
				Detail: "This is before the current time of the clock, " + time.Time(s.Now).UTC().Format(time.RFC3339Nano) + "."}}}
	}
	real := time.Time(s.Now).Add(-time.Duration(s.Offset))
	if latest := real.AddDate(MaxYears, 0, 0); now.After(latest) && (m.Advance != nil || m.Set != nil) {
		pointer := "/set"
		if m.Advance != nil {
			pointer = "/advance"
		}
		return s, &job.Error{Code: job.CodeValidationFailed, Detail: "The clock cannot be moved that far ahead.",
			Violations: []job.Violation{{Pointer: pointer,
				Detail: fmt.Sprintf("This is more than %d years ahead of the real time, after %s.", MaxYears, latest.UTC().Format(time.RFC3339))}}}
	}
	s.Offset += fault.Duration(now.Sub(time.Time(s.Now)))
	s.Now = job.Time(now)
	return s, nil
}
