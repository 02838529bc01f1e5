package job

// State is a state in the lifecycle of a job (section 9 of the API specification).
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

// next is the transition table: all transitions that clients and workers cause.
var next = map[State][]State{
	Created:  {Queued, Canceled},
	Queued:   {Assigned, Canceled},
	Assigned: {Running, Canceled},
	Running:  {Succeeded, Failed, Canceled},
	Failed:   {Queued},
}

// CanTransition reports whether a job may change from one state to another (section 9). It returns false for the return of a job after an
// expired lease, see IsLeaseReturn.
func CanTransition(from, to State) bool {
	for _, s := range next[from] {
		if s == to {
			return true
		}
	}
	return false
}

// IsLeaseReturn reports whether the transition is ASSIGNED -> QUEUED. Section 9 forbids it to clients and workers, but section 12 requires
// it after a lease has expired. It always has the event job.lease_expired.
func IsLeaseReturn(from, to State) bool { return from == Assigned && to == Queued }

// Valid reports whether s is one of the seven states.
func (s State) Valid() bool {
	for _, known := range States {
		if s == known {
			return true
		}
	}
	return false
}

// Final reports whether s ends an attempt: SUCCEEDED, FAILED or CANCELED.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Canceled }

// Waiting reports whether a job in s waits for its time or for a worker.
func (s State) Waiting() bool { return s == Created || s == Queued }

// Held reports whether a worker holds a job in s.
func (s State) Held() bool { return s == Assigned || s == Running }

// Outcome is the outcome of a finished job (section 8, get job).
type Outcome string

// Outcomes of finished jobs.
const (
	OutcomeSuccess  Outcome = "SUCCESS"
	OutcomeFailed   Outcome = "FAILED"
	OutcomeCanceled Outcome = "CANCELED"
)

// OutcomeOf returns the outcome of a final state, or "" for other states.
func OutcomeOf(s State) Outcome {
	switch s {
	case Succeeded:
		return OutcomeSuccess
	case Failed:
		return OutcomeFailed
	case Canceled:
		return OutcomeCanceled
	default:
		return ""
	}
}
