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

// Polling intervals if the response has no Retry-After.
const (
	firstPoll   = 500 * time.Millisecond
	longestPoll = 5 * time.Second
	earlyPolls  = 3 // polls that retry a 404, because the job may be new
)

// Wait polls a job until it is final. A failed job is not an error. Wait polls at the intervals that the service sets with Retry-After.
// It also continues while the service is unavailable, so set a deadline in the context. The service may not find a new job at once, so
// Wait ignores a 404 in the first three polls.
//
// The option IfNoneMatch is ignored, because Wait sends entity tags itself.
//
// With PreferWait the service delays its responses until the state changes, so Wait returns immediately after the change.
func (c *Client) Wait(ctx context.Context, id string, options ...Option) (*Job, error) {
	return awaitFinal(ctx, c, options, func(options []Option) (*Job, error) { return c.Job(ctx, id, options...) })
}

// WaitBatch polls until the batch is complete, like Wait.
func (c *Client) WaitBatch(ctx context.Context, id string, options ...Option) (*Batch, error) {
	return awaitFinal(ctx, c, options, func(options []Option) (*Batch, error) { return c.Batch(ctx, id, options...) })
}

type ending interface {
	*Job | *Batch
	Final() bool
	meta() *Meta
}

func awaitFinal[T ending](ctx context.Context, c *Client, options []Option, read func([]Option) (T, error)) (T, error) {
	s := gather(options)
	if s.err != nil {
		return nil, s.err
	}
	var etag string // "" with PreferWait: with an entity tag, the service would respond at each change of the progress
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
			// The Retry-After of an error is about this request. It does not replace `advised`.
			status, asked, passing := mayPass(err)
			early := status == http.StatusNotFound && polls <= earlyPolls
			if !passing && !early || ctx.Err() != nil {
				return nil, err
			}
			failures++
			wait = max(asked, c.backoff(firstWait, longestWait, failures))
		}
		if failures == 0 && s.wait > 0 {
			wait = max(0, wait-c.now().Sub(sent)) // subtract the time that the service delayed the response
		}
		if wait = min(wait, maxRetryDelay); wait > 0 {
			if err := c.sleep(ctx, wait+c.jitter(wait)); err != nil {
				return nil, err
			}
		}
	}
}

// onlyIfNoneMatch replaces the caller's IfNoneMatch.
func onlyIfNoneMatch(etag string) Option {
	return func(s *settings) {
		s.header.Del("If-None-Match")
		IfNoneMatch(etag)(s)
	}
}

// jitter returns a random extra wait, so that polls of many jobs spread out. It is at most a tenth of the wait, and at most a second.
func (c *Client) jitter(wait time.Duration) time.Duration {
	return time.Duration(c.rand() * float64(min(wait/10, time.Second)))
}

// Run submits a job, waits for its end, and submits the same work again while its failure is retryable. It makes at most MaxSubmissions
// submissions. Before each further submission, it waits as long as Outcome.RetryDelay says. Each submission is a new job with a new
// idempotency key. Run returns the last job, even if it failed.
//
// If a job was submitted, Run returns the last job even with an error. If the wait for the job failed, only the job's JobID,
// State and CreatedAt are set. IdempotencyKey applies to the first submission only. A DEFERRED job is submitted again as EXECUTE, so it
// runs at once.
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
		c.log.InfoContext(ctx, "forgerun: a job failed and is being submitted again", "jobId", line(ended.JobID), "try", try, "wait", wait)
		if err := c.sleep(ctx, wait); err != nil {
			return ended, err
		}
		options = append(slices.Clip(options), newIdempotencyKey)
		if job.Type == Deferred {
			job.Type, job.ExecutionAt = Execute, time.Time{} // execution_at has passed
		}
	}
}

// submitAndWait returns the submitted job even if the wait fails.
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

func newIdempotencyKey(s *settings) { s.header.Del("Idempotency-Key") }

// Waits between tries, and after failed polls.
const (
	firstWait     = 200 * time.Millisecond
	longestWait   = 10 * time.Second
	maxRetryAfter = 90 * time.Second // longest wait before a retry; a rate limit can ask for 61 s
)

type repetition int

const (
	anyTime repetition = iota // the request is idempotent
	never
)

// retry calls `do` until it succeeds. After an error, `next` returns the wait before another try, or false to give up.
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
			return fmt.Errorf("%w (the request was not sent again: %w)", err, ended)
		}
	}
}

func (c *Client) again(ctx context.Context, r *request, err error, try int) (time.Duration, bool) {
	if try >= c.maxTries || r.repeat == never || ctx.Err() != nil {
		return 0, false
	}
	status, asked, passing := transient(err)
	if passing = passing || try == 1 && status == http.StatusUnauthorized; !passing || asked > maxRetryAfter {
		return 0, false // a first 401 is retried, because some processes may not know a new key yet
	}
	wait := c.backoff(firstWait, longestWait, try)
	if asked > 0 {
		// Other clients may have got the same Retry-After; jitter spreads their requests.
		wait = asked + time.Duration(c.rand()*float64(firstWait))
	}
	if deadline, ok := ctx.Deadline(); ok && c.now().Add(wait).After(deadline) {
		return 0, false // return this error now: the context would end during the wait, and the context's error says less
	}
	return wait, true
}

// mayPass is like transient, but `passing` is also true for a Problem with status 500. Wait and Stream continue after such an error.
func mayPass(err error) (status int, asked time.Duration, passing bool) {
	status, asked, passing = transient(err)
	_, isProblem := errors.AsType[*Problem](err)
	return status, asked, passing || isProblem && status == http.StatusInternalServerError
}

// transient reports whether the same request may succeed soon. It also returns the status and the Retry-After of the response.
// Retry-After is about the request, never about the job (async-problem-details, section 6.7).
func transient(err error) (status int, asked time.Duration, passing bool) {
	if _, lost := errors.AsType[*NoAnswerError](err); lost {
		return 0, 0, true
	}
	code := ""
	if p, ok := errors.AsType[*Problem](err); ok {
		status, code, asked = p.Status, p.Code, p.RetryAfter
	} else if foreign, ok := errors.AsType[*UnexpectedError](err); ok {
		status, asked = foreign.Status, foreign.RetryAfter
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusFound, http.StatusTemporaryRedirect:
		passing = true
	case http.StatusForbidden: // with Retry-After it is a rate limit
		passing = asked > 0
	case http.StatusServiceUnavailable:
		passing = code != CodeConfigInvalid // only the operator can mend the configuration
	}
	return status, asked, passing
}

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

// longestAsked replaces longer values of Retry-After, so that sums of durations do not overflow.
const longestAsked = 100 * 365 * 24 * time.Hour

// retryAfter parses a Retry-After header, in seconds or as a date. It returns 0 if there is none.
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

// wholeNumber parses digits. A number that is too large becomes the largest uint64.
func wholeNumber(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}
