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

// SubmitBatch submits 1 to 1,000 jobs with one idempotency key. Each is accepted or refused by itself: look at the Failure of each item.
func (c *Client) SubmitBatch(ctx context.Context, jobs []JobRequest, options ...Option) (*BatchReceipt, error) {
	return fetch[BatchReceipt](ctx, c, post(options, "jobs", "batch").with(map[string][]JobRequest{"jobs": jobs}).keyed())
}

// Final reports whether the batch is complete.
func (b *Batch) Final() bool { return TerminalStatus(b.Status) }

// Final reports whether the operation has ended.
func (b *Bulk) Final() bool { return !b.FinishedAt.IsZero() }

// BulkItems lists the jobs of a bulk operation; with a result, those that have it.
func (c *Client) BulkItems(ctx context.Context, id, result string) iter.Seq2[BulkItem, error] {
	return list[BulkItem](ctx, c, get(nil, "bulk", id, "items").where("result", result), false)
}
