package job

import "time"

// PauseScope says what a pause holds for.
type PauseScope string

// The scopes.
const (
	PauseAll    PauseScope = "ALL"    // every job
	PauseKind   PauseScope = "KIND"   // jobs of a work kind
	PauseClient PauseScope = "CLIENT" // jobs of a client
	PauseWorker PauseScope = "WORKER" // what one worker process does
)

// PauseScopes are all of them.
var PauseScopes = []PauseScope{PauseAll, PauseKind, PauseClient, PauseWorker}

// PauseMode says what a pause stops.
type PauseMode string

// The modes.
const (
	// ModePause starts no job. Submissions are accepted, and what runs goes on.
	ModePause PauseMode = "PAUSE"
	// ModeDrain accepts no submission; what was accepted is run. A worker that is drained takes no more jobs, and ends
	// those that it has.
	ModeDrain PauseMode = "DRAIN"
)

// PauseModes are all of them.
var PauseModes = []PauseMode{ModePause, ModeDrain}

// MaxPauses is how many there may be: each claim looks at all of them.
const MaxPauses = 100

// Pause is what an operator has stopped.
type Pause struct {
	ID        ID
	Scope     PauseScope
	Target    string // the work kind, or the id of the client or worker; "" of all
	Mode      PauseMode
	Operator  string
	Reason    string
	CreatedAt time.Time
}

// Pauses are those that hold at a moment.
type Pauses []Pause

// Stops reports whether no job of the kind and client is started.
func (p Pauses) Stops(kind Kind, client ID) bool { return p.about(ModePause, kind, client) != nil }

// Reason returns why a job waits that waits for r as far as its row tells.
func (p Pauses) Reason(r WaitingReason, kind Kind, client ID) WaitingReason {
	if (r == WaitingQueue || r == WaitingNoWorkers) && p.Stops(kind, client) {
		return WaitingPaused
	}
	return r
}

// Refuses gives the pause by which submissions of the kind and client are refused, nil if there is none.
func (p Pauses) Refuses(kind Kind, client ID) *Pause { return p.about(ModeDrain, kind, client) }

func (p Pauses) about(mode PauseMode, kind Kind, client ID) *Pause {
	for i, one := range p {
		if one.Mode != mode {
			continue
		}
		switch one.Scope {
		case PauseAll:
			return &p[i]
		case PauseKind:
			if one.Target == string(kind) {
				return &p[i]
			}
		case PauseClient:
			if one.Target == client.String() {
				return &p[i]
			}
		}
	}
	return nil
}

// StopsWorker reports whether the worker takes no jobs, whatever their kind and client.
func (p Pauses) StopsWorker(worker ID) bool {
	for _, one := range p {
		if one.Scope == PauseAll && one.Mode == ModePause || one.Scope == PauseWorker && one.Target == worker.String() {
			return true
		}
	}
	return false
}

// PausedUntil is the RunAt of QUEUED jobs whose kind or client is paused: a time that does not come. They get
// their old one back when it goes on.
var PausedUntil = time.Date(2199, time.January, 1, 0, 0, 0, 0, time.UTC)

// Paused reports whether j was put aside because its kind or client is paused.
func (j *Job) Paused() bool {
	return j.State == Queued && !j.RunAt.Before(PausedUntil) && j.RunAt.Before(ThrottledUntil)
}
