package client

import (
	"context"
	"iter"
	"time"
)

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
	Replayed  bool      `json:"-"`
	RequestID string    `json:"-"`
}

// StartBulk begins an operation on all jobs that match now. It goes on whatever happens to
// the service: see Bulk.
func (c *Client) StartBulk(ctx context.Context, bulk BulkRequest, options ...Option) (*BulkReceipt, error) {
	return fetch(ctx, c, post(options, "bulk").with(bulk).keyed(), func(b *BulkReceipt, a *answer) *string {
		b.RequestID, b.Replayed = a.requestID(), a.replayed()
		return &b.BulkID
	})
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
	RetryAfter time.Duration     `json:"-"`
	RequestID  string            `json:"-"`
}

// Final reports whether the operation has ended.
func (b *Bulk) Final() bool { return !b.FinishedAt.IsZero() }

// Bulk reads a bulk operation.
func (c *Client) Bulk(ctx context.Context, id string, options ...Option) (*Bulk, error) {
	return c.bulk(ctx, get(options, "bulk", id).of(id))
}

// AbortBulk ends a bulk operation where it is. Safe to repeat; one that is done is a Problem
// with status 409.
func (c *Client) AbortBulk(ctx context.Context, id string, options ...Option) (*Bulk, error) {
	return c.bulk(ctx, post(options, "bulk", id, "abort").of(id))
}

func (c *Client) bulk(ctx context.Context, r *request) (*Bulk, error) {
	return fetch(ctx, c, r, func(b *Bulk, a *answer) *string {
		b.RequestID, b.RetryAfter = a.requestID(), retryAfter(a.header, c.now())
		return &b.BulkID
	})
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
	r := get(nil, "bulk", id, "items")
	r.query = pageQuery(0, time.Time{}, time.Time{})
	setIf(r.query, "result", result)
	return list[BulkItem](ctx, c, r, false)
}
