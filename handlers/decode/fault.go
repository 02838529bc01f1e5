package decode

import (
	"fmt"
	"slices"
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
	d := newDecoder(body, Limits{})
	f := Faults{Seed: 1}
	operations = append(slices.Clip(operations), fault.Delivery)
	rules := set(&f.Rules, upTo(fault.MaxRules, fmt.Sprintf("A client may have %d rules at most.", fault.MaxRules),
		func(d *decoder) fault.Rule { return readFaultRule(d, operations) }))
	if d.json.PeekKind() == '[' {
		rules(d)
		d.end("The body must be one JSON array; something follows it.")
		return f, d.result()
	}
	d.document([]member{
		{"profile", optional, set(&f.Profile, choice("profile", fault.Profiles))},
		{"seed", optional, set(&f.Seed, integer[int64](0, 1<<53))},
		{"rules", optional, rules},
	})
	return f, d.result()
}

// Fault reads the one effect that a header asks for.
func Fault(header []byte) (e fault.Effect, err error) {
	d := readBody(header, effectMembers(&e))
	if d.fine() {
		checkEffect(d, &e, "", "")
	}
	return e, d.result()
}

func readFaultRule(d *decoder, operations []string) (r fault.Rule) {
	from, found, at := d.json.InputOffset(), d.count(), ""
	isObject := d.object([]member{
		{"match", optional, func(d *decoder) { readFaultMatch(d, &r.Match, operations) }},
		{"effect", required, func(d *decoder) {
			at = d.pointer()
			d.object(effectMembers(&r.Effect))
		}},
	})
	if isObject && d.err == nil && d.count() == found {
		checkEffect(d, &r.Effect, at, r.Match.Operation)
	}
	if d.json.InputOffset()-from > fault.MaxRuleBytes {
		d.malformed(fmt.Sprintf("A rule may take %d bytes at most.", fault.MaxRuleBytes))
	}
	return r
}

func readFaultMatch(d *decoder, m *fault.Match, operations []string) {
	found, at := d.count(), d.pointer()
	moment := as(pointer(readTime), fault.TimeOf)
	d.object([]member{
		{"operation", optional, set(&m.Operation, choice("operation", operations))},
		{"nth", optional, set(&m.Nth, integer(1, 1_000_000))},
		{"times", optional, set(&m.Times, integer(1, fault.MaxTimes))},
		{"for", optional, set(&m.For, lengthUpTo(fault.MaxFor))},
		{"every", optional, set(&m.Every, integer(1, 1_000_000))},
		{"probability", optional, set(&m.Probability, number(func(p float64) bool { return 0 < p && p <= 1 },
			"This must be a number above 0, up to 1."))},
		{"same", optional, set(&m.Same, readBool)},
		{"from", optional, set(&m.From, moment)},
		{"until", optional, set(&m.Until, moment)},
	})
	if count(m.Nth > 0, m.Every > 0, m.Probability > 0) > 1 && d.count() == found {
		d.invalidAt(at, "Only one of nth, every and probability may be given.")
	}
	if m.Window() && m.Nth == 0 && d.count() == found {
		d.invalidAt(at, "times and for need nth, with which the window begins.")
	}
	if m.From != nil && m.Until != nil && !time.Time(*m.From).Before(time.Time(*m.Until)) {
		d.invalidAt(at+"/until", "This must be after from.")
	}
}

var readCode = choice("code", names(job.Codes, func(s job.CodeSpec) string { return string(s.Code) }))

// effectMembers are those of an effect.
func effectMembers(e *fault.Effect) []member {
	events := pointer(integer(0, fault.MaxEvents))
	shortText := word(isHeaderText, "This must be printable ASCII.")
	return []member{
		{"status", optional, set(&e.Status, integer(400, 599))},
		{"code", optional, set(&e.Code, readCode)},
		{"retry_after", optional, set(&e.RetryAfter, pointer(integer(0, fault.MaxRetry)))},
		{"html", optional, set(&e.HTML, readBool)},
		{"retry_after_as", optional, set(&e.RetryAfterAs, choice("form", fault.RetryAfters))},
		{"moved", optional, set(&e.Moved, integer(303, 308))},
		{"to_other_host", optional, set(&e.OtherHost, readBool)},
		{"delay", optional, set(&e.Delay, lengthUpTo(fault.MaxDelay))},
		{"close", optional, set(&e.Close, choice("moment", fault.Closes))},
		{"next_request", optional, set(&e.NextRequest, choice("moment", fault.NextCloses))},
		{"reset", optional, set(&e.Reset, readBool)},
		{"refuse", optional, set(&e.Refuse, lengthUpTo(fault.MaxRefuse))},
		{"tls", optional, set(&e.TLS, parsed(func(*decoder, string) (fault.TLS, string) {
			return "", "The service listens without TLS. The proxy can do this: forgerun proxy --tls."
		}))},
		{"slow_bytes", optional, set(&e.SlowBytes, integer(1, 1<<20))},
		{"content_type", optional, set(&e.ContentType, shortText)},
		{"cut_after", optional, set(&e.CutAfter, events)},
		{"half_event_after", optional, set(&e.HalfEventAfter, events)},
		{"stall_after", optional, set(&e.StallAfter, events)},
		{"repeat_after_resume", optional, set(&e.RepeatAfter, integer(1, fault.MaxEvents))},
		{"comments_only", optional, set(&e.CommentsOnly, readBool)},
		{"extra_events", optional, set(&e.ExtraEvents, readBool)},
		{"stream_retry", optional, set(&e.StreamRetry, integer(1, int(fault.MaxDelay.Milliseconds())))},
		{"drop", optional, set(&e.Drop, readBool)},
		{"repeat", optional, set(&e.Repeat, integer(1, fault.MaxCopies))},
		{"tamper", optional, set(&e.Tamper, choice("kind of tampering", fault.Tampers))},
		{"rotated_secret", optional, set(&e.RotatedSecret, readBool)},
		{"padding", optional, set(&e.Padding, integer(1, fault.MaxPadding))},
		{"job_status", optional, set(&e.JobStatus, shortText)},
		{"unfinished", optional, set(&e.Unfinished, readBool)},
		{"other_end", optional, set(&e.OtherEnd, readBool)},
		{"extensions", optional, set(&e.Extensions, readBool)},
		{"null_optional", optional, set(&e.NullOptional, readBool)},
		{"omit_optional", optional, set(&e.OmitOptional, readBool)},
		{"problem_type", optional, set(&e.ProblemType, word(isHeaderText, "This must be a URI."))},
		{"language", optional, set(&e.Language, choice("language", fault.Languages))},
	}
}

// lengthUpTo is for lengths of time such as "1.5s", up to a longest one.
func lengthUpTo(most time.Duration) value[fault.Duration] {
	return span(1, fault.Duration(most), "This must be a length of time such as 250ms or 1.5s, up to "+most.String()+".")
}

// maxHeaderText is the length of text that is sent in a header or as a short name.
const maxHeaderText = 200

func isHeaderText(s string) bool {
	return s != "" && len(s) <= maxHeaderText && isASCII(s, ' ')
}

// checkEffect refuses what contradicts itself, and what is not for the operation.
func checkEffect(d *decoder, e *fault.Effect, at, operation string) {
	_, known := testbed.CodeOf(e.Status)
	switch {
	case *e == fault.Effect{}:
		d.invalidAt(at, "The effect must have at least one member.")
	case operation == fault.Delivery || e.OfDeliveries():
		checkDeliveryEffect(d, e, at, operation)
	case e.Status != 0 && e.Code != "" && e.Status != job.Code(e.Code).Spec().Status:
		d.invalidAt(at+"/status", "The code has another status; leave one of both out.")
	case e.Status != 0 && !e.HTML && !known:
		d.invalidAt(at+"/status", "The contract has no error with this status. With html it may be any from 400 to 599.")
	case e.HTML && e.Code != "":
		d.invalidAt(at+"/html", "A proxy's page has no code; leave one of both out.")
	case e.Moved != 0 && (e.Status != 0 || e.Code != "" || e.HTML):
		d.invalidAt(at+"/moved", "A redirection has its own status; leave one of both out.")
	case e.Moved != 0 && !slices.Contains(fault.Moves, e.Moved):
		d.invalidAt(at+"/moved", fmt.Sprintf("This must be one of %v.", fault.Moves))
	case e.OtherHost && e.Moved == 0:
		d.invalidAt(at+"/to_other_host", "This needs moved.")
	case e.ResetsNothing():
		d.invalidAt(at+"/reset", "This needs close, next_request: before, cut_after or half_event_after.")
	case e.NextIsGone():
		d.invalidAt(at+"/next_request", "With close, slow_bytes, refuse or an effect of streams there is no next request on the connection.")
	case e.Unanswered() && (e.Status != 0 || e.Code != "" || e.HTML || e.Moved != 0 || e.SlowBytes > 0 || e.RetryAfter != nil ||
		e.RetryAfterAs != ""):
		d.invalidAt(at+"/close", "A request that is not answered has no such answer.")
	}
}

func checkDeliveryEffect(d *decoder, e *fault.Effect, at, operation string) {
	switch {
	case operation != fault.Delivery:
		d.invalidAt(at, "The effects drop, repeat, tamper, rotated_secret and padding are for rules whose operation is delivery.")
	case !e.ForDeliveries():
		d.invalidAt(at, "For deliveries there are drop, repeat, tamper, rotated_secret, padding, delay, extensions and job_status.")
	case e.Drop && (*e != fault.Effect{Drop: true, Delay: e.Delay}):
		d.invalidAt(at+"/drop", "A delivery that is not sent has no other effect than delay.")
	case !e.Drop && time.Duration(e.Delay) > fault.MaxDeliveryDelay:
		d.invalidAt(at+"/delay", "A delivery may wait "+fault.MaxDeliveryDelay.String()+" at most. With drop it may be longer.")
	}
}
