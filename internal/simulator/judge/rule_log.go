package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeLog: numbered from 1, each transition leaves the state that the one before
// reached, only along the table, and time does not run backwards.
func (q *inquiry) judgeLog() {
	if len(q.log) == 0 {
		q.must(!q.whole || q.row == nil, logged, "the job has no events")
		return
	}
	q.look(logged)
	state, attempt, emissions := "", 1, 0
	ids := make(map[string]bool, len(q.log))
	for i, e := range q.log {
		q.must(e.Seq == i+1, logged, "event %d (%s) has seq %d: the log has a gap or a double", i+1, e.Name, e.Seq)
		q.must(e.ID != "" && !ids[e.ID], logged, "event %d (%s) has an id that is not its own: %q", e.Seq, e.Name, e.ID)
		ids[e.ID] = true
		q.must(i == 0 || !e.At.Before(q.log[i-1].At), logged, "event %d (%s) is earlier than the one before", e.Seq, e.Name)
		if e.Name == nameRetried {
			attempt++
		}
		q.must(e.Attempt == attempt, logged, "event %d (%s) is of attempt %d, not of %d", e.Seq, e.Name, e.Attempt, attempt)
		if e.Name == nameEmitted {
			emissions++
			q.must(q.emits(e.Emitted), logged, "event %d (%s) is %q, which the client did not ask for", e.Seq, e.Name, e.Emitted)
		}
		if annotation(e.Name) {
			q.must(e.Prev == "" && e.Next == "", logged, "event %d (%s) is no transition, and goes from %q to %q", e.Seq, e.Name, e.Prev, e.Next)
			continue
		}
		q.must(e.Prev == state, logged, "event %d (%s) leaves %q, but the job was in %q", e.Seq, e.Name, e.Prev, state)
		name := eventName(e.Prev, e.Next)
		q.must(name != "", logged, "event %d (%s) goes from %q to %q, which is not allowed", e.Seq, e.Name, e.Prev, e.Next)
		q.must(name == "" || name == e.Name, logged, "event %d goes from %q to %q and is called %s", e.Seq, e.Prev, e.Next, e.Name)
		state = e.Next
	}
	if told := q.told(); told != nil && q.whole {
		q.must(state == told.State, logged, "the job is %s, but its log ends in %s", told.State, state)
		q.must(attempt == told.Attempt, logged, "the job is at attempt %d, but its log at %d", told.Attempt, attempt)
		wanted := oneIf(told.Type == emitEvent && told.State == succeeded)
		q.must(emissions == wanted, logged, "%d events are the client's own, expected %d", emissions, wanted)
		q.must(q.row == nil || q.row.EventSeq == len(q.log), logged, "event_seq is %d with %d events", told.EventSeq, len(q.log))
	}
}

// emits reports whether the text, name and data, is that of the event that the
// job was asked to emit.
func (q *inquiry) emits(text string) bool {
	told := q.told()
	if told == nil || q.ticket == 0 {
		return true // nobody knows
	}
	return told.Type == emitEvent && text == fmt.Sprintf("simulated %d", q.ticket)
}

// judgeReportedLogs: the log that a report tells is the beginning of the job's.
func (q *inquiry) judgeReportedLogs() {
	if !q.whole {
		return
	}
	for _, f := range q.byKind[history.ToldReport] {
		if f.Report == nil {
			continue
		}
		q.look(answered)
		for i, e := range f.Report.Events {
			same := i < len(q.log) && sameEvent(e, q.log[i])
			q.must(same, answered, "the report of attempt %d tells %s with seq %d as event %d, which the log does not have there", f.Report.Attempt, e.Name, e.Seq, i+1)
			if !same {
				break
			}
		}
		end, ok := q.ends()[f.Report.Attempt]
		q.must(!ok || len(f.Report.Events) >= end.Seq, answered, "the report of attempt %d has %d events, the attempt ended with event %d",
			f.Report.Attempt, len(f.Report.Events), end.Seq)
	}
}

func sameEvent(a, b history.Event) bool {
	return a.ID == b.ID && a.Seq == b.Seq && a.Name == b.Name && a.Prev == b.Prev && a.Next == b.Next && a.Attempt == b.Attempt && a.At.Equal(b.At) && a.Emitted == b.Emitted
}
