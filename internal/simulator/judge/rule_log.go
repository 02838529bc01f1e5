package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeLog: numbered from 1, each transition leaves the state that the one before
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
		c.must(e.Seq == i+1, logged, "event %d (%s) has seq %d: the log has a gap or a double", i+1, e.Name, e.Seq)
		c.must(e.ID != "" && !ids[e.ID], logged, "event %d (%s) has an id that is not its own: %q", e.Seq, e.Name, e.ID)
		ids[e.ID] = true
		c.must(i == 0 || !e.At.Before(c.log[i-1].At), logged, "event %d (%s) is earlier than the one before", e.Seq, e.Name)
		if e.Name == nameRetried {
			attempt++
		}
		c.must(e.Attempt == attempt, logged, "event %d (%s) is of attempt %d, not of %d", e.Seq, e.Name, e.Attempt, attempt)
		if e.Name == nameEmitted {
			emissions++
			c.must(c.emits(e.Emitted), logged, "event %d (%s) is %q, which the client did not ask for", e.Seq, e.Name, e.Emitted)
		}
		if annotation(e.Name) {
			c.must(e.Prev == "" && e.Next == "", logged, "event %d (%s) is no transition, and goes from %q to %q", e.Seq, e.Name, e.Prev, e.Next)
			continue
		}
		c.must(e.Prev == state, logged, "event %d (%s) leaves %q, but the job was in %q", e.Seq, e.Name, e.Prev, state)
		name := eventName(e.Prev, e.Next)
		c.must(name != "", logged, "event %d (%s) goes from %q to %q, which is not allowed", e.Seq, e.Name, e.Prev, e.Next)
		c.must(name == "" || name == e.Name, logged, "event %d goes from %q to %q and is called %s", e.Seq, e.Prev, e.Next, e.Name)
		state = e.Next
	}
	if job := c.current(); job != nil && c.logComplete {
		c.must(state == job.State, logged, "the job is %s, but its log ends in %s", job.State, state)
		c.must(attempt == job.Attempt, logged, "the job is at attempt %d, but its log at %d", job.Attempt, attempt)
		wanted := oneIf(job.Type == emitEvent && job.State == succeeded)
		c.must(emissions == wanted, logged, "%d events are the client's own, expected %d", emissions, wanted)
		c.must(c.row == nil || c.row.EventSeq == len(c.log), logged, "event_seq is %d with %d events", job.EventSeq, len(c.log))
	}
}

// emits reports whether the text, name and data, is that of the event that the
// job was asked to emit.
func (c *checker) emits(text string) bool {
	job := c.current()
	if job == nil || c.ticket == 0 {
		return true // nobody knows
	}
	return job.Type == emitEvent && text == fmt.Sprintf("simulated %d", c.ticket)
}

// judgeReportedLogs: the log that a report tells is the beginning of the job's.
func (c *checker) checkReportedLogs() {
	if !c.logComplete {
		return
	}
	for _, f := range c.byKind[history.ToldReport] {
		if f.Report == nil {
			continue
		}
		c.look(answered)
		for i, e := range f.Report.Events {
			same := i < len(c.log) && sameEvent(e, c.log[i])
			c.must(same, answered, "the report of attempt %d tells %s with seq %d as event %d, which the log does not have there", f.Report.Attempt, e.Name, e.Seq, i+1)
			if !same {
				break
			}
		}
		end, ok := c.ends()[f.Report.Attempt]
		c.must(!ok || len(f.Report.Events) >= end.Seq, answered, "the report of attempt %d has %d events, the attempt ended with event %d",
			f.Report.Attempt, len(f.Report.Events), end.Seq)
	}
}

func sameEvent(a, b history.Event) bool {
	return a.ID == b.ID && a.Seq == b.Seq && a.Name == b.Name && a.Prev == b.Prev && a.Next == b.Next && a.Attempt == b.Attempt && a.At.Equal(b.At) && a.Emitted == b.Emitted
}
