package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkEnd: at the end a job is final, or waits for a future time. The run waited for every job.
func (c *checker) checkEnd() {
	j := c.job
	if j == nil {
		return
	}
	c.must(j.Outcome == outcomes[j.State] && j.FinishedAt.IsZero() != final(j.State), ended,
		"the job is %s with outcome %q and finished_at %s", j.State, j.Outcome, clock(j.FinishedAt))
	due := cmp.Or(j.RunAt, j.ExecutionAt)
	waits := waiting(j.State) && due.After(c.run.serviceTime(c.run.asOf(c.source)))
	c.must(final(j.State) || waits, ended, "the job is %s though all should have ended", j.State)
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
	c.must(emitted == wanted, logged, "%d events are the client's own, expected %d", emitted, wanted)
	last := j.State == failed && j.Attempt == j.MaxAttempts
	c.must(j.MaxAttempts <= 0 || exhausted == count(last), ended, "attempt %d of %d, %s: %d events say that the retries are exhausted",
		j.Attempt, j.MaxAttempts, j.State, exhausted)
}

// emits reports whether the job's request has the event: name and data.
func (c *checker) emits(text string) bool {
	if c.job == nil || c.ticket == 0 {
		return true // unknown
	}
	return c.job.Type == emitEvent && text == fmt.Sprintf("simulated %d", c.ticket)
}

// checkTasks: a queued task has its job, which waits for it. Exceptions are the active task of a dead worker and the scheduled one of a
// canceled job.
func (c *checker) checkTasks() {
	for _, f := range c.byKind[history.QueuedTask] {
		if !c.run.complete(Rows) {
			return
		}
		t := f.Task
		if c.row == nil {
			c.must(false, tasked, "task %s is %s, and its job does not exist", t.ID, t.State)
			continue
		}
		ok := waiting(c.row.State) && c.row.Attempt == t.Attempt || t.State == "active" && (c.run.Killed || c.run.Chaos) ||
			t.State == "scheduled" && c.run.serviceTime(f.At.Add(-maxOverdue)).Before(c.row.RunAt)
		c.must(ok, tasked, "task %s is %s, and its job is %s at attempt %d", t.ID, t.State, c.row.State, c.row.Attempt)
	}
}

// checkEarly: nothing begins before execution_at. A job that existed when a moved clock passed that time is queued with that time,
// however late it was. All times are the service's.
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
			"the clock was moved past execution_at, and the job was queued %s later", s.At.Sub(due))
	}
}

// checkDurations: a report's duration is the time from start to end, and a completed attempt took as long as its work.
func (c *checker) checkDurations() {
	for _, n := range c.attempts {
		r := c.reports[n]
		took := time.Duration(0)
		if !r.StartedAt.IsZero() {
			took = r.FinishedAt.Sub(r.StartedAt)
		}
		said := time.Duration(r.DurationMS) * time.Millisecond
		c.must(c.row != nil || (took-said).Abs() <= time.Millisecond, timed, "attempt %d took %s, its report says %s", n, took, said)
		least := c.leastDuration()
		worked := r.Outcome == outcomes[succeeded] || r.Failure != "" && r.Failure == catalogue[c.kind].code && r.Failure != codeTimeout
		c.must(!worked || took >= least, timed, "attempt %d ended as %s after %s, its work takes %s", n, r.Outcome, took, least)
	}
}

// leastDuration returns the shortest time of the work, allowing for clock corrections; 0: unknown.
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
