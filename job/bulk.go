package job

import (
	"errors"
	"time"
)

// Bounds of bulk operations.
const (
	MaxBulkItems         = 100_000 // of one operation
	MaxOpenBulks         = 100     // operations that are not finished, of all clients
	MaxOpenBulksClient   = 10      // of these, of one client
	MaxBulkRate          = 1000    // items per second
	DefaultBulkRate      = 200
	BulkSample           = 10 // jobs that a dry run shows
	MaxOpenBulksOperator = 10 // of these, of operators: clients cannot keep them out
)

// BulkAction is what a bulk operation does with each of its jobs.
type BulkAction string

// The actions.
const (
	BulkRetry  BulkAction = "retry"
	BulkCancel BulkAction = "cancel"
	BulkDelete BulkAction = "delete"
)

// BulkActions are all there are.
var BulkActions = []BulkAction{BulkRetry, BulkCancel, BulkDelete}

// BulkFilter says which jobs a bulk operation is about: those that match all members
// that are given. It is stored and shown as it is.
type BulkFilter struct {
	All           bool   `json:"all,omitempty"` // stands for no other member
	State         State  `json:"state,omitempty"`
	Type          Type   `json:"type,omitempty"`
	WorkKind      Kind   `json:"work_kind,omitempty"`
	BatchID       ID     `json:"batch_id,omitzero"`
	CorrelationID string `json:"correlation_id,omitempty"`
	FailureCode   Code   `json:"failure_code,omitempty"`
	CreatedAfter  *Time  `json:"created_after,omitempty"`  // at this moment or later
	CreatedBefore *Time  `json:"created_before,omitempty"` // before this moment
	ClientID      ID     `json:"client_id,omitzero"`       // an operator's only
	FailureDetail string `json:"failure_detail,omitempty"` // an operator's only
}

// Names reports whether the filter names a member.
func (f BulkFilter) Names() bool { return f != BulkFilter{} }

// BulkOwner is whose bulk operations are meant: a client's, about its own jobs; or
// with a zero client those of operators, about the jobs of all clients. An operator
// sees and aborts those of clients too.
type BulkOwner struct {
	ClientID ID
	Operator string // the operator's name
}

// MayOpen is how many operations of its own the owner may have that are not finished.
func (o BulkOwner) MayOpen() int {
	if o.ClientID.IsZero() {
		return MaxOpenBulksOperator
	}
	return MaxOpenBulksClient
}

// BulkRequest is a decoded request for a bulk operation. Violations holds what decoding
// found wrong with it.
type BulkRequest struct {
	Owner     BulkOwner
	Action    BulkAction
	Filter    BulkFilter
	DryRun    bool
	Rate      int  // items per second
	Override  bool // an operator's retry: of failures that are not retryable, and beyond the attempts, too
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
	GatheredAt *time.Time // when its items were complete
	FinishedAt *time.Time
	Aborted    bool

	Position                                ID   // gathering goes on before this job; zero: from the newest on
	More                                    bool // there were more jobs than MaxBulkItems
	Total, Done, Succeeded, Skipped, Failed int
}

// BulkState is how far a bulk operation has come.
type BulkState string

// The states of a bulk operation; the last two are final.
const (
	BulkPending BulkState = "PENDING"
	BulkRunning BulkState = "RUNNING"
	BulkDone    BulkState = "DONE"
	BulkAborted BulkState = "ABORTED"
)

// State is the operation's state now.
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

// JobsOf is the client whose jobs the operation is about, zero for those of all.
func (b *Bulk) JobsOf() ID {
	if b.Owner.ClientID.IsZero() {
		return b.Filter.ClientID
	}
	return b.Owner.ClientID
}

// BulkResult is what became of an item.
type BulkResult string

// The results. A single request for the job would have been answered that it changed
// the job, that it left it as it is, and with an error.
const (
	ItemPending   BulkResult = "PENDING"
	ItemSucceeded BulkResult = "SUCCEEDED"
	ItemSkipped   BulkResult = "SKIPPED"
	ItemFailed    BulkResult = "FAILED"
)

// BulkResults are all there are.
var BulkResults = []BulkResult{ItemPending, ItemSucceeded, ItemSkipped, ItemFailed}

// BulkItem is one job of a bulk operation. Attempt and EventSeq are those that the job
// had when it was gathered.
type BulkItem struct {
	JobID    ID
	ClientID ID
	Attempt  int
	EventSeq int
	Job      *Job // as it is now, without Params; nil if it is gone, and in lists

	Result BulkResult
	Code   Code   // of an item that FAILED, or was SKIPPED for a reason that has one
	Detail string // in English
	At     *time.Time
}

// End gives the item with its result.
func (i BulkItem) End(result BulkResult, code Code, detail string) BulkItem {
	i.Result, i.Code, i.Detail = result, code, detail
	return i
}

// Fail gives the item with the result of an error.
func (i BulkItem) Fail(err *Error) BulkItem { return i.End(ItemFailed, err.Code, err.Detail) }

// What is said of skipped items.
const (
	itemEnded    = "The job was final already."
	itemNotFinal = "The job is not final."
)

// Left gives an item with its result if the operation leaves its job as it is; false if it would change the job.
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

// ItemRetry queues the next attempt of a job of a bulk operation.
type ItemRetry struct {
	Item  BulkItem
	Wait  time.Duration
	Lease ID // of headroom
}

// BulkCount is the answer to a dry run.
type BulkCount struct {
	Count   int
	More    bool // not all of the jobs were looked at, or there are more than MaxBulkItems
	Changes int  // how many of them the operation would change
	Left    []BulkReason
	Sample  []*Job
}

// BulkReason is how many jobs an operation leaves as they are for the same reason.
type BulkReason struct {
	Result BulkResult `json:"result"`
	Code   *Code      `json:"code"`
	Detail string     `json:"detail"`
	Count  int        `json:"count"`
}

// BulkLook is a part of a dry run: of so many jobs that were looked at, those that match.
type BulkLook struct {
	Looked int
	Last   ID   // the one that was looked at last
	First  []ID // of those that match, BulkSample at most
	Alike  []BulkAlike
}

// BulkAlike is how many jobs are alike in all that decides whether an operation changes them.
type BulkAlike struct {
	State       State `json:"state"`
	Attempt     int   `json:"attempt"`
	MaxAttempts int   `json:"max_attempts"`
	Retryable   bool  `json:"retryable"`
	InOpenBatch bool  `json:"in_open_batch"`
	Count       int   `json:"count"`
}

// BulkQuery asks for a part of a list of bulk operations, or of the items of one.
type BulkQuery struct {
	After  ID
	Limit  int
	Result BulkResult // of items; "" for all
}

// BulkPath is the path of a bulk operation.
func BulkPath(id ID) string { return "/v1/bulk/" + id.String() }
