package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

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
