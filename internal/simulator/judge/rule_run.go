package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkEarly: nothing begins before execution_at, and what a moved clock jumped or ran over is queued at that time, however
// late it was. All times are the service's.
func (c *checker) checkEarly() {
	var due *time.Time
	if c.submission != nil {
		due = c.submission.ExecutionAt
	}
	if due == nil && c.job != nil {
		due = c.job.ExecutionAt
	}
	if due == nil {
		return
	}
	at := due.Truncate(time.Microsecond)
	c.look(early)
	events := c.log
	if len(events) == 0 {
		for _, f := range c.byKind[history.Streamed] {
			if f.Event != nil && f.Event.Seq > 0 {
				events = append(events, *f.Event)
			}
		}
	}
	for _, e := range events {
		begins := e.Next == queued || e.Next == assigned || e.Next == running
		c.must(!begins || !e.At.Before(at), early, "event %d (%s) came %s before execution_at", e.Seq, e.Name, at.Sub(e.At))
	}
	c.checkPassed(at)
	for _, n := range c.attempts {
		start := c.reports[n].StartedAt
		c.must(start == nil || !start.Before(at), early,
			"the report of attempt %d says that it started at %s, before execution_at", n, clock(start))
	}
	if c.job != nil {
		start := c.job.StartedAt
		c.must(start == nil || !start.Before(at), early, "the job started at %s, before execution_at", clock(start))
	}
}

// checkPassed: a job that existed when a moved clock came past its time was queued at that time.
func (c *checker) checkPassed(due time.Time) {
	if !c.logComplete || len(c.log) == 0 || !c.log[0].At.Before(due) {
		return
	}
	p := c.run.moves().Passed(due, moveLag)
	if !p.Exact {
		return
	}
	for _, s := range c.steps {
		if s.Prev == created && s.Next == queued {
			c.must(s.At.Equal(due) || s.At.Before(p.Before), early, "the clock was moved past execution_at, and the job was queued %s later",
				s.At.Sub(due))
		}
	}
}

// checkFence: the fence counts claims, and reports and results are the last claim's.
func (c *checker) checkFence() {
	if c.row == nil || !c.logComplete {
		return
	}
	c.look(fenced)
	claims, expiries, starts := 0, 0, map[int]history.Event{}
	for _, s := range c.steps {
		claims += count(s.Next == assigned)
		expiries += count(s.Name == nameLeaseExpired)
		if s.Next == running {
			starts[s.Attempt] = s
		}
	}
	c.must(claims == c.row.Fence, fenced, "the job was claimed %d times, its fence is %d", claims, c.row.Fence)
	c.must(expiries == c.row.LeaseExpiries, fenced, "%d leases expired, the job counts %d", expiries, c.row.LeaseExpiries)
	for _, n := range c.attempts {
		r := c.reports[n]
		start, ran := starts[n]
		c.must((r.StartedAt != nil) == ran && (!ran || r.StartedAt.Equal(start.At)), fenced,
			"the report of attempt %d has started_at %s, which is not the start of its last claim", n, clock(r.StartedAt))
		end, ok := c.ends[n]
		c.must(!ok || r.FinishedAt.Equal(end.At), fenced, "the report of attempt %d has finished_at %s, the attempt ended at %s",
			n, clock(&r.FinishedAt), clock(&end.At))
	}
	start, ran := starts[c.row.Attempt]
	c.must(!ran || c.row.StartedAt != nil && c.row.StartedAt.Equal(start.At), fenced,
		"the job has started_at %s, its last claim started at %s", clock(c.row.StartedAt), clock(&start.At))
	result := c.row.ResultAttempt
	c.must(result == 0 || result == c.row.Attempt, fenced, "the result is of attempt %d, the job is at attempt %d", result, c.row.Attempt)
}

// checkDurations: a report's duration is the time from start to end, and an attempt
// that did its work, to the end that the catalogue has for it, took as long.
func (c *checker) checkDurations() {
	for _, n := range c.attempts {
		r := c.reports[n]
		c.look(timed)
		took := time.Duration(0)
		if r.StartedAt != nil {
			took = r.FinishedAt.Sub(*r.StartedAt)
		}
		said := time.Duration(r.DurationMS) * time.Millisecond
		c.must(took >= 0, timed, "attempt %d finished before it started", n)
		c.must((took-said).Abs() <= time.Millisecond, timed, "attempt %d took %s, its report says %s", n, took, said)
		least := c.leastDuration()
		worked := r.Outcome == outcomes[succeeded] || r.Failure != "" && r.Failure == catalogue[c.kind].code && r.Failure != codeTimeout
		c.must(!worked || took >= least, timed, "attempt %d ended as %s after %s, its work takes %s", n, r.Outcome, took, least)
	}
}

// leastDuration is what the work takes, less corrections of clocks; 0: unknown.
func (c *checker) leastDuration() time.Duration {
	if c.run.TimeScale == nil {
		return 0
	}
	work := catalogue[c.kind].duration
	if c.row != nil && c.row.DurationMS != nil {
		work = time.Duration(*c.row.DurationMS) * time.Millisecond
	}
	least := scaled(work, *c.run.TimeScale)
	return least - least/100 - 5*time.Millisecond
}
