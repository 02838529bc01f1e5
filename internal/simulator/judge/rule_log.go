package judge

import (
	"fmt"

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

// checkReportedLogs: the log in a report is the beginning of the job's.
func (c *checker) checkReportedLogs() {
	if !c.logComplete {
		return
	}
	for _, f := range c.byKind[history.ToldReport] {
		r := f.Report
		if r == nil {
			continue
		}
		c.look(answered)
		for i, e := range r.Events {
			if i >= len(c.log) || !sameEvent(e, c.log[i]) {
				c.must(false, answered, "the report of attempt %d shows %s with seq %d as event %d, which the log does not have there",
					r.Attempt, e.Name, e.Seq, i+1)
				break
			}
		}
		end, ok := c.ends[r.Attempt]
		c.must(!ok || len(r.Events) >= end.Seq, answered, "the report of attempt %d has %d events, the attempt ended with event %d",
			r.Attempt, len(r.Events), end.Seq)
	}
}

// sameEvent compares what both the API and the rows say of an event.
func sameEvent(a, b history.Event) bool {
	at := a.At.Equal(b.At)
	a.At, a.StreamID, a.WorkKind, a.Status = b.At, b.StreamID, b.WorkKind, b.Status
	a.Job, a.DurationMS, a.Expected = b.Job, b.DurationMS, b.Expected
	return at && a == b
}
