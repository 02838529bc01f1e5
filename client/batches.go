package client

import (
	"context"
	"iter"
)

// BatchItem is an item of a batch that was accepted, with JobID and State, or refused, with Failure, which has Violations.
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

// Final reports whether the batch is complete.
func (b *Batch) Final() bool { return TerminalStatus(b.Status) }

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
func (c *Client) BatchJobs(ctx context.Context, id string) iter.Seq2[BatchJob, error] {
	return list[BatchJob](ctx, c, get(nil, "batches", id, "jobs"), false)
}

// StartBulk begins an operation on all jobs that match now. It goes on whatever happens to
// the service: see Bulk.
func (c *Client) StartBulk(ctx context.Context, bulk BulkRequest, options ...Option) (*BulkReceipt, error) {
	return fetch[BulkReceipt](ctx, c, post(options, "bulk").with(bulk).keyed())
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

// BulkItems lists the jobs of a bulk operation; with a result, those that have it.
func (c *Client) BulkItems(ctx context.Context, id, result string) iter.Seq2[BulkItem, error] {
	return list[BulkItem](ctx, c, get(nil, "bulk", id, "items").where("result", result), false)
}
