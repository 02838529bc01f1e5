package job

import (
	"bytes"
	"cmp"
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
	EventBatchCompleted   = "batch.completed" // this and the following belong to no job
	EventBulkCompleted    = "bulk.completed"
	EventWebhookDisabled  = "webhook.disabled"
	EventWebhookTest      = "webhook.test"
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

// Position is a place in the order of a client's events: by transaction, within
// it by job (or, for an event of no job, by event), within that by sequence.
// The zero Position comes before all events.
//
// Tx is the transaction that wrote the event, or, if the job's event before
// came from a later one, that one: so a job's events keep their order.
type Position struct {
	Tx  uint64
	ID  ID
	Seq int
}

// Before reports whether p comes before q in a history.
func (p Position) Before(q Position) bool {
	return cmp.Or(cmp.Compare(p.Tx, q.Tx), bytes.Compare(p.ID[:], q.ID[:]), cmp.Compare(p.Seq, q.Seq)) < 0
}

// Occurrence is an event with all that it takes to tell a client about it.
type Occurrence struct {
	Event
	Position Position
	Origin   Origin   // of the job; zero for an event of no job
	Ended    *Attempt // the attempt that the event ended, nil if none
	Batch    *Batch   // of batch.completed
	Webhook  ID       // of webhook.disabled and webhook.test
}

// Log is a part of a job's events. There are more while the last of them is
// not Last.
type Log struct {
	Events []Occurrence
	Last   int  // seq of the job's latest event
	Ended  bool // the job is final, and no event comes after these
}

// Feed is a part of a client's events.
type Feed struct {
	Events []Occurrence
	More   bool // further events can be read already
	// Held says that further events are committed, but wait for a transaction
	// that is still under way and may bring earlier ones.
	Held bool
}

// Notification says that something happened to a job. Like a task it is best effort:
// the receiver reads storage.
type Notification struct {
	ClientID, JobID ID
	Attempt         int       // of Progress
	Progress        *Progress // nil: an event was recorded
	Ended           bool      // the attempt has ended: its progress is of no more use
}
