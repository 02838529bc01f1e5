package testbed

import (
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// OwnedSession is a session with whose it is, as operators see it.
type OwnedSession struct {
	ClientID job.ID `json:"client_id"`
	verdict.Session
}

// OwnedVerdict is a verdict with about whom it is, as operators see it.
type OwnedVerdict struct {
	ClientID job.ID `json:"client_id"`
	verdict.Verdict
}

// Rule is a rule of faults with what became of it, as clients see it.
type Rule struct {
	RuleID  string       `json:"rule_id"`
	Match   fault.Match  `json:"match"`
	Effect  fault.Effect `json:"effect"`
	Seed    int64        `json:"seed"`
	Seen    int64        `json:"seen"`
	Applied int64        `json:"applied"`
}

// RuleOf shows a rule as it is kept.
func RuleOf(c fault.Counted) Rule {
	return Rule{c.ID, c.Match, c.Effect, c.Seed, c.Seen, c.Applied}
}

// OwnedRule is a rule with whose it is, as operators see it.
type OwnedRule struct {
	ClientID job.ID `json:"client_id"`
	Label    string `json:"label,omitempty"` // of the session whose requests are meant
	Rule
}

// NextClock is the clock with when the next job, or run of a schedule, becomes due; nil if none does.
type NextClock struct {
	ClockState
	NextDueAt *job.Time `json:"next_due_at"`
}
