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
	Status    int         `json:"-"`
	Replayed  bool        `json:"-"`
	RequestID string      `json:"-"`
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
	r := post(options, "jobs", "batch").with(map[string][]JobRequest{"jobs": jobs}).keyed()
	return fetch(ctx, c, r, func(b *BatchReceipt, a *answer) *string {
		b.Status, b.RequestID, b.Replayed = a.status, a.requestID(), a.replayed()
		return &b.BatchID
	})
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
	ETag          string            `json:"-"`
	RetryAfter    time.Duration     `json:"-"`
	RequestID     string            `json:"-"`
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
	return c.batch(ctx, get(options, "batches", id).of(id))
}

// CancelBatch cancels the batch's jobs that are not final, and answers the
// batch as it is then. Safe to repeat.
func (c *Client) CancelBatch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	return c.batch(ctx, post(options, "batches", id, "cancel").of(id))
}

func (c *Client) batch(ctx context.Context, r *request) (*Batch, error) {
	return fetch(ctx, c, r, func(b *Batch, a *answer) *string {
		b.ETag, b.RequestID, b.RetryAfter = a.header.Get("Etag"), a.requestID(), retryAfter(a.header, c.now())
		return &b.BatchID
	})
}

// BatchJobs lists the jobs of a batch.
func (c *Client) BatchJobs(ctx context.Context, id string) iter.Seq2[Job, error] {
	return list[Job](ctx, c, get(nil, "batches", id, "jobs"), false)
}
