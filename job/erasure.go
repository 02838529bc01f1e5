package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"time"
)

// ErasedTables are the tables that can hold rows of a client. A record tells of each how
// many were removed, and how many remain.
var ErasedTables = []string{
	"api_keys", "batches", "bulk_items", "bulk_operations", "client_events", "clients", "deliveries", "delivery_attempts", "events",
	"idempotency_keys", "jobs", "outcome_outbox", "reports", "results", "schedules", "testbed_exchanges", "testbed_faults", "testbed_sessions",
	"tombstones", "webhooks",
}

// ErasureState says how far an erasure has come.
type ErasureState string

// The states.
const (
	ErasurePending ErasureState = "PENDING"
	ErasureRunning ErasureState = "RUNNING"
	ErasureDone    ErasureState = "DONE"
)

// ErasureRequest asks for a client to be erased with all that belongs to it.
type ErasureRequest struct {
	ClientID  ID
	Operator  string
	Reason    string // printable
	RequestID string
}

// Erasure is the erasure of a client. Of the client it keeps the id alone.
type Erasure struct {
	ID         ID
	ClientID   ID
	Operator   string
	Reason     string
	RequestID  string
	CreatedAt  time.Time
	StartedAt  *time.Time
	FinishedAt *time.Time

	Step        string // what is being done, in words of storage
	Position    ID     // behind which the step goes on
	PositionJob ID
	Removed     map[string]int // rows by table
	Remaining   map[string]int // rows by table, counted after the removal

	Record string // what the hash is of: canonical JSON (RFC 8785); "" until it is done
	SHA256 []byte // of Record
}

// State tells how far the erasure has come.
func (e *Erasure) State() ErasureState {
	switch {
	case e.FinishedAt != nil:
		return ErasureDone
	case e.StartedAt != nil:
		return ErasureRunning
	}
	return ErasurePending
}

// Finish gives the erasure its end and its record: what was removed and what remains, for
// every table.
func (e *Erasure) Finish(at time.Time) error {
	e.FinishedAt = &at
	e.Removed, e.Remaining = ofAllTables(e.Removed), ofAllTables(e.Remaining)
	// Members of maps are in order, numbers are integers, and strings have no characters that are not printable: of the
	// others the encoder escapes those that RFC 8785 does.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(map[string]any{
		"client_id": e.ClientID, "created_at": Time(e.CreatedAt), "erasure_id": e.ID, "finished_at": Time(at), "operator": e.Operator,
		"reason": e.Reason, "remaining": e.Remaining, "removed": e.Removed, "request_id": e.RequestID, "started_at": TimeOf(e.StartedAt),
	})
	if err != nil {
		return err
	}
	canonical := bytes.TrimRight(text.Bytes(), "\n")
	sum := sha256.Sum256(canonical)
	e.Record, e.SHA256 = string(canonical), sum[:]
	return nil
}

func ofAllTables(counts map[string]int) map[string]int {
	all := make(map[string]int, len(ErasedTables))
	for _, table := range ErasedTables {
		all[table] = counts[table]
	}
	return all
}

// ErasureStep is what became of a part of the work on an erasure.
type ErasureStep struct {
	Erasure    *Erasure // as it is after it
	Progress   bool     // false: something must happen elsewhere before it goes on
	Unfinished []ID     // jobs that must be canceled
	Endpoints  []ID     // webhooks that are no more
	Tasks      []Task   // of jobs that are no more
}
