package decode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

var labelForm = fmt.Sprintf("This must be 1 to %d printable ASCII characters, without spaces around them.", verdict.MaxLabel)

// Label reads the label of a session from a header.
func Label(header string) (string, error) {
	if !verdict.ValidLabel(header) {
		return "", job.Errorf(job.CodeValidationFailed, "%s", labelForm)
	}
	return header, nil
}

// Session reads the body of a request for a session, which may be missing. Rules are the ids that it may name.
func Session(body []byte, rules []string) (verdict.Session, error) {
	n := verdict.Session{Seed: 1}
	var sent struct {
		Label   string
		Profile fault.Profile
		Seed    *int64
		Rules   []string
	}
	err := public.read("SessionRequest", orEmpty(body), &sent, func(r *reader) {
		if n.Label, n.Profile, n.Rules = sent.Label, sent.Profile, unique(sent.Rules); sent.Seed != nil {
			n.Seed = *sent.Seed
		}
		for _, id := range n.Rules {
			if !slices.Contains(rules, id) {
				r.invalidAt("/rules", "There is no rule "+id+" here.")
			}
		}
	})
	return n, err
}

// ClockMove reads the body of a request to move the clock: exactly one of its members.
func ClockMove(body []byte) (m testbed.ClockMove, err error) {
	var sent api.ClockMove
	err = public.read("ClockMove", body, &sent, func(r *reader) {
		m = testbed.ClockMove{Advance: sent.Advance, Set: (*time.Time)(sent.Set), Freeze: sent.Freeze, Rate: sent.Rate}
		if given := count(m.Advance != nil, m.Set != nil, m.Freeze != nil, m.Rate != nil); given != 1 && r.fine() {
			r.invalidAt("", fmt.Sprintf("Exactly one of advance, set, freeze and rate is needed; there are %d.", given))
		}
	})
	return m, err
}

// count gives how many are true.
func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

const defaultProgress = 40 // percent

// sentFixture is a fixture as it is sent.
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

// fixture makes a fixture of what was sent. It refuses what is not for the state.
func (r *reader) fixture(at string, sent *sentFixture) testbed.Fixture {
	f := testbed.Fixture{State: sent.State, Progress: defaultProgress, CorrelationID: sent.CorrelationID,
		ProblemText: sent.Problem, ResultText: sent.Result}
	if sent.Progress != nil {
		f.Progress = *sent.Progress
	}
	_ = json.Unmarshal(f.ResultText, &f.Result) // the schema has checked it, if there is one
	found := r.count()
	r.checkResult(at+"/result", &f.Result)
	f.Problem = r.plannedProblem(at+"/problem", f.ProblemText)
	final := f.Problem.Retryable != nil && !*f.Problem.Retryable
	switch {
	case r.count() > found:
	case sent.Progress != nil && f.State != testbed.FixtureRunning:
		r.invalidAt(at+"/progress", "Only a running job has progress.")
	case f.ProblemText != nil && !f.State.Fails():
		r.invalidAt(at+"/problem", "Only a job that failed or is exhausted has a problem.")
	case f.ResultText != nil && (!f.State.Ends() || f.State.Fails()):
		r.invalidAt(at+"/result", "Only a job that succeeded has a result.")
	case f.State == testbed.FixtureExhausted && final:
		r.invalidAt(at+"/problem/retryable", "A failure that is not retryable leaves attempts.")
	case final && f.Problem.RetryAfter > 0:
		r.invalidAt(at+"/problem/retryAfter", "Only a failure that is retryable has a retryAfter.")
	}
	return f
}
