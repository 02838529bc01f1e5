package decode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

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
	r := newReader(public, body, Limits{})
	defer r.done()
	f := Faults{Seed: 1}
	var sent struct {
		Profile fault.Profile
		Seed    *int64
		Rules   []json.RawMessage
	}
	at := "/rules"
	if r.json.PeekKind() == '[' {
		at = ""
		r.document("FaultRules", &sent.Rules)
	} else {
		r.document("FaultProfile", &sent)
	}
	if f.Profile = sent.Profile; sent.Seed != nil {
		f.Seed = *sent.Seed
	}
	operations = append(slices.Clip(operations), fault.Delivery)
	for i, text := range sent.Rules {
		f.Rules = append(f.Rules, r.faultRule(at+"/"+strconv.Itoa(i), text, operations))
	}
	return f, r.result()
}

// Fault reads the one effect that a header asks for.
func Fault(header []byte) (e fault.Effect, err error) {
	err = public.read("FaultEffect", header, &e, func(r *reader) {
		if r.fine() {
			checkEffect(r, &e, "", "")
		}
	})
	return e, err
}

// faultRule reads a rule that its schema has checked.
func (r *reader) faultRule(at string, text []byte, operations []string) (rule fault.Rule) {
	_ = jsonv2.Unmarshal(text, &rule, jsonv2.WithUnmarshalers(r.types)) // the schema has checked it
	found, m := r.count(), &rule.Match
	switch {
	case len(text) > fault.MaxRuleBytes:
		r.malformedAt(at, fmt.Sprintf("A rule may take %d bytes at most.", fault.MaxRuleBytes))
	case m.Operation != "" && !slices.Contains(operations, m.Operation):
		r.invalidAt(at+"/match/operation",
			"There is no such operation."+suggest(r, m.Operation, operations)+" It must be "+OneOf(operations)+".")
	case count(m.Nth > 0, m.Every > 0, m.Probability > 0) > 1:
		r.invalidAt(at+"/match", "Only one of nth, every and probability may be given.")
	case m.Window() && m.Nth == 0:
		r.invalidAt(at+"/match", "times and for need nth, with which the window begins.")
	case m.From != nil && m.Until != nil && !time.Time(*m.From).Before(time.Time(*m.Until)):
		r.invalidAt(at+"/match/until", "This must be after from.")
	}
	if r.count() == found {
		checkEffect(r, &rule.Effect, at+"/effect", m.Operation)
	}
	return rule
}

// checkEffect refuses what contradicts itself, and what is not for the operation.
func checkEffect(r *reader, e *fault.Effect, at, operation string) {
	_, known := testbed.CodeOf(e.Status)
	switch {
	case *e == fault.Effect{}:
		r.invalidAt(at, "The effect must have at least one member.")
	case operation == fault.Delivery || e.OfDeliveries():
		checkDeliveryEffect(r, e, at, operation)
	case e.Status != 0 && e.Code != "" && e.Status != job.Code(e.Code).Spec().Status:
		r.invalidAt(at+"/status", "The code has another status; leave one of both out.")
	case e.Status != 0 && !e.HTML && !known:
		r.invalidAt(at+"/status", "The contract has no error with this status. With html it may be any from 400 to 599.")
	case e.HTML && e.Code != "":
		r.invalidAt(at+"/html", "A proxy's page has no code; leave one of both out.")
	case e.Moved != 0 && (e.Status != 0 || e.Code != "" || e.HTML):
		r.invalidAt(at+"/moved", "A redirection has its own status; leave one of both out.")
	case e.Moved != 0 && !slices.Contains(fault.Moves, e.Moved):
		r.invalidAt(at+"/moved", fmt.Sprintf("This must be one of %v.", fault.Moves))
	case e.OtherHost && e.Moved == 0:
		r.invalidAt(at+"/to_other_host", "This needs moved.")
	case e.ResetsNothing():
		r.invalidAt(at+"/reset", "This needs close, next_request: before, cut_after or half_event_after.")
	case e.NextIsGone():
		r.invalidAt(at+"/next_request", "With close, slow_bytes, refuse or an effect of streams there is no next request on the connection.")
	case e.Unanswered() && (e.Status != 0 || e.Code != "" || e.HTML || e.Moved != 0 || e.SlowBytes > 0 || e.RetryAfter != nil ||
		e.RetryAfterAs != ""):
		r.invalidAt(at+"/close", "A request that is not answered has no such answer.")
	}
}

func checkDeliveryEffect(r *reader, e *fault.Effect, at, operation string) {
	switch {
	case operation != fault.Delivery:
		r.invalidAt(at, "The effects drop, repeat, tamper, rotated_secret and padding are for rules whose operation is delivery.")
	case !e.ForDeliveries():
		r.invalidAt(at, "For deliveries there are drop, repeat, tamper, rotated_secret, padding, delay, extensions and job_status.")
	case e.Drop && (*e != fault.Effect{Drop: true, Delay: e.Delay}):
		r.invalidAt(at+"/drop", "A delivery that is not sent has no other effect than delay.")
	case !e.Drop && time.Duration(e.Delay) > fault.MaxDeliveryDelay:
		r.invalidAt(at+"/delay", "A delivery may wait "+fault.MaxDeliveryDelay.String()+" at most. With drop it may be longer.")
	}
}
