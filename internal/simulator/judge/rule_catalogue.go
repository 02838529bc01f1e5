package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeCatalogue: every attempt ends as its work kind says, unless it was
// canceled, its worker was lost, or it hit the execution limit; a result is as
// large as it says.
func (c *checker) checkCatalogue() {
	kind, known := catalogue[c.kind()]
	if !known {
		c.must(c.kind() == "", expected, "a job has work kind %s, of which there is none", c.kind())
		return
	}
	c.look(expected)
	if c.row != nil && c.row.DurationMS != nil && kind.duration > 0 {
		c.must(*c.row.DurationMS == kind.duration.Milliseconds(), expected, "%s is defined to take %d ms, the catalogue has %d",
			c.kind(), *c.row.DurationMS, kind.duration.Milliseconds())
		c.must(c.row.ShouldFail == (kind.fails > 0), expected, "%s is defined with should_fail %t", c.kind(), c.row.ShouldFail)
	}
	for _, n := range slices.Sorted(maps.Keys(c.reports)) {
		r := c.reports[n]
		switch r.Outcome {
		case outcomes[succeeded]:
			c.must(n > kind.fails, expected, "attempt %d of %s succeeded", n, c.kind())
		case outcomes[failed]:
			c.must(c.mayFail(kind, r), expected, "attempt %d of %s failed with %s", n, c.kind(), r.Failure)
		}
	}
	for _, f := range c.byKind[history.ToldReport] {
		if r := f.Report; r != nil && r.ResultSize != nil {
			c.must(*r.ResultSize == kind.result, expected, "the result of %s has %d bytes, the catalogue says %d", c.kind(), *r.ResultSize, kind.result)
		}
	}
}

// judgeLimit: a job has as many attempts as the service is set to allow, and
// never more.
func (c *checker) checkLimit() {
	job := c.current()
	if job == nil || job.MaxAttempts == 0 {
		return
	}
	c.look(expected)
	limit := c.run.MaxAttempts
	c.must(limit == 0 || job.MaxAttempts == limit, expected, "the job has max_attempts %d, the service allows %d", job.MaxAttempts, limit)
	highest := job.Attempt
	for _, e := range c.log {
		highest = max(highest, e.Attempt)
	}
	for n := range c.reports {
		highest = max(highest, n)
	}
	c.must(highest <= job.MaxAttempts, expected, "the job came to attempt %d of at most %d", highest, job.MaxAttempts)
}

func (c *checker) mayFail(kind workKind, r *history.Report) bool {
	switch r.Failure {
	case codeWorkerLost:
		return c.run.Killed || c.run.Chaos
	case codeTimeout:
		if kind.code == codeTimeout {
			return true
		}
		limit := c.run.limit()
		return limit > 0 && time.Duration(r.DurationMS)*time.Millisecond >= limit-time.Millisecond
	}
	return r.Failure == kind.code && r.Attempt <= kind.fails
}

// judgeRetries: a job that was sent with auto_retry is queued again with each
// failure that advises it, while attempts are left.
func (c *checker) checkRetries() {
	s, job := c.submission(), c.current()
	if s == nil || job == nil || !s.AutoRetry || !c.logComplete || job.MaxAttempts == 0 {
		return
	}
	for i, step := range c.steps {
		r := c.reports[step.Attempt]
		if step.Next != failed || r == nil || step.Attempt >= job.MaxAttempts {
			continue
		}
		advised := r.Failure == codeWorkerLost || r.Failure == codeTimeout || catalogue[c.kind()].retryable()
		again := i+1 < len(c.steps) && c.steps[i+1].Name == nameRetried
		c.must(again || !advised, expected, "attempt %d failed with %s and was not retried, as auto_retry asks for", step.Attempt, r.Failure)
	}
}
