package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// annotations are the events that are no transition; they carry no states.
var annotations = []string{"job.retries_exhausted", "job.progress", "event.emitted"}

// judgeEvents holds a job's whole history against what must be true of any:
// seq 1 to n, each transition leaving the state that the one before reached,
// only along the table, times that never run backwards, nothing before
// execution_at, and the scenario told by each event.
func judgeEvents(k kind, t ticket, j jobView, events []eventView) []string {
	var found []string
	differs := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(events) == 0 {
		differs("the report has no events")
		return found
	}
	state, ids := "", map[string]bool{}
	for i, e := range events {
		name := fmt.Sprintf("event %d (%s)", i+1, e.Name)
		if e.Seq != i+1 {
			differs("%s has seq %d: the log has a gap or is out of order", name, e.Seq)
		}
		if e.EventID == "" || ids[e.EventID] {
			differs("%s has event_id %q, which is not its own", name, e.EventID)
		}
		ids[e.EventID] = true
		if e.JobID != t.id {
			differs("%s is of job %q", name, e.JobID)
		}
		if i > 0 && e.Timestamp.Before(events[i-1].Timestamp.Time) {
			differs("%s is earlier than the event before it", name)
		}
		if e.Attempt < 1 || e.Attempt > j.Attempt || i > 0 && e.Attempt < events[i-1].Attempt {
			differs("%s is of attempt %d, which is out of order", name, e.Attempt)
		}
		found = append(found, judgeData(k, name, e.Data)...)
		if e.Prev == "" && slices.Contains(annotations, e.Name) {
			if e.Next != "" {
				differs("%s is no transition but has next_state %s", name, e.Next)
			}
			continue
		}
		found = append(found, judgeStep(name, state, e)...)
		if e.Next != stateCanceled && e.Next != stateCreated && e.Timestamp.Before(t.executionAt) {
			differs("%s came %s before execution_at", name, show(t.executionAt.Sub(e.Timestamp.Time)))
		}
		state = e.Next
	}
	if state != j.State {
		differs("the events end in %s, the job is %s", orNone(state), j.State)
	}
	return found
}

// judgeStep looks at one transition; state is where the last one ended.
func judgeStep(name, state string, e eventView) (found []string) {
	if e.Prev != state {
		found = append(found, fmt.Sprintf("%s leaves %s, but the job was %s", name, orNone(e.Prev), orNone(state)))
	}
	if want := eventName(e.Prev, e.Next); want == "" {
		found = append(found, fmt.Sprintf("%s goes from %s to %s, which is not allowed", name, orNone(e.Prev), orNone(e.Next)))
	} else if e.Name != want {
		found = append(found, fmt.Sprintf("%s goes from %s to %s, which is %s", name, orNone(e.Prev), e.Next, want))
	}
	return found
}

// eventName names the event of a step, "" for a step that is not allowed.
func eventName(from, to string) string {
	switch {
	case from == "" && to == stateCreated:
		return "job.created"
	case from == stateFailed && to == stateQueued:
		return "job.retried"
	case from == stateAssigned && to == stateQueued:
		return "job.lease_expired"
	case !slices.Contains(transitions[from], to):
		return ""
	}
	return map[string]string{
		stateQueued: "job.queued", stateAssigned: "job.assigned", stateRunning: "job.running",
		stateSucceeded: "job.succeeded", stateFailed: "job.failed", stateCanceled: "job.canceled",
	}[to]
}

// judgeData looks at the scenario in an event's data. Only work_kind is
// demanded; the others must agree with the catalogue where they are told.
func judgeData(k kind, name string, d eventData) (found []string) {
	if d.WorkKind != k.name {
		found = append(found, fmt.Sprintf("%s has work_kind %s in its data", name, orNone(d.WorkKind)))
	}
	if d.DurationMS != nil && k.duration > 0 && *d.DurationMS != k.duration.Milliseconds() {
		found = append(found, fmt.Sprintf("%s has duration_ms %d in its data, the catalogue has %d", name, *d.DurationMS, k.duration.Milliseconds()))
	}
	if d.ExpectedOutcome != "" && d.ExpectedOutcome != k.outcome {
		found = append(found, fmt.Sprintf("%s has expected_outcome %s in its data, the catalogue has %s", name, d.ExpectedOutcome, k.outcome))
	}
	return found
}

// firstEntry gives the time at which the job first entered the state.
func firstEntry(events []eventView, state string) (time.Time, bool) {
	for _, e := range events {
		if e.Next == state {
			return e.Timestamp.Time, true
		}
	}
	return time.Time{}, false
}

func ranOnce(events []eventView) bool {
	_, ok := firstEntry(events, stateRunning)
	return ok
}

// lastPrev gives the state that the last transition left.
func lastPrev(events []eventView) string {
	for _, e := range slices.Backward(events) {
		if e.Next != "" {
			return e.Prev
		}
	}
	return ""
}

func count(events []eventView, name string) (n int) {
	for _, e := range events {
		if e.Name == name {
			n++
		}
	}
	return n
}

// orNone makes a missing value visible in a message.
func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// show rounds a duration to what a reader needs.
func show(d time.Duration) string { return d.Round(time.Millisecond).String() }

func showInt(n *int) string {
	if n == nil {
		return orNone("")
	}
	return strconv.Itoa(*n)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return orNone("")
	}
	return t.UTC().Format("15:04:05.000Z")
}

func timeOf(m *moment) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.Time
}
