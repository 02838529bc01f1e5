package testbed

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// MaxFixtures is how many jobs one request may ask for.
const MaxFixtures = 20

// FixtureState is a state that a test wants a job to be in.
type FixtureState string

// The states.
const (
	FixtureScheduled FixtureState = "scheduled" // CREATED, a day ahead
	FixtureRunning   FixtureState = "running"   // with Progress behind it
	FixtureSucceeded FixtureState = "succeeded" // with Result
	FixtureFailed    FixtureState = "failed"    // at its first attempt, with Problem
	FixtureExhausted FixtureState = "exhausted" // the same after all attempts
	FixtureCanceled  FixtureState = "canceled"
	FixtureGone      FixtureState = "gone"    // it succeeded, and was deleted
	FixtureExpired   FixtureState = "expired" // it succeeded, and its result has expired
)

// FixtureStates are all of them.
var FixtureStates = []FixtureState{
	FixtureScheduled, FixtureRunning, FixtureSucceeded, FixtureFailed, FixtureExhausted, FixtureCanceled, FixtureGone, FixtureExpired,
}

// Ends reports whether a worker must have run the job to its end.
func (s FixtureState) Ends() bool {
	switch s {
	case FixtureSucceeded, FixtureFailed, FixtureExhausted, FixtureGone, FixtureExpired:
		return true
	}
	return false
}

// Fails reports whether the job fails.
func (s FixtureState) Fails() bool { return s == FixtureFailed || s == FixtureExhausted }

// Fixture is a job that a test wants.
type Fixture struct {
	State         FixtureState
	Progress      int // percent, of a running one
	CorrelationID string
	Problem       job.PlannedProblem
	Result        job.PlannedResult

	// Both as they were sent, for the params of the job.
	ProblemText, ResultText json.RawMessage
}

// Made is a job that was made for a test.
type Made struct {
	JobID   job.ID
	Fixture FixtureState
	State   job.State // the one that the job has had last
}
