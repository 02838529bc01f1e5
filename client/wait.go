package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// Waits between polls when the service names none.
const (
	firstPoll   = 500 * time.Millisecond
	longestPoll = 5 * time.Second
	earlyPolls  = 3 // that may find nothing yet
)

// Wait polls a job until it is final, in any state: the job's own failure is not an error. It asks as often as the service advises, and
// goes on while the service cannot be reached, so bound it by the context. A job that is not found is asked for three times more: it may
// be new.
//
// IfNoneMatch is not for Wait, which sends tags of its own: one that is given is left out.
//
// With PreferWait the service holds its answers back until the state changes, which is then known at once.
func (c *Client) Wait(ctx context.Context, id string, options ...Option) (*Job, error) {
	return awaitFinal(ctx, c, options, func(options []Option) (*Job, error) { return c.Job(ctx, id, options...) })
}

// WaitBatch polls a batch until it is complete, as Wait does a job.
func (c *Client) WaitBatch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	return awaitFinal(ctx, c, options, func(options []Option) (*Batch, error) { return c.Batch(ctx, id, options...) })
}

// ending is what can be waited for.
type ending interface {
	*Job | *Batch
	Final() bool
	meta() *Meta
}

// awaitFinal reads a resource until it is final.
func awaitFinal[T ending](ctx context.Context, c *Client, options []Option, read func([]Option) (T, error)) (T, error) {
	s := gather(options)
	if s.err != nil {
		return nil, s.err
	}
	var etag string // unused with PreferWait: progress changes it, and the answer would come at once
	var advised time.Duration
	for polls, failures := 1, 0; ; polls++ {
		sent := c.now()
		found, err := read(append(slices.Clip(options), onlyIfNoneMatch(etag)))
		wait := cmp.Or(advised, c.backoff(firstPoll, longestPoll, polls))
		switch {
		case err == nil && found.Final():
			return found, nil
		case err == nil:
			advised, failures = found.meta().RetryAfter, 0
			if s.wait == 0 {
				etag = found.meta().ETag
			}
			wait = cmp.Or(advised, wait)
		case errors.Is(err, ErrNotModified):
			failures = 0
		default:
			// Retry-After of a 429 or 503 is about the question, not the job.
			asked, passing := mayPass(err)
			early := statusOf(err) == http.StatusNotFound && polls <= earlyPolls
			if !passing && !early || ctx.Err() != nil {
				return nil, err
			}
			failures++
			wait = max(asked, c.backoff(firstWait, longestWait, failures))
		}
		if failures == 0 && s.wait > 0 {
			wait = max(0, wait-c.now().Sub(sent)) // the time that the answer was held back counts
		}
		if wait = min(wait, maxRetryDelay); wait > 0 {
			if err := c.sleep(ctx, wait+c.jitter(wait)); err != nil {
				return nil, err
			}
		}
	}
}

// onlyIfNoneMatch is IfNoneMatch in place of what the caller gave.
func onlyIfNoneMatch(etag string) Option {
	return func(s *settings) {
		s.header.Del("If-None-Match")
		IfNoneMatch(etag)(s)
	}
}

// jitter is up to a tenth of the wait, and up to a second: polls of many jobs drift apart.
func (c *Client) jitter(wait time.Duration) time.Duration {
	return time.Duration(c.rand() * float64(min(wait/10, time.Second)))
}

// Run submits a job, waits for its end, and submits the same work again while its failure says that this may help: at most MaxSubmissions
// times, after the waits of Outcome.RetryDelay, each time with a new idempotency key, since it is a new job. It answers the last job, in
// whatever state that ended.
//
// An error comes with the last job that was submitted: if its end is not known, with the answer to the submission, JobID included. The
// option IdempotencyKey is for the first submission only, and a DEFERRED job runs at once when it is submitted again.
func (c *Client) Run(ctx context.Context, job JobRequest, options ...Option) (*Job, error) {
	s := gather(options)
	if s.err != nil {
		return nil, s.err
	}
	var last *Job
	for try := 1; ; try++ {
		ended, err := c.submitAndWait(ctx, job, s.wait, options)
		if err != nil {
			return cmp.Or(ended, last), err
		}
		last = ended
		if ended.State != Failed || ended.Failure == nil {
			return ended, nil
		}
		wait, ok := ended.Failure.retryDelay(c.now(), try, c.rand())
		if !ok {
			return ended, nil
		}
		c.log.InfoContext(ctx, "forgerun: a job failed and is submitted again", "jobId", line(ended.JobID), "try", try, "wait", wait)
		if err := c.sleep(ctx, wait); err != nil {
			return ended, err
		}
		options = append(slices.Clip(options), newIdempotencyKey)
		if job.Type == Deferred {
			job.Type, job.ExecutionAt = Execute, time.Time{} // its time has passed
		}
	}
}

// submitAndWait gives a job with an error if it was submitted.
func (c *Client) submitAndWait(ctx context.Context, job JobRequest, prefer time.Duration, options []Option) (*Job, error) {
	accepted, err := c.Submit(ctx, job, options...)
	if err != nil {
		return nil, err
	}
	if accepted.Job != nil && accepted.Job.Final() {
		return accepted.Job, nil
	}
	ended, err := c.Wait(ctx, accepted.JobID, PreferWait(prefer))
	if err != nil {
		return &Job{JobID: accepted.JobID, State: accepted.State, CreatedAt: accepted.CreatedAt}, err
	}
	return ended, nil
}

// newIdempotencyKey takes away the key of an earlier submission.
func newIdempotencyKey(s *settings) { s.header.Del("Idempotency-Key") }
