package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkLog: numbered from 1, each transition leaves the state that the one before
// reached, only along the table, and time does not run backwards.
func (c *checker) checkLog() {
	if len(c.log) == 0 {
		c.must(!c.logComplete || c.row == nil, logged, "the job has no events")
		return
	}
	c.look(logged)
	state, attempt, emissions := "", 1, 0
	ids := make(map[string]bool, len(c.log))
	for i, e := range c.log {
		must := func(ok bool, format string, args ...any) {
			if !ok {
				c.must(false, logged, "event %d (%s) "+format, append([]any{e.Seq, e.Name}, args...)...)
			}
		}
		c.must(e.Seq == i+1, logged, "event %d (%s) has seq %d: the log has a gap or a double", i+1, e.Name, e.Seq)
		must(e.ID != "" && !ids[e.ID], "has an id that is not its own: %q", e.ID)
		ids[e.ID] = true
		must(i == 0 || !e.At.Before(c.log[i-1].At), "is earlier than the one before")
		attempt += count(e.Name == nameRetried)
		must(e.Attempt == attempt, "is of attempt %d, not of %d", e.Attempt, attempt)
		if e.Name == nameEmitted {
			emissions++
			must(c.emits(e.Emitted), "is %q, which the client did not ask for", e.Emitted)
		}
		if e.Name == nameExhausted || e.Name == nameEmitted {
			must(e.Prev == "" && e.Next == "", "is no transition, and goes from %q to %q", e.Prev, e.Next)
			continue
		}
		must(e.Prev == state, "leaves %q, but the job was in %q", e.Prev, state)
		name := eventName(e.Prev, e.Next)
		must(name != "", "goes from %q to %q, which is not allowed", e.Prev, e.Next)
		must(name == "" || name == e.Name, "goes from %q to %q, which has another name", e.Prev, e.Next)
		state = e.Next
	}
	if j := c.job; j != nil && c.logComplete {
		c.must(state == j.State, logged, "the job is %s, but its log ends in %s", j.State, state)
		c.must(attempt == j.Attempt, logged, "the job is at attempt %d, but its log at %d", j.Attempt, attempt)
		wanted := count(j.Type == emitEvent && j.State == succeeded)
		c.must(emissions == wanted, logged, "%d events are the client's own, expected %d", emissions, wanted)
		c.must(c.row == nil || c.row.EventSeq == len(c.log), logged, "event_seq is %d with %d events", j.EventSeq, len(c.log))
	}
}

// emits reports whether the job was asked to emit the event: name and data.
func (c *checker) emits(text string) bool {
	if c.job == nil || c.ticket == 0 {
		return true // unknown
	}
	return c.job.Type == emitEvent && text == fmt.Sprintf("simulated %d", c.ticket)
}

// checkEnd: at the end a job is final with the outcome of its state, or waits for
// a time that has not come. The run waited for every job, however late it came.
func (c *checker) checkEnd() {
	j := c.job
	if j == nil {
		return
	}
	c.look(ended)
	c.must(j.Outcome == outcomes[j.State], ended, "the job is %s with outcome %q", j.State, j.Outcome)
	c.must(j.FinishedAt.IsZero() != final(j.State), ended, "the job is %s with finished_at %s", j.State, clock(j.FinishedAt))
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
	return waiting(c.job.State) && due.After(c.run.serviceTime(c.run.asOf(c.source)))
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
		return c.run.serviceTime(f.At.Add(-maxOverdue)).Before(c.row.RunAt)
	}
	return false
}

// checkEarly: nothing begins before execution_at, and what a moved clock jumped or ran over is queued at that time, however
// late it was. All times are the service's.
func (c *checker) checkEarly() {
	var due time.Time
	if c.submission != nil {
		due = c.submission.ExecutionAt
	}
	if due.IsZero() && c.job != nil {
		due = c.job.ExecutionAt
	}
	if due.IsZero() {
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
		c.must(start.IsZero() || !start.Before(at), early,
			"the report of attempt %d says that it started at %s, before execution_at", n, clock(start))
	}
	if c.job != nil {
		start := c.job.StartedAt
		c.must(start.IsZero() || !start.Before(at), early, "the job started at %s, before execution_at", clock(start))
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
		start := starts[n]
		c.must(r.StartedAt.Equal(start.At), fenced,
			"the report of attempt %d has started_at %s, which is not the start of its last claim", n, clock(r.StartedAt))
		end, ok := c.ends[n]
		c.must(!ok || r.FinishedAt.Equal(end.At), fenced, "the report of attempt %d has finished_at %s, the attempt ended at %s",
			n, clock(r.FinishedAt), clock(end.At))
	}
	start, ran := starts[c.row.Attempt]
	c.must(!ran || c.row.StartedAt.Equal(start.At), fenced,
		"the job has started_at %s, its last claim started at %s", clock(c.row.StartedAt), clock(start.At))
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
		if !r.StartedAt.IsZero() {
			took = r.FinishedAt.Sub(r.StartedAt)
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
	if c.row != nil && c.row.Definition != nil {
		work = time.Duration(c.row.Definition.DurationMS) * time.Millisecond
	}
	least := scaled(work, *c.run.TimeScale)
	return least - least/100 - 5*time.Millisecond
}
