package job

import (
	"errors"
	"time"
)

// Limits of bulk operations.
const (
	MaxBulkItems         = 100_000 // items of one operation
	MaxOpenBulks         = 100     // open operations of all clients
	MaxOpenBulksClient   = 10      // open operations of one client
	MaxBulkRate          = 1000    // items per second
	DefaultBulkRate      = 200
	BulkSample           = 10 // jobs in the response to a dry run
	MaxOpenBulksOperator = 10 // open operations of operators; separate from the clients' limit, so clients cannot block operators
)

// BulkAction is the action of a bulk operation on each of its jobs.
type BulkAction string

// Actions of bulk operations.
const (
	BulkRetry  BulkAction = "retry"
	BulkCancel BulkAction = "cancel"
	BulkDelete BulkAction = "delete"
)

// BulkActions lists all actions.
var BulkActions = []BulkAction{BulkRetry, BulkCancel, BulkDelete}

// BulkFilter selects jobs. A job must match all members that are set.
type BulkFilter struct {
	All           bool   `json:"all,omitempty"` // selects all jobs; if true, no other member may be set
	State         State  `json:"state,omitempty"`
	Type          Type   `json:"type,omitempty"`
	WorkKind      Kind   `json:"work_kind,omitempty"`
	BatchID       ID     `json:"batch_id,omitzero"`
	CorrelationID string `json:"correlation_id,omitempty"`
	FailureCode   Code   `json:"failure_code,omitempty"`
	CreatedAfter  *Time  `json:"created_after,omitempty"`  // inclusive
	CreatedBefore *Time  `json:"created_before,omitempty"` // exclusive
	ClientID      ID     `json:"client_id,omitzero"`       // for operators only
	FailureDetail string `json:"failure_detail,omitempty"` // for operators only
}

// Names reports whether any member of the filter is set.
func (f BulkFilter) Names() bool { return f != BulkFilter{} }

// BulkOwner is the owner of a bulk operation: a client, or the operators if ClientID is zero. Only operators can change jobs of all
// clients. Operators can also see and abort clients' operations.
type BulkOwner struct {
	ClientID ID
	Operator string
}

// MayOpen returns how many open operations the owner may have.
func (o BulkOwner) MayOpen() int {
	if o.ClientID.IsZero() {
		return MaxOpenBulksOperator
	}
	return MaxOpenBulksClient
}

// BulkRequest is a decoded request for a bulk operation.
type BulkRequest struct {
	Owner     BulkOwner
	Action    BulkAction
	Filter    BulkFilter
	DryRun    bool
	Rate      int  // items per second
	Override  bool // operators only: also retry jobs that are not retryable or have no attempts left
	RequestID string
}

// Bulk is a bulk operation.
type Bulk struct {
	ID        ID
	Owner     BulkOwner
	Action    BulkAction
	Filter    BulkFilter
	Rate      int
	Override  bool
	RequestID string

	CreatedAt  time.Time
	StartedAt  *time.Time
	GatheredAt *time.Time // when all jobs had been selected
	FinishedAt *time.Time
	Aborted    bool

	Position                                ID   // last job that was read; zero: none yet. Jobs are read from new to old
	More                                    bool // there were more jobs than MaxBulkItems
	Total, Done, Succeeded, Skipped, Failed int
}

// BulkState is the stage of a bulk operation.
type BulkState string

// States of a bulk operation. The last two are final.
const (
	BulkPending BulkState = "PENDING"
	BulkRunning BulkState = "RUNNING"
	BulkDone    BulkState = "DONE"
	BulkAborted BulkState = "ABORTED"
)

// State returns the operation's current state.
func (b *Bulk) State() BulkState {
	switch {
	case b.FinishedAt != nil && b.Aborted:
		return BulkAborted
	case b.FinishedAt != nil:
		return BulkDone
	case b.StartedAt != nil:
		return BulkRunning
	default:
		return BulkPending
	}
}

// JobsOf returns the client to which the operation's jobs belong; zero for jobs of all clients.
func (b *Bulk) JobsOf() ID {
	if b.Owner.ClientID.IsZero() {
		return b.Filter.ClientID
	}
	return b.Owner.ClientID
}

// BulkResult is the result of an item.
type BulkResult string

// Results of items. ItemSucceeded: the job was changed. ItemSkipped: the job was left unchanged, for example because it had already ended.
// ItemFailed: the service refused the change.
const (
	ItemPending   BulkResult = "PENDING"
	ItemSucceeded BulkResult = "SUCCEEDED"
	ItemSkipped   BulkResult = "SKIPPED"
	ItemFailed    BulkResult = "FAILED"
)

// BulkResults lists all results.
var BulkResults = []BulkResult{ItemPending, ItemSucceeded, ItemSkipped, ItemFailed}

// BulkItem is one job of a bulk operation. Attempt and EventSeq are the job's values when the operation selected it.
type BulkItem struct {
	JobID    ID
	ClientID ID
	Attempt  int
	EventSeq int
	Job      *Job // current job without Params; nil if it is deleted, and always nil in lists

	Result BulkResult
	Code   Code   // error code of a FAILED or SKIPPED item; may be ""
	Detail string // English text
	At     *time.Time
}

// End returns the item with the given result.
func (i BulkItem) End(result BulkResult, code Code, detail string) BulkItem {
	i.Result, i.Code, i.Detail = result, code, detail
	return i
}

// Fail returns the item with an error as its result.
func (i BulkItem) Fail(err *Error) BulkItem { return i.End(ItemFailed, err.Code, err.Detail) }

// Details of skipped items.
const (
	itemEnded    = "The job has already ended."
	itemNotFinal = "The job has not ended."
)

// Left returns true if the operation leaves the job unchanged. The returned item then has its result.
func (b *Bulk) Left(i BulkItem) (BulkItem, bool) {
	var refusal error
	switch j := i.Job; {
	case b.Action == BulkCancel && j.State.Final():
		return i.End(ItemSkipped, "", itemEnded), true
	case b.Action == BulkRetry && !j.State.Final():
		return i.End(ItemSkipped, "", itemNotFinal), true
	case b.Action == BulkRetry && b.Override:
		refusal = j.RefusalOfAnyRetry()
	case b.Action == BulkRetry:
		refusal = j.RefusalOfRetry()
	case b.Action == BulkDelete && !j.State.Final():
		refusal = RefusalOfDelete(j.State)
	}
	if known, ok := errors.AsType[*Error](refusal); ok {
		return i.Fail(known), true
	}
	return i, false
}

// ItemRetry is a request to queue the next attempt of a job in a bulk operation.
type ItemRetry struct {
	Item  BulkItem
	Wait  time.Duration
	Lease ID // lease that reserves capacity for the retry
}

// BulkCount is the result of a dry run.
type BulkCount struct {
	Count   int
	More    bool // not all jobs were read, or more than MaxBulkItems match
	Changes int  // how many jobs the operation would change
	Left    []BulkReason
	Sample  []*Job
}

// BulkReason is a reason why an operation leaves jobs unchanged, with the number of these jobs.
type BulkReason struct {
	Result BulkResult `json:"result"`
	Code   *Code      `json:"code"`
	Detail string     `json:"detail"`
	Count  int        `json:"count"`
}

// BulkLook is the result of one read of a dry run. It describes the matching jobs among the rows that were read.
type BulkLook struct {
	Looked int
	Last   ID   // last job that was read
	First  []ID // first matching jobs, at most BulkSample
	Alike  []BulkAlike
}

// BulkAlike is a group of jobs that an operation treats in the same way.
type BulkAlike struct {
	State       State `json:"state"`
	Attempt     int   `json:"attempt"`
	MaxAttempts int   `json:"max_attempts"`
	Retryable   bool  `json:"retryable"`
	InOpenBatch bool  `json:"in_open_batch"`
	Count       int   `json:"count"`
}

// BulkQuery selects a page of bulk operations, or of the items of one operation.
type BulkQuery struct {
	After  ID
	Limit  int
	Result BulkResult // selects items with this result; "" selects all
}

// BulkPath returns the path of a bulk operation.
func BulkPath(id ID) string { return "/v1/bulk/" + id.String() }
