package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

var labelForm = fmt.Sprintf("This must be 1 to %d printable ASCII characters, without leading or trailing spaces.", verdict.MaxLabel)

// Label reads the label of a session from a header.
func Label(header string) (string, error) {
	if !verdict.ValidLabel(header) {
		return "", job.Errorf(job.CodeValidationFailed, "%s", labelForm)
	}
	return header, nil
}

// Session reads the optional body of a request for a session. `rules` has the ids of the rules that the body may name.
func Session(body []byte, rules []string) (verdict.Session, error) {
	n := verdict.Session{Seed: 1}
	err := public.read("SessionRequest", orEmpty(body), &n, func(r *reader) {
		n.Rules = unique(n.Rules)
		for _, id := range n.Rules {
			if !slices.Contains(rules, id) {
				r.invalidAt("/rules", "There is no rule "+id+" here.")
			}
		}
	})
	return n, err
}

// ClockMove reads the body of a request to move the clock. The body must have exactly one member.
func ClockMove(body []byte) (m testbed.ClockMove, err error) {
	err = public.read("ClockMove", body, &m, func(r *reader) {
		if given := count(m.Advance != nil, m.Set != nil, m.Freeze != nil, m.Rate != nil); given != 1 && r.fine() {
			r.invalidAt("", fmt.Sprintf("Exactly one of advance, set, freeze and rate is needed; there are %d.", given))
		}
	})
	return m, err
}

func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

const defaultProgress = 40 // percent

type sentFixture struct {
	State           testbed.FixtureState
	Progress        *int
	CorrelationID   string `json:"correlation_id"`
	Problem, Result json.RawMessage
}

// Fixtures reads the body of a request for jobs in given states.
func Fixtures(body []byte) (wanted []testbed.Fixture, err error) {
	var sent struct{ Jobs []sentFixture }
	err = public.read("FixturesRequest", body, &sent, func(r *reader) {
		for i, s := range sent.Jobs {
			wanted = append(wanted, r.fixture("/jobs/"+strconv.Itoa(i), &s))
		}
	})
	return wanted, err
}

// fixture converts a requested job. It refuses members that do not fit the job's state.
func (r *reader) fixture(at string, sent *sentFixture) testbed.Fixture {
	f := testbed.Fixture{State: sent.State, Progress: defaultProgress, CorrelationID: sent.CorrelationID,
		ProblemText: sent.Problem, ResultText: sent.Result}
	if sent.Progress != nil {
		f.Progress = *sent.Progress
	}
	_ = json.Unmarshal(f.ResultText, &f.Result) // cannot fail: the schema has checked it
	found := r.count()
	r.checkResult(at+"/result", &f.Result)
	f.Problem = r.plannedProblem(at+"/problem", f.ProblemText)
	final := f.Problem.Retryable != nil && !*f.Problem.Retryable
	switch {
	case r.count() > found:
	case sent.Progress != nil && f.State != testbed.FixtureRunning:
		r.invalidAt(at+"/progress", "Only a running job can have progress.")
	case f.ProblemText != nil && !f.State.Fails():
		r.invalidAt(at+"/problem", "Only a job in the state failed or exhausted can have a problem.")
	case f.ResultText != nil && (!f.State.Ends() || f.State.Fails()):
		r.invalidAt(at+"/result", "Only a job that succeeded can have a result.")
	case f.State == testbed.FixtureExhausted && final:
		r.invalidAt(at+"/problem/retryable", "A job that has used all of its attempts must have a retryable failure.")
	case final && f.Problem.RetryAfter > 0:
		r.invalidAt(at+"/problem/retryAfter", "Only a retryable failure can have a retryAfter.")
	}
	return f
}

// Faults is a decoded request for a client's fault rules. Rules has only the rules of the request. The use case ReplaceFaults adds the
// rules of the profile.
type Faults struct {
	Profile fault.Profile
	Seed    int64
	Rules   []fault.Rule
}

// FaultRules reads the body of a request for fault rules: an array, or an object with a profile, a seed and rules. A rule may name one of
// the given operations, or webhook deliveries (fault.Delivery).
func FaultRules(body []byte, operations []string) (Faults, error) {
	r := newReader(public, body, Limits{})
	defer r.done()
	var sent struct {
		Faults
		Rules []json.RawMessage
	}
	f := &sent.Faults
	f.Seed = 1
	at := "/rules"
	if r.json.PeekKind() == '[' {
		at = ""
		r.document("FaultRules", &sent.Rules)
	} else {
		r.document("FaultProfile", &sent)
	}
	operations = append(slices.Clip(operations), fault.Delivery)
	for i, text := range sent.Rules {
		f.Rules = append(f.Rules, r.faultRule(at+"/"+strconv.Itoa(i), text, operations))
	}
	return *f, r.result()
}

// Fault reads the effect of a fault from a header.
func Fault(header []byte) (fault.Effect, error) {
	var rule fault.Rule
	err := public.read("FaultEffect", header, &rule.Effect, func(r *reader) {
		if r.fine() {
			r.checkRule("", "", &rule)
		}
	})
	return rule.Effect, err
}

func (r *reader) faultRule(at string, text []byte, operations []string) (rule fault.Rule) {
	_ = jsonv2.Unmarshal(text, &rule, jsonv2.WithUnmarshalers(r.types)) // cannot fail: the schema has checked it
	switch m := &rule.Match; {
	case len(text) > fault.MaxRuleBytes:
		r.malformedAt(at, fmt.Sprintf("A rule can have at most %d bytes.", fault.MaxRuleBytes))
	case m.Operation != "" && !slices.Contains(operations, m.Operation):
		r.invalidAt(at+"/match/operation",
			"Unknown operation."+suggest(r, m.Operation, operations)+" It must be "+OneOf(operations)+".")
	case m.From != nil && m.Until != nil && !time.Time(*m.From).Before(time.Time(*m.Until)):
		r.invalidAt(at+"/match/until", "This must be later than from.")
	default:
		r.checkRule(at, at+"/effect", &rule)
	}
	return rule
}

// checkRule refuses contradictory rules, and effects that the operation does not support.
func (r *reader) checkRule(at, effect string, rule *fault.Rule) {
	e := &rule.Effect
	_, known := testbed.CodeOf(e.Status)
	isDelivery := rule.Match.Operation == fault.Delivery
	answers := e.Status != 0 || e.Code != "" || e.HTML || e.Moved != 0
	wrong, _ := errors.AsType[*fault.Wrong](rule.Check())
	switch {
	case isDelivery && !e.ForDeliveries() && *e != fault.Effect{}:
		r.invalidAt(effect, "Deliveries support only drop, repeat, tamper, rotated_secret, padding, delay, extensions and job_status.")
	case wrong != nil:
		pointer := wrong.Pointer
		if below, ok := strings.CutPrefix(pointer, "/effect"); ok {
			at, pointer = effect, below
		}
		r.invalidAt(at+pointer, strings.ToUpper(wrong.Detail[:1])+wrong.Detail[1:]+".")
	case e.Drop && (*e != fault.Effect{Drop: true, Delay: e.Delay}):
		r.invalidAt(effect+"/drop", "With drop, the only other effect can be delay.")
	case isDelivery && !e.Drop && time.Duration(e.Delay) > fault.MaxDeliveryDelay:
		r.invalidAt(effect+"/delay", "The delay of a delivery can be at most "+fault.MaxDeliveryDelay.String()+", unless drop is set.")
	case isDelivery:
	case e.Status != 0 && e.Code != "" && e.Status != job.Code(e.Code).Spec().Status:
		r.invalidAt(effect+"/status", "The code belongs to a different status: remove code or status.")
	case e.Status != 0 && !e.HTML && !known:
		r.invalidAt(effect+"/status", "The API has no error with this status. With html, any status from 400 to 599 is allowed.")
	case e.HTML && e.Code != "":
		r.invalidAt(effect+"/html", "The error page of a proxy has no code; remove html or code.")
	case e.Moved != 0 && (e.Status != 0 || e.Code != "" || e.HTML):
		r.invalidAt(effect+"/moved", "A redirect has its own status: remove moved, or remove status, code and html.")
	case e.Unanswered() && (answers || e.SlowBytes > 0 || e.RetryAfter != nil || e.RetryAfterAs != ""):
		r.invalidAt(effect+"/close", "With this value no response is sent: remove the other members that change the response.")
	}
}
