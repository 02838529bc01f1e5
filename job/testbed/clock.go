package testbed

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// ClockState is what the clock of a test bed shows, and how it runs.
type ClockState struct {
	Now    job.Time       `json:"now"`
	Offset fault.Duration `json:"offset"` // by how much it is ahead of the clock of Postgres
	Rate   float64        `json:"rate"`   // how many of its seconds pass in a second, unless it is frozen
	Frozen bool           `json:"frozen"`
}

// Bounds of the clock.
const (
	MinRate  = 0.1
	MaxRate  = 3600
	MaxYears = 10 // by which it can be moved ahead of the real time
)

// ClockMove says how the clock is to be moved; one member is set.
type ClockMove struct {
	Advance *time.Duration // by so much, at once
	Set     *time.Time     // to this time, at once
	Freeze  *bool          // true stops it, false lets it run on at its rate
	Rate    *float64       // lets it run so fast, also if it was frozen
}

// From is the state of the clock after the move. It fails if the clock would go backwards, or too far.
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
				Detail: "Lies before the present time of the clock, " + time.Time(s.Now).UTC().Format(time.RFC3339Nano) + "."}}}
	}
	real := time.Time(s.Now).Add(-time.Duration(s.Offset))
	if latest := real.AddDate(MaxYears, 0, 0); now.After(latest) && (m.Advance != nil || m.Set != nil) {
		pointer := "/set"
		if m.Advance != nil {
			pointer = "/advance"
		}
		return s, &job.Error{Code: job.CodeValidationFailed, Detail: "The clock cannot be moved that far.",
			Violations: []job.Violation{{Pointer: pointer,
				Detail: fmt.Sprintf("Leads more than %d years ahead of the real time, beyond %s.", MaxYears, latest.UTC().Format(time.RFC3339))}}}
	}
	s.Offset += fault.Duration(now.Sub(time.Time(s.Now)))
	s.Now = job.Time(now)
	return s, nil
}
