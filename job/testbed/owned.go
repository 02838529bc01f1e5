package testbed

import (
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// OwnedSession is a session with its owner, as operators see it.
type OwnedSession struct {
	ClientID job.ID `json:"client_id"`
	verdict.Session
}

// OwnedVerdict is a verdict with about whom it is, as operators see it.
type OwnedVerdict struct {
	ClientID job.ID `json:"client_id"`
	verdict.Verdict
}

// OwnedRule is a rule with its owner, as operators see it.
type OwnedRule struct {
	ClientID job.ID `json:"client_id"`
	Label    string `json:"label,omitempty"` // of the session whose requests are meant
	fault.View
}

// NextClock is the clock with when the next job, or run of a schedule, becomes due; nil if none does.
type NextClock struct {
	ClockState
	NextDueAt *job.Time `json:"next_due_at"`
}
