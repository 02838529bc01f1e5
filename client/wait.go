package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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

// submitAndWait returns a job with an error if it was submitted.
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

// Waits between the tries of one request, and between polls.
const (
	firstWait     = 200 * time.Millisecond
	longestWait   = 10 * time.Second
	maxRetryAfter = 90 * time.Second // a request is not repeated if it has to wait longer; a rate limit can say 61 s
)

// repetition says after what a request is sent again.
type repetition int

const (
	anyTime repetition = iota // it has the same effect as once
	never
)

// retry calls do, with the number of the try from 1, until it succeeds or next refuses another try. In between it sleeps for as long as
// next says.
func (c *Client) retry(ctx context.Context, r *request, do func(try int) error, next func(err error, try int) (time.Duration, bool)) error {
	for try := 1; ; try++ {
		err := do(try)
		if err == nil {
			return nil
		}
		wait, again := next(err, try)
		if !again {
			return err
		}
		c.log.DebugContext(ctx, "forgerun: repeating a request", "method", r.method, "path", r.path, "try", try, "wait", wait, "error", err)
		if wait <= 0 {
			continue
		}
		if ended := c.sleep(ctx, wait); ended != nil {
			return fmt.Errorf("%w (it was not sent again: %w)", err, ended) // the last try's error says why there was a wait
		}
	}
}

// again decides whether a request that ended with err is sent once more, and after what wait.
func (c *Client) again(ctx context.Context, r *request, err error, try int) (time.Duration, bool) {
	if try >= c.maxTries || r.repeat == never || ctx.Err() != nil {
		return 0, false
	}
	asked, passing := transient(err)
	if passing = passing || try == 1 && statusOf(err) == http.StatusUnauthorized; !passing || asked > maxRetryAfter {
		return 0, false // a key that is refused may be one that is not known everywhere yet
	}
	wait := c.backoff(firstWait, longestWait, try)
	if asked > 0 {
		// Other clients got the same Retry-After: jitter spreads them.
		wait = asked + time.Duration(c.rand()*float64(firstWait))
	}
	if deadline, ok := ctx.Deadline(); ok && c.now().Add(wait).After(deadline) {
		return 0, false // err says more than the deadline's error would
	}
	return wait, true
}

// mayPass is transient for Wait and Stream, which outlast a failure of the service, a 500, too.
func mayPass(err error) (asked time.Duration, passing bool) {
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusInternalServerError {
		return problem.RetryAfter, true
	}
	return transient(err)
}

// transient reports whether the same request may be answered otherwise soon, and the wait that the answer's Retry-After asks for. That
// header is about the request, never about the job (draft, section 6.7).
func transient(err error) (asked time.Duration, passing bool) {
	var lost *NoAnswerError
	var problem *Problem
	var foreign *UnexpectedError
	code := ""
	switch {
	case errors.As(err, &lost):
		return 0, true
	case errors.As(err, &problem):
		code, asked = problem.Code, problem.RetryAfter
	case errors.As(err, &foreign):
		asked = foreign.RetryAfter
	}
	switch statusOf(err) {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusFound, http.StatusTemporaryRedirect:
		return asked, true
	case http.StatusForbidden: // a limit, where it says when to come again
		return asked, asked > 0
	case http.StatusServiceUnavailable:
		return asked, code != CodeConfigInvalid // only the operator can change that
	}
	return 0, false
}

// statusOf returns the status of the answer that an error is about, 0 for none.
func statusOf(err error) int {
	var problem *Problem
	var foreign *UnexpectedError
	switch {
	case errors.As(err, &problem):
		return problem.Status
	case errors.As(err, &foreign):
		return foreign.Status
	}
	return 0
}

// backoff is exponential with jitter: between a half and the whole of first*2^(try-1), which is at most longest.
func (c *Client) backoff(first, longest time.Duration, try int) time.Duration {
	whole := exponential(first, longest, try)
	return whole/2 + time.Duration(c.rand()*float64(whole/2))
}

func exponential(first, longest time.Duration, try int) time.Duration {
	whole := first
	for range try - 1 {
		if whole >= longest {
			break
		}
		whole *= 2
	}
	return min(whole, longest)
}

// longestAsked is the upper limit of a Retry-After: no sum with it overflows.
const longestAsked = 100 * 365 * 24 * time.Hour

// retryAfter reads the header Retry-After: seconds, or a date. 0 if there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		return 0
	}
	if seconds, ok := wholeNumber(value); ok {
		return time.Duration(min(seconds, uint64(longestAsked/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(0, date.Sub(now)), longestAsked)
	}
	return 0
}

// wholeNumber reads digits. A number that is too large becomes the largest one.
func wholeNumber(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}
