package client

import (
	"context"
	"iter"
	"time"
)

// BatchReceipt is the answer to a submitted batch, item by item.
type BatchReceipt struct {
	BatchID   string      `json:"batch_id"`
	CreatedAt time.Time   `json:"created_at"`
	Jobs      []BatchItem `json:"jobs"`
	Warnings  []Violation `json:"warnings"` // see Accepted; the pointers begin with /jobs and the index
	Meta      `json:"-"`
}

// BatchItem is an item of a batch that was accepted, with JobID and State, or
// refused, with Failure, which has Violations.
type BatchItem struct {
	ItemID  string   `json:"item_id"`
	JobID   string   `json:"job_id"`
	State   string   `json:"state"`
	Failure *Outcome `json:"failure"`
}

// SubmitBatch submits 1 to 1,000 jobs with one idempotency key. Each is
// accepted or refused by itself: look at the Failure of each item.
func (c *Client) SubmitBatch(ctx context.Context, jobs []JobRequest, options ...Option) (*BatchReceipt, error) {
	return fetch[BatchReceipt](ctx, c, post(options, "jobs", "batch").with(map[string][]JobRequest{"jobs": jobs}).keyed())
}

// Batch is a batch as the service shows it. Status is a job status of the
// draft: see TerminalStatus.
type Batch struct {
	BatchID       string            `json:"batch_id"`
	Status        string            `json:"status"`
	CreatedAt     time.Time         `json:"created_at"`
	CompletedAt   time.Time         `json:"completed_at"`
	Total         int               `json:"total"`
	Counts        BatchCounts       `json:"counts"`
	Outcome       *BatchOutcome     `json:"outcome"` // nil until every job has ended once; then it never changes
	CorrelationID string            `json:"correlation_id"`
	Links         map[string]string `json:"links"`
	Meta          `json:"-"`
}

// Final reports whether the batch is complete.
func (b *Batch) Final() bool { return TerminalStatus(b.Status) }

// BatchCounts are a batch's items by what they are now.
type BatchCounts struct {
	Created   int `json:"created"`
	Queued    int `json:"queued"`
	Assigned  int `json:"assigned"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Canceled  int `json:"canceled"`
	Refused   int `json:"refused"`
}

// BatchOutcome is how a batch ended.
type BatchOutcome struct {
	Status      string       `json:"status"`
	Succeeded   int          `json:"succeeded"`
	Failed      int          `json:"failed"`
	Canceled    int          `json:"canceled"`
	FailedItems []FailedItem `json:"failed_items"`
}

// FailedItem is an item that did not succeed.
type FailedItem struct {
	ItemID    string `json:"item_id"`
	JobID     string `json:"job_id"` // "" if it was refused
	Status    string `json:"status"`
	Detail    string `json:"detail"`
	Retryable bool   `json:"retryable"`
	Stage     string `json:"processing_stage"`
}

// Batch reads a batch.
func (c *Client) Batch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	return fetch[Batch](ctx, c, get(options, "batches", id).of(id))
}

// CancelBatch cancels the batch's jobs that are not final, and answers the
// batch as it is then. Safe to repeat.
func (c *Client) CancelBatch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	return fetch[Batch](ctx, c, post(options, "batches", id, "cancel").of(id))
}

// BatchJobs lists the jobs of a batch.
func (c *Client) BatchJobs(ctx context.Context, id string) iter.Seq2[Job, error] {
	return list[Job](ctx, c, get(nil, "batches", id, "jobs"), false)
}

// The actions of bulk operations.
const (
	BulkRetry  = "retry"
	BulkCancel = "cancel"
	BulkDelete = "delete"
)

// BulkFilter selects the jobs of a bulk operation: those that match all members that are
// not zero. At least one is given, or All alone.
type BulkFilter struct {
	All           bool      `json:"all,omitempty"`
	State         string    `json:"state,omitempty"`
	Type          string    `json:"type,omitempty"`
	WorkKind      string    `json:"work_kind,omitempty"`
	BatchID       string    `json:"batch_id,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	FailureCode   string    `json:"failure_code,omitempty"`
	CreatedAfter  time.Time `json:"created_after,omitzero"`  // inclusive
	CreatedBefore time.Time `json:"created_before,omitzero"` // exclusive
}

// BulkRequest is an operation on many jobs.
type BulkRequest struct {
	Action string     `json:"action"`
	Filter BulkFilter `json:"filter"`
	Rate   int        `json:"rate,omitempty"` // jobs per second, up to 1,000; 0: the service's default
}

// BulkReceipt is the answer to a bulk operation that was begun.
type BulkReceipt struct {
	BulkID    string    `json:"bulk_id"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	Meta      `json:"-"`
}

// StartBulk begins an operation on all jobs that match now. It goes on whatever happens to
// the service: see Bulk.
func (c *Client) StartBulk(ctx context.Context, bulk BulkRequest, options ...Option) (*BulkReceipt, error) {
	return fetch[BulkReceipt](ctx, c, post(options, "bulk").with(bulk).keyed())
}

// Bulk is a bulk operation as the service shows it.
type Bulk struct {
	BulkID     string            `json:"bulk_id"`
	Action     string            `json:"action"`
	Filter     BulkFilter        `json:"filter"`
	Rate       int               `json:"rate"`
	State      string            `json:"state"` // PENDING, RUNNING, DONE or ABORTED
	Total      int               `json:"total"` // so far, while jobs are gathered
	More       bool              `json:"more"`  // there were more jobs than one operation may have
	Done       int               `json:"done"`
	Succeeded  int               `json:"succeeded"`
	Skipped    int               `json:"skipped"`
	Failed     int               `json:"failed"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  time.Time         `json:"started_at"`
	FinishedAt time.Time         `json:"finished_at"`
	Operator   string            `json:"operator"`
	Links      map[string]string `json:"links"`
	Meta       `json:"-"`
}

// Final reports whether the operation has ended.
func (b *Bulk) Final() bool { return !b.FinishedAt.IsZero() }

// Bulk reads a bulk operation.
func (c *Client) Bulk(ctx context.Context, id string, options ...Option) (*Bulk, error) {
	return fetch[Bulk](ctx, c, get(options, "bulk", id).of(id))
}

// AbortBulk ends a bulk operation where it is. Safe to repeat; one that is done is a Problem
// with status 409.
func (c *Client) AbortBulk(ctx context.Context, id string, options ...Option) (*Bulk, error) {
	return fetch[Bulk](ctx, c, post(options, "bulk", id, "abort").of(id))
}

// Bulks lists the client's bulk operations, newest first.
func (c *Client) Bulks(ctx context.Context) iter.Seq2[Bulk, error] {
	return list[Bulk](ctx, c, get(nil, "bulk"), false)
}

// BulkItem is a job of a bulk operation, with what became of it: PENDING, SUCCEEDED,
// SKIPPED or FAILED.
type BulkItem struct {
	JobID  string    `json:"job_id"`
	Result string    `json:"result"`
	Code   string    `json:"code"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// BulkItems lists the jobs of a bulk operation; with a result, those that have it.
func (c *Client) BulkItems(ctx context.Context, id, result string) iter.Seq2[BulkItem, error] {
	return list[BulkItem](ctx, c, get(nil, "bulk", id, "items").where("result", result), false)
}
