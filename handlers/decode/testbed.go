package decode

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Faults is a decoded request for a client's rules. With a profile, its rules come after the others.
type Faults struct {
	Profile fault.Profile
	Seed    int64
	Rules   []fault.Rule
}

// FaultRules reads the body of a request for rules: an array of them, or an object with a profile, a seed and rules.
// Operations are those that a rule may name.
func FaultRules(body []byte, operations []string) (Faults, error) {
	d := newDecoder(body)
	f := Faults{Seed: 1}
	if d.json.PeekKind() == '[' {
		d.faultRules(&f, operations)
		if _, err := d.json.ReadToken(); d.err == nil && !errors.Is(err, io.EOF) {
			d.malformedAt("", "The body must be one JSON array; something follows it.")
		}
		return f, d.result()
	}
	d.document([]member{
		{name: "profile", read: func() { f.Profile, _ = choose(d, "profile", fault.Profiles) }},
		{name: "seed", read: func() { f.Seed = int64(d.integer(0, 1<<53, 1)) }},
		{name: "rules", read: func() {
			if d.begins('[', "an array") {
				d.faultRules(&f, operations)
			}
		}},
	})
	return f, d.result()
}

// Fault reads the one effect that a header asks for.
func Fault(header []byte) (fault.Effect, error) {
	d := newDecoder(header)
	var e fault.Effect
	d.document(d.effectMembers(&e))
	if d.err == nil && len(d.violations()) == 0 {
		d.checkEffect(&e, "", "")
	}
	return e, d.result()
}

func (d *decoder) faultRules(f *Faults, operations []string) {
	d.array(func(i int) {
		from := d.json.InputOffset()
		var r fault.Rule
		if i == fault.MaxRules {
			d.malformed(fmt.Sprintf("A client may have %d rules at most.", fault.MaxRules))
		}
		d.faultRule(&r, operations)
		if d.json.InputOffset()-from > fault.MaxRuleBytes {
			d.malformed(fmt.Sprintf("A rule may take %d bytes at most.", fault.MaxRuleBytes))
		}
		if i < fault.MaxRules {
			f.Rules = append(f.Rules, r)
		}
	})
}

func (d *decoder) faultRule(r *fault.Rule, operations []string) {
	if !d.begins('{', "an object") {
		return
	}
	effect := false
	found, at := len(d.violations()), ""
	d.object([]member{
		{name: "match", read: func() {
			if d.begins('{', "an object") {
				d.faultMatch(&r.Match, operations)
			}
		}},
		{name: "effect", read: func() {
			if at = d.pointer(); d.begins('{', "an object") {
				effect = true
				d.object(d.effectMembers(&r.Effect))
			}
		}},
	})
	d.require(effect, "effect")
	if effect && d.err == nil && len(d.violations()) == found {
		d.checkEffect(&r.Effect, at, r.Match.Operation)
	}
}

func (d *decoder) faultMatch(m *fault.Match, operations []string) {
	found, at := len(d.violations()), d.pointer()
	moment := func(to **fault.Time) func() {
		return func() {
			t, _ := d.time()
			*to = fault.TimeOf(t)
		}
	}
	d.object([]member{
		{name: "operation", read: func() { m.Operation, _ = choose(d, "operation", append(operations, fault.Delivery)) }},
		{name: "nth", read: func() { m.Nth = d.integer(1, 1_000_000, 0) }},
		{name: "times", read: func() { m.Times = d.integer(1, fault.MaxTimes, 0) }},
		{name: "for", read: func() { m.For = d.lengthUpTo(fault.MaxFor) }},
		{name: "every", read: func() { m.Every = d.integer(1, 1_000_000, 0) }},
		{name: "probability", read: func() { m.Probability = d.probability() }},
		{name: "from", read: moment(&m.From)},
		{name: "until", read: moment(&m.Until)},
	})
	counting := 0
	for _, given := range []bool{m.Nth > 0, m.Every > 0, m.Probability > 0} {
		if given {
			counting++
		}
	}
	if counting > 1 && len(d.violations()) == found {
		d.wrong(at, "Only one of nth, every and probability may be given.")
	}
	if m.Window() && m.Nth == 0 && len(d.violations()) == found {
		d.wrong(at, "times and for need nth, with which the window begins.")
	}
	if m.From != nil && m.Until != nil && !time.Time(*m.From).Before(time.Time(*m.Until)) {
		d.wrong(at+"/until", "This must be after from.")
	}
}

// effectMembers are those of an effect.
func (d *decoder) effectMembers(e *fault.Effect) []member {
	events := func(to **int) func() {
		return func() {
			if n := d.integer(0, fault.MaxEvents, -1); n >= 0 {
				*to = &n
			}
		}
	}
	return []member{
		{name: "status", read: func() { e.Status = d.integer(400, 599, 0) }},
		{name: "code", read: func() { e.Code, _ = choose(d, "code", codes()) }},
		{name: "retry_after", read: func() {
			if n := d.integer(0, fault.MaxRetry, -1); n >= 0 {
				e.RetryAfter = &n
			}
		}},
		{name: "html", read: func() { e.HTML = d.boolean() }},
		{name: "moved", read: func() { e.Moved = d.boolean() }},
		{name: "delay", read: func() { e.Delay = d.lengthUpTo(fault.MaxDelay) }},
		{name: "close", read: func() { e.Close, _ = choose(d, "moment", fault.Closes) }},
		{name: "slow_bytes", read: func() { e.SlowBytes = d.integer(1, 1<<20, 0) }},
		{name: "content_type", read: func() { e.ContentType = d.word(isHeaderText, "This must be printable ASCII.") }},
		{name: "cut_after", read: events(&e.CutAfter)},
		{name: "half_event_after", read: events(&e.HalfEventAfter)},
		{name: "stall_after", read: events(&e.StallAfter)},
		{name: "repeat_after_resume", read: func() { e.RepeatAfter = d.integer(1, fault.MaxEvents, 0) }},
		{name: "comments_only", read: func() { e.CommentsOnly = d.boolean() }},
		{name: "drop", read: func() { e.Drop = d.boolean() }},
		{name: "repeat", read: func() { e.Repeat = d.integer(1, fault.MaxCopies, 0) }},
		{name: "tamper", read: func() { e.Tamper, _ = choose(d, "kind of tampering", fault.Tampers) }},
		{name: "rotated_secret", read: func() { e.RotatedSecret = d.boolean() }},
		{name: "padding", read: func() { e.Padding = d.integer(1, fault.MaxPadding, 0) }},
		{name: "job_status", read: func() { e.JobStatus = d.word(isHeaderText, "This must be printable ASCII.") }},
		{name: "extensions", read: func() { e.Extensions = d.boolean() }},
		{name: "omit_optional", read: func() { e.OmitOptional = d.boolean() }},
		{name: "problem_type", read: func() { e.ProblemType = d.word(isHeaderText, "This must be a URI.") }},
		{name: "language", read: func() { e.Language, _ = choose(d, "language", fault.Languages) }},
	}
}

func codes() (all []string) {
	for _, spec := range job.Codes {
		all = append(all, string(spec.Code))
	}
	return all
}

// checkEffect refuses what contradicts itself, and what is not for the operation.
func (d *decoder) checkEffect(e *fault.Effect, at, operation string) {
	_, known := testbed.CodeOf(e.Status)
	switch {
	case *e == fault.Effect{}:
		d.wrong(at, "The effect must have at least one member.")
	case operation == fault.Delivery || e.OfDeliveries():
		d.checkDeliveryEffect(e, at, operation)
	case e.Status != 0 && e.Code != "" && e.Status != job.Code(e.Code).Spec().Status:
		d.wrong(at+"/status", "The code has another status; leave one of both out.")
	case e.Status != 0 && !e.HTML && !known:
		d.wrong(at+"/status", "The contract has no error with this status. With html it may be any from 400 to 599.")
	case e.HTML && e.Code != "":
		d.wrong(at+"/html", "A proxy's page has no code; leave one of both out.")
	case e.Moved && (e.Status != 0 || e.Code != "" || e.HTML):
		d.wrong(at+"/moved", "A redirection has its own status; leave one of both out.")
	case e.RetryAfter != nil && e.Status == 0 && e.Code == "" && !e.HTML:
		d.wrong(at+"/retry_after", "This needs status, code or html.")
	case e.Close == fault.CloseBefore && (e.Status != 0 || e.Code != "" || e.HTML || e.Moved || e.SlowBytes > 0):
		d.wrong(at+"/close", "A connection that is closed before the work has no answer.")
	}
}

func (d *decoder) checkDeliveryEffect(e *fault.Effect, at, operation string) {
	switch {
	case operation != fault.Delivery:
		d.wrong(at, "The effects drop, repeat, tamper, rotated_secret and padding are for rules whose operation is delivery.")
	case !e.ForDeliveries():
		d.wrong(at, "For deliveries there are drop, repeat, tamper, rotated_secret, padding and delay.")
	case e.Drop && (*e != fault.Effect{Drop: true, Delay: e.Delay}):
		d.wrong(at+"/drop", "A delivery that is not sent has no other effect than delay.")
	case !e.Drop && time.Duration(e.Delay) > fault.MaxDeliveryDelay:
		d.wrong(at+"/delay", "A delivery may wait "+fault.MaxDeliveryDelay.String()+" at most. With drop it may be longer.")
	}
}

// wrong records a wrong value at a place that was read before.
func (d *decoder) wrong(at, detail string) {
	if len(d.values) < d.limit {
		d.values = append(d.values, job.Violation{Pointer: at, Detail: detail})
		return
	}
	d.more++
}

// probability reads a number above 0, up to 1.
func (d *decoder) probability() float64 {
	if !d.begins('0', "a number") {
		return 0
	}
	p, err := strconv.ParseFloat(string(d.value()), 64)
	if d.err == nil && (err != nil || p <= 0 || p > 1) {
		d.invalid("This must be a number above 0, up to 1.")
		return 0
	}
	return p
}

// lengthUpTo reads a length of time such as "1.5s", up to a longest one.
func (d *decoder) lengthUpTo(most time.Duration) fault.Duration {
	length, _ := d.span(1, most, "This must be a length of time such as 250ms or 1.5s, up to "+most.String()+".")
	return fault.Duration(length)
}

// maxHeaderText is the length of text that is sent in a header or as a short name.
const maxHeaderText = 200

func isHeaderText(s string) bool {
	return s != "" && len(s) <= maxHeaderText && !slices.ContainsFunc([]byte(s), func(b byte) bool { return b < 0x20 || b > 0x7e })
}
