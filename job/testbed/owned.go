package testbed

import (
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// OwnedSession is a session with its owner, for operators.
type OwnedSession struct {
	ClientID job.ID `json:"client_id"`
	verdict.Session
}

// OwnedVerdict is a verdict with the owner of its session, for operators.
type OwnedVerdict struct {
	ClientID job.ID `json:"client_id"`
	verdict.Verdict
}

// OwnedRule is a rule with its owner, for operators.
type OwnedRule struct {
	ClientID job.ID `json:"client_id"`
	Label    string `json:"label,omitempty"` // label of the session
	fault.View
}

// NextClock is the clock with the next due time of a job or a schedule.
type NextClock struct {
	ClockState
	NextDueAt *job.Time `json:"next_due_at"`
}
