package testbed

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// FixtureState is the state that a test requests for a job.
type FixtureState string

// States of fixtures.
const (
	FixtureScheduled FixtureState = "scheduled" // CREATED, due in a day
	FixtureRunning   FixtureState = "running"   // running, with Fixture.Progress
	FixtureSucceeded FixtureState = "succeeded" // with Fixture.Result
	FixtureFailed    FixtureState = "failed"    // failed at its first attempt, with Fixture.Problem
	FixtureExhausted FixtureState = "exhausted" // failed after all attempts, with Fixture.Problem
	FixtureCanceled  FixtureState = "canceled"
	FixtureGone      FixtureState = "gone"    // succeeded and deleted
	FixtureExpired   FixtureState = "expired" // succeeded, with an expired result
)

// Ends reports whether the job reaches this state only after a worker has finished it.
func (s FixtureState) Ends() bool {
	switch s {
	case FixtureSucceeded, FixtureFailed, FixtureExhausted, FixtureGone, FixtureExpired:
		return true
	}
	return false
}

// Fails reports whether the job fails.
func (s FixtureState) Fails() bool { return s == FixtureFailed || s == FixtureExhausted }

// Fixture is a test's request for a job in a given state.
type Fixture struct {
	State         FixtureState
	Progress      int // percent, of a running job
	CorrelationID string
	Problem       job.PlannedProblem
	Result        job.PlannedResult

	// ProblemText and ResultText are the JSON texts of Problem and Result in the request. They become part of the job's params.
	ProblemText, ResultText json.RawMessage
}

// Made is a job that was created for a test.
type Made struct {
	JobID   job.ID       `json:"job_id"`
	Fixture FixtureState `json:"fixture"`
	State   job.State    `json:"state"` // latest state of the job
}
