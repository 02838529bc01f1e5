package job

import "slices"

// State is a state in the lifecycle of a job (API contract, section 9).
type State string

// States of a job.
const (
	Created   State = "CREATED"   // accepted, waits for its execution_at
	Queued    State = "QUEUED"    // ready, waits for a worker
	Assigned  State = "ASSIGNED"  // claimed by a worker, not started
	Running   State = "RUNNING"   // a worker executes it
	Succeeded State = "SUCCEEDED" // finished with a result
	Failed    State = "FAILED"    // finished with an error; may be retried
	Canceled  State = "CANCELED"  // stopped before completion
)

// States lists all states in lifecycle order.
var States = []State{Created, Queued, Assigned, Running, Succeeded, Failed, Canceled}

// Valid reports whether s is one of the seven states.
func (s State) Valid() bool { return slices.Contains(States, s) }

// Final reports whether s ends an attempt: SUCCEEDED, FAILED or CANCELED.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Canceled }

// Waiting reports whether a job in state s waits for its time or for a worker.
func (s State) Waiting() bool { return s == Created || s == Queued }

// Held reports whether a job in state s has a worker.
func (s State) Held() bool { return s == Assigned || s == Running }

// Outcome is the outcome of a finished job (API contract, section 8, get job).
type Outcome string

// Outcomes of finished jobs.
const (
	OutcomeSuccess  Outcome = "SUCCESS"
	OutcomeFailed   Outcome = "FAILED"
	OutcomeCanceled Outcome = "CANCELED"
)
