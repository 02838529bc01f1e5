package job

import "time"

// PauseScope is the extent of a pause.
type PauseScope string

// Scopes of pauses.
const (
	PauseAll    PauseScope = "ALL"    // every job
	PauseKind   PauseScope = "KIND"   // jobs of a work kind
	PauseClient PauseScope = "CLIENT" // jobs of a client
	PauseWorker PauseScope = "WORKER" // one worker process
)

// PauseMode is the effect of a pause.
type PauseMode string

// Modes of pauses.
const (
	// ModePause prevents jobs from starting. Submissions are accepted, and running jobs continue.
	ModePause PauseMode = "PAUSE"
	// ModeDrain refuses submissions. Accepted jobs still run. With the scope WORKER, the worker takes no new jobs and completes its current
	// ones.
	ModeDrain PauseMode = "DRAIN"
)

// MaxPauses limits the number of pauses, because a worker reads all pauses whenever it takes a job.
const MaxPauses = 100

// Pause is an operator's pause.
type Pause struct {
	ID        ID
	Scope     PauseScope
	Target    string // work kind, or id of the client or worker; "" for all
	Mode      PauseMode
	Operator  string
	Reason    string
	CreatedAt time.Time
}

// Pauses are all current pauses.
type Pauses []Pause

// Stops reports whether jobs of the kind and client must not start.
func (p Pauses) Stops(kind Kind, client ID) bool { return p.about(ModePause, kind, client) != nil }

// Reason returns WaitingPaused for a job that would be ready to run without a pause. For any other job, it returns `r`.
func (p Pauses) Reason(r WaitingReason, kind Kind, client ID) WaitingReason {
	if (r == WaitingQueue || r == WaitingNoWorkers) && p.Stops(kind, client) {
		return WaitingPaused
	}
	return r
}

// Refuses returns a pause that refuses submissions of the kind and client, or nil if there is none.
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

// StopsWorker reports whether the worker must not take any jobs.
func (p Pauses) StopsWorker(worker ID) bool {
	for _, one := range p {
		if one.Scope == PauseAll && one.Mode == ModePause || one.Scope == PauseWorker && one.Target == worker.String() {
			return true
		}
	}
	return false
}

// PausedUntil is a time that never comes. A QUEUED job has this RunAt while its kind or client is paused. After the pause, RunAt is the
// time when the job was queued.
var PausedUntil = time.Date(2199, time.January, 1, 0, 0, 0, 0, time.UTC)

// Paused reports whether j waits because its kind or client is paused.
func (j *Job) Paused() bool {
	return j.State == Queued && !j.RunAt.Before(PausedUntil) && j.RunAt.Before(ThrottledUntil)
}
