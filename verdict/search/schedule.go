// Package search looks for the shortest sequence of faults that breaks a client. It plans schedules of faults and checks whether the
// client broke. Then it shortens a schedule that broke the client. The caller runs the client; this package starts no programs and sends
// no requests.
package search

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Step is a fault that is injected into one request, and into Times - 1 repetitions of the request.
type Step struct {
	Operation string       `json:"operation"`
	Of        fault.Use    `json:"of"`
	Nth       int          `json:"nth"`   // number of the request among the requests of the operation, starting at 1
	Times     int          `json:"times"` // number of tries that get the fault
	Effect    fault.Effect `json:"effect"`

	name string // cached result of the method `kind`
}

func newStep(o Operation, nth int, e fault.Effect) Step {
	s := Step{Operation: o.Name, Of: o.Of, Nth: nth, Times: 1, Effect: e}
	s.name = s.kind()
	return s
}

// Schedule is a sequence of faults, ordered by operation and request.
type Schedule []Step

// Rules returns the rules that implement the schedule.
func (s Schedule) Rules() []fault.Rule {
	rules := make([]fault.Rule, len(s))
	for i, step := range s {
		rules[i] = fault.Rule{Match: fault.Match{Operation: step.Operation, Nth: step.Nth}, Effect: step.Effect}
		if step.Times > 1 {
			rules[i].Match.Times, rules[i].Match.Same = step.Times, true
		}
	}
	return rules
}

// String describes the schedule in words, such as "1st submission: response lost after processing; then 2nd submission: 503".
func (s Schedule) String() string {
	if len(s) == 0 {
		return "no faults"
	}
	parts := make([]string, len(s))
	for i, step := range s {
		parts[i] = step.String()
	}
	return strings.Join(parts, "; then ")
}

var nouns = map[fault.Use]string{
	fault.Submissions: "submission", fault.Lookups: "read of a job", fault.Outcomes: "read of an outcome",
	fault.Streams: "connection to a stream", fault.Deliveries: "delivery", fault.Others: "request",
}

func (s Step) String() string {
	text := fmt.Sprintf("%s %s", ordinal(s.Nth), nouns[s.Of])
	if s.Of == fault.Others {
		text += " of " + s.Operation
	}
	if s.Times > 1 {
		text += fmt.Sprintf(" and its next %d repetitions", s.Times-1)
		text = strings.Replace(text, "next 1 repetitions", "repetition", 1)
	}
	return text + ": " + words(&s.Effect)
}

func words(e *fault.Effect) string {
	text := strings.Join(e.Kinds(), ", ")
	switch {
	case e.CutAfter != nil:
		text += fmt.Sprintf(" after %d events", *e.CutAfter)
	case e.HalfEventAfter != nil:
		text += fmt.Sprintf(" after %d whole events", *e.HalfEventAfter)
	case e.StallAfter != nil:
		text += fmt.Sprintf(" after %d events", *e.StallAfter)
	}
	if e.RetryAfter != nil && e.RetryAfterAs == "" {
		text = strings.Replace(text, "Retry-After", fmt.Sprintf("Retry-After: %d", *e.RetryAfter), 1)
	}
	if e.Delay > 0 {
		text += " of " + time.Duration(e.Delay).String()
	}
	return strings.NewReplacer(" after 1 events", " after 1 event", " after 1 whole events", " after 1 whole event").Replace(text)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

func (s Schedule) key() string {
	var b strings.Builder
	for _, step := range s {
		fmt.Fprintf(&b, "%d*%d %s\n", step.Nth, step.Times, step.kind())
	}
	return b.String()
}

// kind identifies the operation and the effect of a step, regardless of the request.
func (s Step) kind() string {
	if s.name != "" {
		return s.name
	}
	return s.Operation + " " + text(s.Effect)
}

// text returns the JSON of a value, which identifies equal values.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // impossible: rules can be encoded
		return err.Error()
	}
	return string(b)
}

// sorted sorts steps by use, operation and request. If two steps start at the same request, it keeps only the first.
func sorted(steps []Step) Schedule {
	s := slices.Clone(steps)
	slices.SortStableFunc(s, func(a, b Step) int {
		return cmp.Or(cmp.Compare(slices.Index(fault.Uses, a.Of), slices.Index(fault.Uses, b.Of)),
			strings.Compare(a.Operation, b.Operation), cmp.Compare(a.Nth, b.Nth))
	})
	return slices.CompactFunc(s, func(a, b Step) bool { return a.Operation == b.Operation && a.Nth == b.Nth })
}

// contains reports whether the schedule has the steps of `other` in the same order, perhaps at other requests.
func (s Schedule) contains(other Schedule) bool {
	at := 0
	for _, step := range s {
		if at < len(other) && step.kind() == other[at].kind() && step.Times >= other[at].Times {
			at++
		}
	}
	return at == len(other)
}

// failsInRow returns the maximum number of consecutive failures of one request. It adds one for each fault with NextRequest, because such
// a fault may disturb any later request.
func (s Schedule) failsInRow() (most int) {
	row, dead, last := 0, 0, Step{}
	for _, step := range s {
		switch {
		case step.Effect.NextRequest != "":
			row, dead = 0, dead+step.Times
		case !failing(&step.Effect):
			row = 0
		case step.Operation == last.Operation && step.Nth == last.Nth+last.Times:
			row += step.Times
		default:
			row = step.Times
		}
		most, last = max(most, row), step
	}
	return most + dead
}

// failing reports whether the client must repeat the request.
func failing(e *fault.Effect) bool {
	return e.Replaces() && e.Moved == 0 || e.Close != "" || e.CutAfter != nil && *e.CutAfter == 0
}

// mayFail reports whether the step's fault excuses a client that fails. A client need not retry after a 500.
func (s Step) mayFail() bool { return mayEndClient(&s.Effect) || s.Effect.Status == 500 }

func (s Schedule) mayFail() bool { return slices.ContainsFunc(s, Step.mayFail) }

// waits returns the longest time that the faults may keep a client waiting.
func (s Schedule) waits() (d time.Duration) {
	for _, step := range s {
		d += time.Duration(step.Times) * cost(&step.Effect)
	}
	return d
}
