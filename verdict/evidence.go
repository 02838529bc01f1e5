package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

type finding struct {
	times, failures int
	passed, broken  []Evidence
	ways            []string // for each entry of `broken`: the expected behavior, and the shapes of the requests (see the function shape)
	broke           []int
	doubtful        string  // why the rule could not be judged; usually empty
	cites           *demand // requirement to cite in place of the rule's own; may be nil
}

func (f *finding) doubt(what string) { f.doubtful = what }

// pass notes that x followed the rule. `before` is an earlier request that made the rule apply to x. Both x and `before` may be nil.
func (f *finding) pass(before, x *exchange, found string) {
	f.times++
	if len(f.passed) == 0 {
		f.passed = append(f.passed, Evidence{Before: moment(before), Request: moment(x), Found: found, Expected: "This.", Times: 1})
	}
}

func (f *finding) fail(before, x *exchange, found, expected string) {
	f.failBy(nil, before, x, found, expected)
}

// failBy is like fail. `cites` is the requirement that the mistake violates; nil means the rule's own requirement. If mistakes differ in
// `cites`, the result cites the rule's own requirement.
func (f *finding) failBy(cites *demand, before, x *exchange, found, expected string) {
	if f.failures > 0 && f.cites != cites {
		cites = nil
	}
	f.cites = cites
	f.times++
	f.failures++
	if by := cmp.Or(x, before); by != nil {
		f.broke = append(f.broke, by.place)
	}
	way := strings.Join([]string{expected, shape(before), shape(x)}, "\n")
	if i := slices.Index(f.ways, way); i >= 0 {
		f.broken[i].Times++
		return
	}
	if len(f.broken) < maxEvidence {
		f.ways = append(f.ways, way)
		f.broken = append(f.broken, Evidence{Before: moment(before), Request: moment(x), Found: found, Expected: expected, Times: 1})
	}
}

func (f *finding) judge(ok bool, before, x *exchange, found, expected string) {
	if ok {
		f.pass(before, x, found)
		return
	}
	f.fail(before, x, found, expected)
}

func either[T any](first bool, one, other T) T {
	if first {
		return one
	}
	return other
}

// shape returns the request, the status and the kinds of faults as text. It leaves out the job id and delays, so that repeated mistakes
// look equal.
func shape(x *exchange) string {
	if x == nil {
		return ""
	}
	path := x.Path
	if x.Job != "" {
		path = strings.ReplaceAll(path, x.Job, "{job}")
	}
	parts := []string{string(x.Role), x.Method, path, strconv.Itoa(x.Status)}
	if x.Fault != nil {
		undelayed := *x.Fault
		undelayed.Delay, undelayed.SlowBytes = 0, 0
		parts = append(parts, undelayed.Kinds()...)
	}
	return strings.Join(parts, " ")
}

func moment(x *exchange) *Moment {
	if x == nil {
		return nil
	}
	return &Moment{
		At: fault.Time(x.Start), Until: fault.Time(x.End()), Request: requestText(x), Headers: headers(x), Connection: x.Connection,
		Answer: responseText(x), Fault: faultText(x.Fault),
	}
}

func requestText(x *exchange) string {
	if x.Delivery != "" {
		return fmt.Sprintf("POST (delivery %s, attempt %d, %s)", x.Delivery, x.Number, x.Event)
	}
	text := x.Method + " " + x.Path
	if x.Query != "" {
		text += "?" + x.Query
	}
	return text
}

// Secrets appear as hashes.
func headers(x *exchange) []string {
	list := []string{}
	for _, h := range []struct{ name, value string }{
		{"X-Correlation-ID", x.Correlation}, {"Prefer", x.Prefer}, {"If-None-Match", x.IfNoneMatch}, {"Last-Event-ID", x.LastEventID},
		{"Idempotency-Key", hashed(x.Key)}, {"body", hashed(x.Body)},
		{"signature", either(x.Unsigned, "invalid", "")}, {"URL", either(x.KeyInURL, "contains a key", "")},
	} {
		if h.value != "" {
			list = append(list, h.name+": "+h.value)
		}
	}
	return list
}

func hashed(sum string) string {
	if sum == "" {
		return ""
	}
	return "(hash " + sum[:min(len(sum), 8)] + ")"
}

func responseText(x *exchange) string {
	switch {
	case x.HungUp:
		return "none: the client hung up"
	case x.Fault != nil && x.Fault.Drop:
		return "none: the delivery was not sent"
	case x.Fault != nil && x.Fault.Close != "":
		return lostText(x)
	case x.Stream != nil:
		return fmt.Sprintf("a stream of %d events", x.Stream.Events)
	case x.Status == 0:
		return "none"
	}
	parts := []string{strings.TrimSpace(strconv.Itoa(x.Status) + " " + x.Code)}
	if x.RetryAfter != nil {
		parts = append(parts, fmt.Sprintf("Retry-After: %d", *x.RetryAfter))
	}
	if x.ETag != "" {
		parts = append(parts, "ETag: "+x.ETag)
	}
	return strings.Join(parts, ", ")
}

func lostText(x *exchange) string {
	by := either(x.Fault.Reset, ", with a TCP reset", "")
	switch x.Fault.Close {
	case fault.CloseNever:
		return "none: the service neither responded nor closed the connection"
	case fault.CloseBefore:
		return "none: the request was cut off before processing" + by
	case fault.CloseHalf:
		return "none: the service had closed its side of the connection"
	case fault.CloseStall:
		return fmt.Sprintf("stalled: only part of a %d arrived", x.Status)
	case fault.CloseMidBody:
		return fmt.Sprintf("cut off: only part of a %d was sent%s", x.Status, by)
	}
	if x.Status == 0 {
		return "none: the response was lost after processing" + by
	}
	return fmt.Sprintf("none: a %d was lost after processing%s", x.Status, by)
}

// Example: "response lost after processing {...}".
func faultText(e *fault.Effect) string {
	if e == nil {
		return ""
	}
	text, err := json.Marshal(e)
	if err != nil { // impossible for an effect read from JSON
		return err.Error()
	}
	return strings.Join(e.Kinds(), ", ") + " " + string(text)
}

func after(d time.Duration) string {
	if d < 100*time.Millisecond {
		return "within 0.1 s"
	}
	return fmt.Sprintf("after %.1f s", d.Seconds())
}
