package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Waits between the tries of one request, and between polls.
const (
	firstWait     = 200 * time.Millisecond
	longestWait   = 10 * time.Second
	maxRetryAfter = time.Minute // a request is not repeated if it has to wait longer
)

// again decides whether a request that ended with err is sent once more, and
// after what wait.
func (c *Client) again(ctx context.Context, r *request, err error, try int) (time.Duration, bool) {
	if try >= c.maxTries || r.repeat == never || r.repeat == ifRefused && !refusedForNow(err) || ctx.Err() != nil {
		return 0, false
	}
	asked, passing := transient(err)
	if !passing || asked > maxRetryAfter {
		return 0, false
	}
	wait := c.backoff(firstWait, longestWait, try)
	if asked > 0 {
		// Others were told the same moment: the jitter spreads them.
		wait = asked + time.Duration(c.rand()*float64(firstWait))
	}
	if deadline, ok := ctx.Deadline(); ok && c.now().Add(wait).After(deadline) {
		return 0, false // the error that there is says more than the deadline's would
	}
	return wait, true
}

// refusedForNow reports whether an answer says that nothing was done. A lost
// answer, and that of a gateway, does not.
func refusedForNow(err error) bool {
	status := statusOf(err)
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// statusOf is 0 if there was no answer.
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

// mayPass is transient for those who wait longer than one request does, and
// whom a mistake of the service, a 500, must not end.
func mayPass(err error) (asked time.Duration, passing bool) {
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusInternalServerError {
		return problem.RetryAfter, true
	}
	return transient(err)
}

// transient reports whether the same request may be answered otherwise soon,
// and the wait that the answer's Retry-After asks for. That header is about
// the request, never about the job (draft, section 6.7).
func transient(err error) (asked time.Duration, passing bool) {
	var lost *NoAnswerError
	if errors.As(err, &lost) {
		return 0, true
	}
	var code string
	var problem *Problem
	var foreign *UnexpectedError
	switch {
	case errors.As(err, &problem):
		code, asked = problem.Code, problem.RetryAfter
	case errors.As(err, &foreign):
		asked = foreign.RetryAfter
	}
	switch statusOf(err) {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return asked, true
	case http.StatusServiceUnavailable:
		return asked, code != "RFA_CONFIG_INVALID" // only the operator can change that
	}
	return 0, false
}

// backoff is exponential with jitter: between a half and the whole of
// first*2^(try-1), which is at most longest.
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

// longestAsked stands for all that is longer: no sum with it overflows.
const longestAsked = 100 * 365 * 24 * time.Hour

// retryAfter reads the header Retry-After: seconds, or a date. 0 if there is
// none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := first(h, "Retry-After")
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
