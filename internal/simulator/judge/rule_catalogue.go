package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Codes of failures (section 10).
const (
	codeInternal   = "RFA_INTERNAL"
	codeDependency = "RFA_DEPENDENCY_TIMEOUT"
	codeTimeout    = "RFA_EXEC_TIMEOUT"
	codeWorkerLost = "RFA_EXEC_WORKER_UNAVAILABLE" // lost or shut down
)

const (
	payloadInvalid = "PAYLOAD_INVALID" // work kind that is always refused
	emitEvent      = "EMIT_EVENT"      // type of jobs that publish an event of the client
)

// workKind is the expected end of an attempt without faults (section 6).
type workKind struct {
	duration time.Duration // before the time scale; 0: depends on the service's settings
	result   int           // bytes of the result of a success
	fails    int           // number of failing attempts
	code     string        // of the failures
}

const always = 1 << 30

func succeeds(milliseconds int64, kib int) workKind {
	return workKind{duration: time.Duration(milliseconds) * time.Millisecond, result: kib << 10}
}

func fails(milliseconds int64, kib, attempts int, code string) workKind {
	kind := succeeds(milliseconds, kib)
	kind.fails, kind.code = attempts, code
	return kind
}

// catalogue has all work kinds but PAYLOAD_INVALID.
var catalogue = map[string]workKind{
	"SUCCESS_FAST": succeeds(1_000, 4), "SUCCESS_NORMAL": succeeds(10_000, 16), "SUCCESS_SLOW": succeeds(90_000, 32),
	"FAIL_IMMEDIATE": fails(500, 1, always, codeInternal), "FAIL_AFTER_PROGRESS": fails(20_000, 8, always, codeInternal),
	"FAIL_AFTER_RETRYABLE": fails(5_000, 8, always, codeDependency),
	"RUNS_LONG":            succeeds(110_000, 32), "RUNS_OVER_TIMEOUT": fails(0, 8, always, codeTimeout),
	"CPU_BURST": succeeds(8_000, 4), "MEMORY_SPIKE": succeeds(12_000, 64), "IO_HEAVY": succeeds(15_000, 32),
	"MANY_SMALL_OUTPUTS": succeeds(9_000, 16), "LARGE_OUTPUT": succeeds(9_000, 256),
	"CANCEL_BEFORE_START": succeeds(5_000, 4), "CANCEL_DURING_RUN": succeeds(10_000, 4),
	"RETRY_ON_FAIL": fails(3_000, 4, 1, codeDependency), "RETRY_LIMIT_REACHED": fails(3_000, 4, always, codeDependency),
	"DUPLICATE_SUBMIT_SAME_KEY": succeeds(2_000, 4), "DUPLICATE_SUBMIT_DIFFERENT_KEY": succeeds(2_000, 4),
	"WEBHOOK_SUCCESS": succeeds(2_000, 4), "WEBHOOK_TIMEOUT": succeeds(2_000, 4), "WEBHOOK_5XX": succeeds(2_000, 4),
	"WEBHOOK_RETRIES_EXHAUSTED": succeeds(2_000, 4), "WEBHOOK_SLOW_RECEIVER": succeeds(2_000, 4),
	"SCHEDULED_ON_TIME": succeeds(2_000, 4), "SCHEDULED_LATE_RECOVERY": succeeds(2_000, 4), "SCHEDULED_FAR_FUTURE": succeeds(2_000, 4),
	"PAYLOAD_SMALL": succeeds(2_000, 1), "PAYLOAD_MEDIUM": succeeds(2_000, 16), "PAYLOAD_LARGE": succeeds(2_000, 256),
}

// checkCatalogue: an attempt ends as its work kind says, unless it was canceled, lost its worker or hit the execution limit; a result has
// its size.
func (c *checker) checkCatalogue() {
	kind, known := catalogue[c.kind]
	if !known {
		c.must(c.kind == "", expected, "a job has work kind %s, of which there is none", c.kind)
		return
	}
	if c.row != nil {
		c.checkDefinition(kind, c.row)
	}
	for _, n := range c.attempts {
		switch r := c.reports[n]; r.Outcome {
		case outcomes[succeeded]:
			c.must(n > kind.fails, expected, "attempt %d of %s succeeded", n, c.kind)
		case outcomes[failed]:
			c.must(c.mayFail(kind, r), expected, "attempt %d of %s failed with %s", n, c.kind, r.Failure)
		}
	}
	for _, f := range c.byKind[history.APIReport] {
		if r := f.Report; r != nil && r.ResultSize != nil {
			c.must(*r.ResultSize == kind.result, expected,
				"the result of %s has %d bytes, the catalogue says %d", c.kind, *r.ResultSize, kind.result)
		}
	}
}

func (c *checker) mayFail(kind workKind, r *history.Report) bool {
	switch {
	case r.Failure == codeWorkerLost:
		return c.run.Killed || c.run.Chaos
	case r.Failure == codeTimeout && kind.code != codeTimeout: // a busy machine may exceed the catalogue's time
		least := c.run.limit()
		if least == 0 { // unknown: the service may limit it
			least = c.leastDuration()
		}
		return time.Duration(r.DurationMS)*time.Millisecond >= least-time.Millisecond
	}
	return r.Failure == kind.code && (r.Attempt <= kind.fails || kind.code == codeTimeout)
}

// checkLimit: a job has at most as many attempts as the service allows.
func (c *checker) checkLimit() {
	if c.job == nil || c.job.MaxAttempts == 0 {
		return
	}
	limit, allowed := c.job.MaxAttempts, c.run.MaxAttempts
	c.must(allowed == 0 || limit == allowed, expected, "the job has max_attempts %d, the service allows %d", limit, allowed)
	c.must(c.job.Attempt <= limit, expected, "the job came to attempt %d of at most %d", c.job.Attempt, limit)
}

// checkRetries: a job with auto_retry is queued again after each failure that advises it, while attempts are left.
func (c *checker) checkRetries() {
	if c.submission == nil || !c.submission.AutoRetry || c.job == nil || c.job.MaxAttempts == 0 || !c.logComplete {
		return
	}
	for i, step := range c.steps {
		r := c.reports[step.Attempt]
		if step.Next != failed || r == nil || step.Attempt >= c.job.MaxAttempts {
			continue
		}
		code := catalogue[c.kind].code
		advised := r.Failure == codeWorkerLost || r.Failure == codeTimeout || code == codeDependency || code == codeTimeout
		again := i+1 < len(c.steps) && c.steps[i+1].Name == nameRetried
		c.must(again || !advised, expected, "attempt %d failed with %s and was not retried, as auto_retry asks for", step.Attempt, r.Failure)
	}
}
