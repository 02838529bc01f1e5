package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
)

// Names of events. Events of a change of state have a previous and a next state. Other events, such as job.retries_exhausted and
// event.emitted, have no states.
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
	EventBatchCompleted   = "batch.completed"  // no job
	EventBulkCompleted    = "bulk.completed"   // no job
	EventWebhookDisabled  = "webhook.disabled" // no job
	EventWebhookTest      = "webhook.test"     // no job
)

// Event is one line of a job's history (API contract, sections 5 and 15). It never changes.
type Event struct {
	ID      ID
	JobID   ID
	Seq     int // 1 for the job's first event, then increased by one for each event
	Name    string
	Prev    State // "" for the first event and for events without states
	Next    State // "" for events without states
	Attempt int
	At      time.Time
	Data    json.RawMessage // JSON object; for an event with a job, at least work_kind, duration_ms and expected_outcome
}

// Position is the place of an event among a client's events. Positions are ordered by Tx, then by ID, then by Seq. ID is the job's id, or
// the event's id for an event without a job. The zero Position comes first.
//
// Tx is usually the id of the transaction that wrote the event. If the job's previous event has a larger Tx, both events have that Tx. So a
// job's events keep their order.
type Position struct {
	Tx  uint64
	ID  ID
	Seq int
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return cmp.Or(cmp.Compare(p.Tx, q.Tx), bytes.Compare(p.ID[:], q.ID[:]), cmp.Compare(p.Seq, q.Seq)) < 0
}

// Occurrence is an event with all the data that a publisher needs.
type Occurrence struct {
	Event
	Position Position
	Origin   Origin   // origin of the job; zero for an event without a job
	Ended    *Attempt // attempt that the event ended; nil if it ended none
	Batch    *Batch   // batch of batch.completed
	Webhook  ID       // webhook of webhook.disabled and webhook.test
}

// Log is a part of a job's events. If the last event in Events has a Seq below Last, more events follow.
type Log struct {
	Events []Occurrence
	Last   int  // seq of the job's latest event
	Ended  bool // the job is final, and no event follows
}

// Feed is a part of a client's events.
type Feed struct {
	Events []Occurrence
	More   bool // further events can be read now
	// Held is true if the client has more events that cannot be read yet: a running transaction may still insert an event before them.
	Held bool
}

// Notification announces a change of a job. It may get lost, so receivers also read the database.
type Notification struct {
	ClientID, JobID ID
	Attempt         int       // attempt that Progress is about
	Progress        *Progress // new progress; nil if the notification announces a new event
	Ended           bool      // the attempt has ended, so its progress is outdated
}
