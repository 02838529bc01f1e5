package judge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkEnd: at the end a job is final with the outcome of its state, or waits for
// a time that has not come. The run waited for every job, however late it came.
func (c *checker) checkEnd() {
	j := c.job
	if j == nil {
		return
	}
	c.look(ended)
	c.must(j.Outcome == outcomes[j.State], ended, "the job is %s with outcome %q", j.State, j.Outcome)
	c.must((j.FinishedAt != nil) == final(j.State), ended, "the job is %s with finished_at %s", j.State, clock(j.FinishedAt))
	c.must(final(j.State) || c.isScheduled(), ended, "the job is %s though all should have ended", j.State)
	if c.row != nil {
		c.must(!c.row.Held, ended, "a worker holds the job though all should have ended")
		c.must(c.row.ResultAttempt == 0 || c.row.State == succeeded, ended, "the job is %s and has a result", c.row.State)
		c.must(c.row.State != succeeded || c.row.ResultAttempt > 0, ended, "the job is SUCCEEDED without a result")
	}
	if c.logComplete && len(c.log) > 0 {
		c.checkTerminalEvents(j)
	}
}

// isScheduled: it is CREATED or QUEUED, and by the service's clock its time was to come when it was read.
func (c *checker) isScheduled() bool {
	due := cmp.Or(c.job.RunAt, c.job.ExecutionAt)
	return waiting(c.job.State) && due != nil && due.After(c.run.serviceTime(c.run.asOf(c.source)))
}

// checkTerminalEvents: each attempt before the current one ended once, as FAILED;
// the current one ended if the job is final.
func (c *checker) checkTerminalEvents(j *history.Job) {
	ends, exhausted := map[int]int{}, 0
	for _, e := range c.log {
		exhausted += count(e.Name == nameExhausted)
		if final(e.Next) {
			ends[e.Attempt]++
			c.must(e.Attempt == j.Attempt || e.Next == failed, ended, "attempt %d ended as %s and another one followed", e.Attempt, e.Next)
		}
	}
	for n := 1; n <= j.Attempt; n++ {
		want := count(n < j.Attempt || final(j.State))
		c.must(ends[n] == want, ended, "attempt %d has %d terminal events, expected %d", n, ends[n], want)
	}
	last := j.State == failed && j.Attempt == j.MaxAttempts
	c.must(j.MaxAttempts <= 0 || exhausted == count(last), ended, "attempt %d of %d, %s: %d events say that the retries are exhausted",
		j.Attempt, j.MaxAttempts, j.State, exhausted)
}

// checkReports: one report for each attempt that ended, which shows its end.
func (c *checker) checkReports() {
	if !c.logComplete || len(c.log) == 0 {
		return
	}
	seen := map[int]bool{}
	for _, f := range c.byKind[history.StoredReport] {
		c.must(!seen[f.Report.Attempt], ended, "attempt %d has two reports", f.Report.Attempt)
		seen[f.Report.Attempt] = true
	}
	for _, n := range slices.Sorted(maps.Keys(c.ends)) {
		r, end := c.reports[n], c.ends[n]
		c.must(r != nil, ended, "attempt %d ended and has no report", n)
		if r == nil {
			continue
		}
		c.must(r.Outcome == outcomes[end.Next], ended, "attempt %d ended as %s, its report says %s", n, end.Next, r.Outcome)
		c.must((r.Failure != "") == (end.Next == failed), ended, "attempt %d ended as %s, its report has failure %q", n, end.Next, r.Failure)
		c.must(c.row == nil || r.EventSeq >= end.Seq && r.EventSeq <= len(c.log), ended,
			"attempt %d ended with event %d, its report ends at %d", n, end.Seq, r.EventSeq)
	}
	for _, n := range c.attempts {
		_, ok := c.ends[n]
		c.must(ok, ended, "attempt %d has a report, and did not end", n)
	}
}

// checkTasks: a queued task has its job, which waits for it. Harmless are the active
// task of a worker that died and the scheduled one of a canceled job.
func (c *checker) checkTasks() {
	for _, f := range c.byKind[history.QueuedTask] {
		if f.Task == nil || !c.run.complete(Rows) {
			continue
		}
		c.look(tasked)
		c.must(c.row != nil, tasked, "task %s is %s, and its job does not exist", f.Task.ID, f.Task.State)
		if c.row == nil {
			continue
		}
		waits := waiting(c.row.State) && c.row.Attempt == f.Task.Attempt
		c.must(waits || c.mayRemain(f), tasked, "task %s is %s, and its job is %s at attempt %d",
			f.Task.ID, f.Task.State, c.row.State, c.row.Attempt)
	}
}

// mayRemain reports whether a task without a waiting job does no harm.
func (c *checker) mayRemain(f *history.Fact) bool {
	switch f.Task.State {
	case "active":
		return c.run.Killed || c.run.Chaos
	case "scheduled":
		return c.row.RunAt != nil && c.run.serviceTime(f.At.Add(-maxOverdue)).Before(*c.row.RunAt)
	}
	return false
}
