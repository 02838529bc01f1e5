package job

import (
	"math"
	"time"
)

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
