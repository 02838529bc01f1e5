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

// OwnedVerdict is a verdict with the owner of its session, as operators see it.
type OwnedVerdict struct {
	ClientID job.ID `json:"client_id"`
	verdict.Verdict
}

// OwnedRule is a rule with its owner, as operators see it.
type OwnedRule struct {
	ClientID job.ID `json:"client_id"`
	Label    string `json:"label,omitempty"` // of the session
	fault.View
}

// NextClock is the clock with the next due time of a job or a schedule; nil if there is none.
type NextClock struct {
	ClockState
	NextDueAt *job.Time `json:"next_due_at"`
}
