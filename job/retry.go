package job

import (
	"math"
	"slices"
	"time"
)

// Strategy determines how the waits between a job's attempts grow.
type Strategy string

// Strategies for waits.
const (
	Exponential Strategy = "EXPONENTIAL" // doubled each time, with full jitter; the default
	Constant    Strategy = "CONSTANT"    // the same each time, without jitter
	Listed      Strategy = "LIST"        // the listed delays in order, without jitter; the last delay repeats
)

// RetryPolicy is a request's policy for the attempts of its job. Missing members default to the service's settings.
type RetryPolicy struct {
	MaxAttempts int             `json:"max_attempts,omitempty"` // including the first; 0 means the service's setting
	Strategy    Strategy        `json:"strategy,omitempty"`     // "" means the service's setting
	Delays      []time.Duration `json:"delays,omitempty"`       // LIST: all waits; CONSTANT: one; EXPONENTIAL: the first and the longest
	Codes       []Code          `json:"codes,omitempty"`        // failures to retry automatically; empty means all retryable ones
}

func (p *RetryPolicy) attempts(usual int) int {
	if p == nil || p.MaxAttempts == 0 {
		return usual
	}
	return p.MaxAttempts
}

func (p *RetryPolicy) backoff(b Backoff) Backoff {
	switch {
	case p == nil || p.Strategy == "" || len(p.Delays) == 0:
		return b
	case p.Strategy == Exponential:
		return Backoff{Base: p.Delays[0], Max: p.Delays[len(p.Delays)-1]}
	}
	return Backoff{Exact: p.Delays}
}

func (p *RetryPolicy) retries(c Code) bool {
	return p == nil || len(p.Codes) == 0 || slices.Contains(p.Codes, c)
}

// Policy returns the request's policy, or nil if there is none or the definition is damaged.
func (d *Definition) Policy() *RetryPolicy {
	if d == nil {
		return nil
	}
	return d.Retry
}

// WithRetry applies the request's retry policy.
func (j *Job) WithRetry(p *RetryPolicy) {
	if p == nil {
		return
	}
	j.Definition.Retry, j.MaxAttempts = p, p.attempts(j.MaxAttempts)
}

// Backoff returns the waits of the job's retry policy, or b if the policy sets none.
func (j *Job) Backoff(b Backoff) Backoff { return j.Definition.Policy().backoff(b) }

// Backoff determines the waits between attempts (API contract, section 11). They double from Base up to Max, unless Exact lists them.
type Backoff struct {
	Base time.Duration
	Max  time.Duration
	// Exact lists the waits after the attempts, without jitter. The last wait also applies to later attempts.
	Exact []time.Duration
}

// Ceiling returns the longest possible wait after the given attempt (from 1).
func (b Backoff) Ceiling(attempt int) time.Duration {
	if n := len(b.Exact); n > 0 {
		return b.Exact[min(max(attempt, 1), n)-1]
	}
	d := b.Base
	for i := 1; i < attempt && d > 0; i++ {
		if d > b.Max/2 {
			return max(0, b.Max) // d * 2 could overflow
		}
		d *= 2
	}
	return max(0, min(d, b.Max))
}

// Wait returns the wait after the given attempt: Ceiling times `random`, which must be uniform in [0, 1) (full jitter). Waits in Exact have
// no jitter.
func (b Backoff) Wait(attempt int, random float64) time.Duration {
	if len(b.Exact) > 0 {
		return b.Ceiling(attempt)
	}
	return time.Duration(random * float64(b.Ceiling(attempt)))
}

// RetryAfter returns the ceiling in whole seconds, rounded up, at least 1. It is the retryAfter of a retryable failure
// (async-problem-details, section 3.7).
func (b Backoff) RetryAfter(attempt int) int {
	return max(1, int(math.Ceil(b.Ceiling(attempt).Seconds())))
}
