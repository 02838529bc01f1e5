package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkEnd checks that at the end of the run a job has ended, or waits for a future time.
func (c *checker) checkEnd() {
	j := c.job
	if j == nil {
		return
	}
	c.must(j.Outcome == outcomes[j.State] && j.FinishedAt.IsZero() != final(j.State), ended,
		"the job is %s, but has outcome %q and finished_at %s", j.State, j.Outcome, clock(j.FinishedAt))
	due := cmp.Or(j.RunAt, j.ExecutionAt)
	waits := waiting(j.State) && due.After(c.run.serviceTime(c.run.asOf(c.source)))
	c.must(final(j.State) || waits, ended, "the job is %s, but all jobs should have ended", j.State)
	if !c.logComplete {
		return
	}
	exhausted, emitted := 0, 0
	for _, e := range c.log {
		exhausted += count(e.Name == nameExhausted)
		if e.Name == nameEmitted {
			emitted++
			c.must(c.emits(e.Emitted), logged, "event %d (%s) is %q, which the client did not ask for", e.Seq, e.Name, e.Emitted)
		}
	}
	wanted := count(j.Type == emitEvent && j.State == succeeded)
	c.must(emitted == wanted, logged, "%d events were emitted for the client, expected %d", emitted, wanted)
	last := j.State == failed && j.Attempt == j.MaxAttempts
	c.must(j.MaxAttempts <= 0 || exhausted == count(last), ended,
		"attempt %d of %d is %s, but the number of events about exhausted retries is %d", j.Attempt, j.MaxAttempts, j.State, exhausted)
}

func (c *checker) emits(text string) bool {
	if c.job == nil || c.ticket == 0 {
		return true // unknown
	}
	return c.job.Type == emitEvent && text == fmt.Sprintf("simulated %d", c.ticket)
}

// checkTasks checks that each task in the queue is for the current attempt of a waiting job. A dead worker may leave an active task. A job
// that was canceled before its start time may leave a scheduled task.
func (c *checker) checkTasks() {
	for _, f := range c.byKind[history.QueuedTask] {
		if !c.run.complete(Rows) {
			return
		}
		t := f.Task
		if c.row == nil {
			c.must(false, tasked, "queue task %s is %s, but its job does not exist", t.ID, t.State)
			continue
		}
		ok := waiting(c.row.State) && c.row.Attempt == t.Attempt || t.State == "active" && (c.run.Killed || c.run.Chaos) ||
			t.State == "scheduled" && c.run.serviceTime(f.At.Add(-maxOverdue)).Before(c.row.RunAt)
		c.must(ok, tasked, "queue task %s is %s, but its job is %s at attempt %d", t.ID, t.State, c.row.State, c.row.Attempt)
	}
}

// checkEarly checks that nothing begins before execution_at. If the clock jumped over execution_at, or did not run at the normal rate then,
// the event job.queued must have exactly the time execution_at. All times are service times.
func (c *checker) checkEarly() {
	due := time.Time{}
	if c.submission != nil {
		due = c.submission.ExecutionAt
	}
	if due.IsZero() && c.job != nil {
		due = c.job.ExecutionAt
	}
	if due.IsZero() {
		return
	}
	due = due.Truncate(time.Microsecond)
	events := c.log
	for _, f := range c.byKind[history.Streamed] {
		if f.Event != nil {
			events = append(events, *f.Event)
		}
	}
	for _, e := range events {
		begins := e.Next == queued || e.Next == assigned || e.Next == running
		c.must(!begins || !e.At.Before(due), early, "event %d (%s) came %s before execution_at", e.Seq, e.Name, due.Sub(e.At))
	}
	if c.job != nil {
		start := c.job.StartedAt
		c.must(start.IsZero() || !start.Before(due), early, "the job started at %s, before execution_at", clock(start))
	}
	passed := c.run.moves().Passed(due, moveLag)
	if !passed.Exact || !c.logComplete || len(c.log) == 0 || !c.log[0].At.Before(due) {
		return
	}
	for _, s := range c.steps {
		c.must(s.Prev != created || s.Next != queued || s.At.Equal(due) || s.At.Before(passed.Before), early,
			"the clock was moved past execution_at, but the job was queued %s later", s.At.Sub(due))
	}
}

// checkDurations checks that a report's duration is the time from start to end. An attempt that did all its work must have taken at least
// as long as the work kind says.
func (c *checker) checkDurations() {
	for _, n := range c.attempts {
		r := c.reports[n]
		took := time.Duration(0)
		if !r.StartedAt.IsZero() {
			took = r.FinishedAt.Sub(r.StartedAt)
		}
		said := time.Duration(r.DurationMS) * time.Millisecond
		c.must(c.row != nil || (took-said).Abs() <= time.Millisecond, timed, "attempt %d took %s, but its report says %s", n, took, said)
		least := c.leastDuration()
		worked := r.Outcome == outcomes[succeeded] || r.Failure != "" && r.Failure == catalogue[c.kind].code && r.Failure != codeTimeout
		c.must(!worked || took >= least, timed, "attempt %d ended as %s after %s, but its work takes %s", n, r.Outcome, took, least)
	}
}

// leastDuration returns the minimum duration of an attempt, or 0 if it is unknown. It subtracts 1 % and 5 ms, because a clock may be
// corrected during the attempt.
func (c *checker) leastDuration() time.Duration {
	if c.run.TimeScale == nil {
		return 0
	}
	work := catalogue[c.kind].duration
	if c.row != nil && c.row.Definition != nil {
		work = time.Duration(c.row.Definition.DurationMS) * time.Millisecond
	}
	least := scaled(work, *c.run.TimeScale)
	return least - least/100 - 5*time.Millisecond
}

// Codes of failures (API contract, section 14).
const (
	codeInternal   = "RFA_INTERNAL"
	codeDependency = "RFA_DEPENDENCY_TIMEOUT"
	codeTimeout    = "RFA_EXEC_TIMEOUT"
	codeWorkerLost = "RFA_EXEC_WORKER_UNAVAILABLE" // the worker was lost or shut down
)

const (
	payloadInvalid = "PAYLOAD_INVALID" // work kind that is always refused
	emitEvent      = "EMIT_EVENT"      // type of jobs that publish an event chosen by the client
)

// workKind says how an attempt succeeds or fails if no fault is injected (API contract, section 6).
type workKind struct {
	duration time.Duration // before the multiplication by TimeScale; 0: depends on the service's settings
	result   int           // size of the result of a successful attempt, in bytes
	fails    int           // the first `fails` attempts of a job fail
	code     string        // failure code
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

// checkCatalogue checks that attempts and results are as the catalogue says. An attempt may also be canceled, lose its worker, or time out
// on a busy machine.
func (c *checker) checkCatalogue() {
	kind, known := catalogue[c.kind]
	if !known {
		c.must(c.kind == "", expected, "a job has work kind %s, which does not exist", c.kind)
		return
	}
	if c.row != nil {
		c.checkDefinition(kind, c.row)
	}
	for _, n := range c.attempts {
		switch r := c.reports[n]; r.Outcome {
		case outcomes[succeeded]:
			c.must(n > kind.fails, expected, "attempt %d of work kind %s succeeded, but must fail", n, c.kind)
		case outcomes[failed]:
			c.must(c.mayFail(kind, r), expected, "attempt %d of work kind %s must not fail with %s", n, c.kind, r.Failure)
		}
	}
	for _, f := range c.byKind[history.APIReport] {
		if r := f.Report; r != nil && r.ResultSize != nil {
			c.must(*r.ResultSize == kind.result, expected,
				"the result of work kind %s has %d bytes, expected %d", c.kind, *r.ResultSize, kind.result)
		}
	}
}

func (c *checker) mayFail(kind workKind, r *history.Report) bool {
	switch {
	case r.Failure == codeWorkerLost:
		return c.run.Killed || c.run.Chaos
	case r.Failure == codeTimeout && kind.code != codeTimeout:
		least := c.run.limit()
		if least == 0 { // the execution limit is unknown, but it is at least the duration of the work
			least = c.leastDuration()
		}
		return time.Duration(r.DurationMS)*time.Millisecond >= least-time.Millisecond
	}
	return r.Failure == kind.code && (r.Attempt <= kind.fails || kind.code == codeTimeout)
}

func (c *checker) checkLimit() {
	if c.job == nil || c.job.MaxAttempts == 0 {
		return
	}
	limit, allowed := c.job.MaxAttempts, c.run.MaxAttempts
	c.must(allowed == 0 || limit == allowed, expected, "the job has max_attempts %d, but the service allows %d", limit, allowed)
	c.must(c.job.Attempt <= limit, expected, "the job reached attempt %d, but max_attempts is %d", c.job.Attempt, limit)
}

// checkRetries checks that the service retries each retryable failure of a job with auto_retry, up to max_attempts.
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
		c.must(again || !advised, expected, "attempt %d failed with %s and was not retried, although auto_retry is set", step.Attempt, r.Failure)
	}
}
