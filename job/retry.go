package job

import (
	"math"
	"slices"
	"time"
)

// Strategy is how the waits between the attempts of a job grow.
type Strategy string

// The strategies.
const (
	Exponential Strategy = "EXPONENTIAL" // doubled each time, with full jitter, as by default
	Constant    Strategy = "CONSTANT"    // the same each time, without jitter
	Listed      Strategy = "LIST"        // one after the other, then the last one, without jitter
)

// Strategies are all of them.
var Strategies = []Strategy{Exponential, Constant, Listed}

// Bounds of what a request may ask for.
const (
	MaxDelays = 100
	MaxDelay  = 24 * time.Hour
)

// RetryPolicy is what a request says about the attempts of its job; what it leaves open is as the service is set.
type RetryPolicy struct {
	MaxAttempts int             `json:"max_attempts,omitempty"` // the first one included; 0: as the service is set
	Strategy    Strategy        `json:"strategy,omitempty"`     // "": as the service is set
	Delays      []time.Duration `json:"delays,omitempty"`       // LIST all, CONSTANT one, EXPONENTIAL the first wait and the longest
	Codes       []Code          `json:"codes,omitempty"`        // of failures that the service retries by itself; none: all retryable ones
}

// attempts is how many there may be where usually there are so many.
func (p *RetryPolicy) attempts(usual int) int {
	if p == nil || p.MaxAttempts == 0 {
		return usual
	}
	return p.MaxAttempts
}

// backoff returns the policy's waits; b has the defaults.
func (p *RetryPolicy) backoff(b Backoff) Backoff {
	switch {
	case p == nil || p.Strategy == "" || len(p.Delays) == 0:
		return b
	case p.Strategy == Exponential:
		return Backoff{Base: p.Delays[0], Max: p.Delays[len(p.Delays)-1]}
	}
	return Backoff{Exact: p.Delays}
}

// retries reports whether the service retries a failure with the code by itself, if it retries any.
func (p *RetryPolicy) retries(c Code) bool {
	return p == nil || len(p.Codes) == 0 || slices.Contains(p.Codes, c)
}

// Policy is what the request said about the attempts; nil: nothing, or the definition is damaged.
func (d *Definition) Policy() *RetryPolicy {
	if d == nil {
		return nil
	}
	return d.Retry
}

// WithRetry gives the job the attempts and waits that its request asks for.
func (j *Job) WithRetry(p *RetryPolicy) {
	if p == nil {
		return
	}
	j.Definition.Retry, j.MaxAttempts = p, p.attempts(j.MaxAttempts)
}

// Backoff gives the waits between j's attempts where usually they are b.
func (j *Job) Backoff(b Backoff) Backoff { return j.Definition.Policy().backoff(b) }

// Backoff is the waiting time between attempts (section 11): exponential, from
// Base, doubled each time, at most Max; or as a request lists them.
type Backoff struct {
	Base time.Duration
	Max  time.Duration
	// Exact are the waits after the attempts from the first on, without jitter; the last one is that of all later ones.
	Exact []time.Duration
}

// Ceiling is the un-jittered wait before the attempt that follows attempt n
// (from 1): Base * 2^(n-1), at most Max.
func (b Backoff) Ceiling(attempt int) time.Duration {
	if n := len(b.Exact); n > 0 {
		return b.Exact[min(max(attempt, 1), n)-1]
	}
	d := b.Base
	for i := 1; i < attempt && d > 0; i++ {
		if d > b.Max/2 {
			return max(0, b.Max) // and d * 2 could overflow
		}
		d *= 2
	}
	return max(0, min(d, b.Max))
}

// Wait is the ceiling with full jitter: evenly between 0 and the ceiling,
// picked by a uniform random number in [0, 1). What is listed is kept to.
func (b Backoff) Wait(attempt int, random float64) time.Duration {
	if len(b.Exact) > 0 {
		return b.Ceiling(attempt)
	}
	return time.Duration(random * float64(b.Ceiling(attempt)))
}

// RetryAfter is the advice that a retryable failure of attempt n carries: the
// ceiling in whole seconds, rounded up, at least 1 (draft section 3.7).
func (b Backoff) RetryAfter(attempt int) int {
	return max(1, int(math.Ceil(b.Ceiling(attempt).Seconds())))
}
