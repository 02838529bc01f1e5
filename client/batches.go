package client

import (
	"context"
	"iter"
	"net/url"
)

// SubmitBatch submits 1 to 1,000 jobs with one idempotency key. Each is
// accepted or refused by itself: look at the Failure of each item.
func (c *Client) SubmitBatch(ctx context.Context, jobs []JobRequest, options ...Option) (*BatchReceipt, error) {
	body := struct {
		Jobs []JobRequest `json:"jobs"`
	}{jobs}
	r, err := keyed("/v1/jobs/batch", body, options)
	if err != nil {
		return nil, err
	}
	receipt := &BatchReceipt{}
	a, err := c.call(ctx, r, receipt)
	if err != nil {
		return nil, err
	}
	receipt.Status, receipt.RequestID = a.status, a.requestID()
	receipt.Replayed = first(a.header, "Idempotency-Replayed") == "true"
	return receipt, nil
}

// Batch reads a batch.
func (c *Client) Batch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	r, err := get(options, "v1", "batches", id)
	if err != nil {
		return nil, err
	}
	r.id = id
	return c.batch(ctx, r)
}

// CancelBatch cancels the batch's jobs that are not final, and answers the
// batch as it is then. Safe to repeat.
func (c *Client) CancelBatch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	r, err := post(options, "v1", "batches", id, "cancel")
	if err != nil {
		return nil, err
	}
	r.id = id
	return c.batch(ctx, r)
}

func (c *Client) batch(ctx context.Context, r *request) (*Batch, error) {
	batch := &Batch{}
	a, err := c.call(ctx, r, batch)
	if err != nil {
		return nil, err
	}
	batch.ETag, batch.RequestID = first(a.header, "Etag"), a.requestID()
	batch.RetryAfter = retryAfter(a.header, c.now())
	return batch, nil
}

// BatchJobs lists the jobs of a batch.
func (c *Client) BatchJobs(ctx context.Context, id string) iter.Seq2[Job, error] {
	return pages[Job](ctx, c, url.Values{}, "v1", "batches", id, "jobs")
}
