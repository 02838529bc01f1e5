package job

// State is where a job is in its lifecycle (API specification, section 9).
type State string

// The seven states.
const (
	Created   State = "CREATED"   // accepted, waits for its execution_at
	Queued    State = "QUEUED"    // ready, waits for a worker
	Assigned  State = "ASSIGNED"  // claimed by a worker, not started
	Running   State = "RUNNING"   // a worker executes it
	Succeeded State = "SUCCEEDED" // finished well
	Failed    State = "FAILED"    // finished with an error; may be retried
	Canceled  State = "CANCELED"  // stopped before completion
)

// States lists all states in lifecycle order.
var States = []State{Created, Queued, Assigned, Running, Succeeded, Failed, Canceled}

// next is the transition table. It has all transitions by clients and workers.
var next = map[State][]State{
	Created:  {Queued, Canceled},
	Queued:   {Assigned, Canceled},
	Assigned: {Running, Canceled},
	Running:  {Succeeded, Failed, Canceled},
	Failed:   {Queued},
}

// CanTransition reports whether a job may change from one state to another (section 9). It is false for the return after an expired lease,
// see IsLeaseReturn.
func CanTransition(from, to State) bool {
	for _, s := range next[from] {
		if s == to {
			return true
		}
	}
	return false
}

// IsLeaseReturn reports whether the step is ASSIGNED -> QUEUED. Section 9 forbids it, but section 12 requires it of the system. It happens
// only when a lease has expired, and always with the event job.lease_expired.
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

// The three outcomes.
const (
	OutcomeSuccess  Outcome = "SUCCESS"
	OutcomeFailed   Outcome = "FAILED"
	OutcomeCanceled Outcome = "CANCELED"
)

// OutcomeOf returns the outcome of a final state, "" for other states.
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
