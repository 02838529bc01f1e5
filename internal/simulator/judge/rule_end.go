package judge

import (
	"maps"
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeEnd: at the end a job is final with the outcome of its state, or waits for
// a time that has not come. However short ago it came, who waited for the end of
// the run waited for this job too.
func (c *checker) checkEnd() {
	job := c.current()
	if job == nil {
		return
	}
	c.look(ended)
	c.must(job.Outcome == outcomes[job.State], ended, "the job is %s with outcome %q", job.State, job.Outcome)
	c.must((job.FinishedAt != nil) == final(job.State), ended, "the job is %s with finished_at %s", job.State, moment(job.FinishedAt))
	if !c.run.Interrupted && !final(job.State) {
		c.must(c.waitsForItsTime(job), ended, "the job is %s though all should have ended", job.State)
	}
	if c.row != nil {
		c.must(!c.row.Held || c.run.Interrupted, ended, "a worker holds the job though all should have ended")
		c.must(c.row.ResultAttempt == 0 || c.row.State == succeeded, ended, "the job is %s and has a result", c.row.State)
		c.must(c.row.State != succeeded || c.row.ResultAttempt > 0, ended, "the job is SUCCEEDED without a result")
	}
	c.checkTerminalEvents(job)
}

// waitsForItsTime: it is CREATED or QUEUED, and its time was still to come when
// it was seen.
func (c *checker) waitsForItsTime(job *history.Job) bool {
	due := job.RunAt
	if due == nil {
		due = job.ExecutionAt
	}
	return waiting(job.State) && due != nil && due.After(c.run.asOf(c.at))
}

// judgeTerminalEvents: each attempt before the current one ended once, as FAILED;
// the current one ended if the job is final.
func (c *checker) checkTerminalEvents(job *history.Job) {
	if !c.logComplete || len(c.log) == 0 {
		return
	}
	count := map[int]int{}
	for _, s := range c.steps {
		if final(s.Next) {
			count[s.Attempt]++
			c.must(s.Attempt == job.Attempt || s.Next == failed, ended, "attempt %d ended as %s and another one followed", s.Attempt, s.Next)
		}
	}
	for n := 1; n <= job.Attempt; n++ {
		want := 0
		if n < job.Attempt || final(job.State) {
			want = 1
		}
		c.must(count[n] == want, ended, "attempt %d has %d terminal events, expected %d", n, count[n], want)
	}
	exhausted := 0
	for _, e := range c.log {
		if e.Name == nameExhausted {
			exhausted++
		}
	}
	if job.MaxAttempts > 0 {
		last := job.State == failed && job.Attempt == job.MaxAttempts
		c.must((exhausted == 1) == last && exhausted <= 1, ended, "attempt %d of %d, %s: %d events tell that the retries are exhausted",
			job.Attempt, job.MaxAttempts, job.State, exhausted)
	}
}

// judgeReports: one report for each attempt that ended, which tells its end.
func (c *checker) checkReports() {
	c.checkToldReports()
	if !c.logComplete || len(c.log) == 0 {
		return
	}
	seen := map[int]bool{}
	for _, f := range c.byKind[history.StoredReport] {
		c.must(!seen[f.Report.Attempt], ended, "attempt %d has two reports", f.Report.Attempt)
		seen[f.Report.Attempt] = true
	}
	ends := c.ends()
	for _, n := range slices.Sorted(maps.Keys(ends)) {
		r, end := c.reports[n], ends[n]
		c.must(r != nil, ended, "attempt %d ended and has no report", n)
		if r == nil {
			continue
		}
		c.must(r.Outcome == outcomes[end.Next], ended, "attempt %d ended as %s, its report says %s", n, end.Next, r.Outcome)
		c.must((r.Failure != "") == (end.Next == failed), ended, "attempt %d ended as %s, its report has failure %q", n, end.Next, r.Failure)
		c.must(c.row == nil || r.EventSeq >= end.Seq && r.EventSeq <= len(c.log), ended, "attempt %d ended with event %d, its report ends at %d", n, end.Seq, r.EventSeq)
	}
	for _, n := range slices.Sorted(maps.Keys(c.reports)) {
		_, ok := ends[n]
		c.must(ok, ended, "attempt %d has a report, and did not end", n)
	}
}

// judgeToldReports: the API tells each report as it is stored, and gives the
// result.
func (c *checker) checkToldReports() {
	for _, f := range c.byKind[history.ToldReport] {
		c.look(answered)
		if f.Report == nil {
			c.must(false, answered, "the API tells no report: %s", f.Note)
			continue
		}
		c.must(f.Report.ResultError == "", answered, "the API does not give the result: %s", f.Report.ResultError)
		r, told := c.reports[f.Report.Attempt], f.Report
		if c.row == nil {
			continue // there is nothing to compare it with
		}
		c.must(r != nil && told.Outcome == r.Outcome && sameMoment(told.StartedAt, r.StartedAt) && told.FinishedAt.Equal(r.FinishedAt) &&
			told.DurationMS == r.DurationMS && told.Failure == r.Failure, answered, "the API tells another report of attempt %d than is stored", told.Attempt)
	}
}
