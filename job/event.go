package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
)

// Names of events. Those of transitions have both states; the others (progress, exhausted, emitted) have none.
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
	EventBatchCompleted   = "batch.completed" // this and the following events have no job
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

// EventOf returns the name of a transition's event, "" if the pair is no transition.
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

// Position is a place in the order of a client's events: by transaction, then by job (or, for an event without a job, by event), then by
// sequence. The zero Position comes first.
//
// Tx is the transaction that wrote the event, or the Tx of the job's previous event if that is later. So a job's events keep their order.
type Position struct {
	Tx  uint64
	ID  ID
	Seq int
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return cmp.Or(cmp.Compare(p.Tx, q.Tx), bytes.Compare(p.ID[:], q.ID[:]), cmp.Compare(p.Seq, q.Seq)) < 0
}

// Occurrence is an event with all the data to publish it.
type Occurrence struct {
	Event
	Position Position
	Origin   Origin   // of the job; zero without one
	Ended    *Attempt // attempt ended by the event, nil if none
	Batch    *Batch   // of batch.completed
	Webhook  ID       // of webhook.disabled and webhook.test
}

// Log is a part of a job's events. There are more unless the last of them is Last.
type Log struct {
	Events []Occurrence
	Last   int  // seq of the job's latest event
	Ended  bool // the job is final, and no event follows
}

// Feed is a part of a client's events.
type Feed struct {
	Events []Occurrence
	More   bool // further events can be read now
	// Held is set if further events are committed, but a pending transaction may still add earlier ones.
	Held bool
}

// Notification says that something happened to a job. Like a task it is best effort; the receiver reads the database.
type Notification struct {
	ClientID, JobID ID
	Attempt         int       // of Progress
	Progress        *Progress // nil if an event was recorded
	Ended           bool      // the attempt has ended, so its progress is outdated
}
