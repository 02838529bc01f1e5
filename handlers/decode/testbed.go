package decode

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

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
	rule := choice("rule", rules)
	d := readBody(orEmpty(body), []member{
		{"label", optional, set(&n.Label, word(verdict.ValidLabel, labelForm))},
		{"profile", optional, set(&n.Profile, choice("profile", fault.Profiles))},
		{"seed", optional, set(&n.Seed, integer[int64](0, 1<<53))},
		{"rules", optional, func(d *decoder) {
			d.array("an array of strings", func(int) {
				if id, ok := rule(d); ok && !slices.Contains(n.Rules, id) {
					n.Rules = append(n.Rules, id)
				}
			})
		}},
	})
	return n, d.result()
}

// longestAdvance is as far as a time.Duration goes, in hours.
const longestAdvance = 2_562_047 * time.Hour

// ClockMove reads the body of a request to move the clock: exactly one of its members.
func ClockMove(body []byte) (m testbed.ClockMove, err error) {
	d := readBody(body, []member{
		{"advance", optional, set(&m.Advance, pointer(span(0, longestAdvance,
			`This must be a duration of not less than "0s", such as "90s", "25h" or "720h30m".`)))},
		{"set", optional, set(&m.Set, pointer(readTime))},
		{"freeze", optional, set(&m.Freeze, pointer(readBool))},
		{"rate", optional, set(&m.Rate, pointer(number(
			func(rate float64) bool { return testbed.MinRate <= rate && rate <= testbed.MaxRate },
			fmt.Sprintf("This must be a number from %v to %v.", testbed.MinRate, testbed.MaxRate))))},
	})
	if given := count(m.Advance != nil, m.Set != nil, m.Freeze != nil, m.Rate != nil); given != 1 && d.fine() {
		d.invalidAt("", fmt.Sprintf("Exactly one of advance, set, freeze and rate is needed; there are %d.", given))
	}
	return m, d.result()
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

// Fixtures reads the body of a request for jobs in given states.
func Fixtures(body []byte) (wanted []testbed.Fixture, err error) {
	jobs := upTo(testbed.MaxFixtures, fmt.Sprintf("One request may ask for %d jobs at most.", testbed.MaxFixtures), readFixture)
	d := readBody(body, []member{{"jobs", required, func(d *decoder) {
		var ok bool
		if wanted, ok = jobs(d); ok && len(wanted) == 0 && d.err == nil {
			d.invalid("At least one job is needed.")
		}
	}}})
	return wanted, d.result()
}

const defaultProgress = 40 // percent

func readFixture(d *decoder) testbed.Fixture {
	f := testbed.Fixture{Progress: defaultProgress}
	found := d.count()
	var progress *int
	d.object([]member{
		{"state", required, set(&f.State, choice("state", testbed.FixtureStates))},
		{"progress", optional, set(&progress, pointer(integer(0, 99)))},
		{"correlation_id", optional, set(&f.CorrelationID, readCorrelation)},
		{"problem", optional, planned(&f.Problem, &f.ProblemText, readProblem)},
		{"result", optional, planned(&f.Result, &f.ResultText, readResult)},
	})
	if progress != nil {
		f.Progress = *progress
	}
	if d.err == nil && d.count() == found {
		checkFixture(d, &f, progress != nil)
	}
	return f
}

// planned makes a reader of a part of a behavior that keeps its text too.
func planned[T any](to *T, text *json.RawMessage, read value[T]) func(*decoder) {
	return func(d *decoder) {
		from := d.json.InputOffset()
		set(to, read)(d)
		*text = d.sentSince(from)
	}
}

// checkFixture refuses what is not for the state of the job read last.
func checkFixture(d *decoder, f *testbed.Fixture, progress bool) {
	wrong := func(member, detail string) { d.invalidAt(d.pointer()+member, detail) }
	final := f.Problem.Retryable != nil && !*f.Problem.Retryable
	switch {
	case progress && f.State != testbed.FixtureRunning:
		wrong("/progress", "Only a running job has progress.")
	case f.ProblemText != nil && !f.State.Fails():
		wrong("/problem", "Only a job that failed or is exhausted has a problem.")
	case f.ResultText != nil && (!f.State.Ends() || f.State.Fails()):
		wrong("/result", "Only a job that succeeded has a result.")
	case f.State == testbed.FixtureExhausted && final:
		wrong("/problem/retryable", "A failure that is not retryable leaves attempts.")
	case final && f.Problem.RetryAfter > 0:
		wrong("/problem/retryAfter", "Only a failure that is retryable has a retryAfter.")
	}
}
