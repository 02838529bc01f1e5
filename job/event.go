package job

import (
	"encoding/json"
	"time"
)

// Names of events. Those of transitions carry both states; the others
// (progress, exhausted, emitted) carry neither.
const (
	EventCreated          = "job.created"
	EventQueued           = "job.queued"
	EventAssigned         = "job.assigned"
	EventRunning          = "job.running"
	EventSucceeded        = "job.succeeded"
	EventFailed           = "job.failed"
	EventCanceled         = "job.canceled"
	EventRetried          = "job.retried" // FAILED -> QUEUED
	EventLeaseExpired     = "job.lease_expired"
	EventRetriesExhausted = "job.retries_exhausted"
	EventEmitted          = "event.emitted"
)

// Event is one line of a job's history (sections 5 and 15). It never changes.
type Event struct {
	ID      ID
	JobID   ID
	Seq     int // gapless from 1 within the job
	Name    string
	Prev    State // "" for the first event and for annotations
	Next    State // "" for annotations
	Attempt int
	At      time.Time
	Data    json.RawMessage // always has work_kind, duration_ms and expected_outcome
}

// EventOf names the event of a transition, and "" for a pair that is none.
func EventOf(from, to State) string {
	switch {
	case from == "" && to == Created:
		return EventCreated
	case from == Failed && to == Queued:
		return EventRetried
	case IsLeaseReturn(from, to):
		return EventLeaseExpired
	case !CanTransition(from, to):
		return ""
	}
	return map[State]string{
		Queued: EventQueued, Assigned: EventAssigned, Running: EventRunning,
		Succeeded: EventSucceeded, Failed: EventFailed, Canceled: EventCanceled,
	}[to]
}
