package decode

import (
	"fmt"
	"strconv"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// Fixtures reads the body of a request for jobs in given states.
func Fixtures(body []byte) (wanted []testbed.Fixture, err error) {
	d := newDecoder(body)
	given := false
	d.document([]member{{name: "jobs", read: func() {
		if !d.begins('[', "an array") {
			return
		}
		given = true
		at := d.pointer()
		d.array(func(i int) {
			f := testbed.Fixture{Progress: defaultProgress}
			if i == testbed.MaxFixtures {
				d.malformed(fmt.Sprintf("One request may ask for %d jobs at most.", testbed.MaxFixtures))
			}
			d.fixture(&f, at+"/"+strconv.Itoa(i))
			if i < testbed.MaxFixtures {
				wanted = append(wanted, f)
			}
		})
		if len(wanted) == 0 && d.err == nil {
			d.wrong(at, "At least one job is needed.")
		}
	}}})
	d.require(given, "jobs")
	return wanted, d.result()
}

const defaultProgress = 40 // percent

func (d *decoder) fixture(f *testbed.Fixture, at string) {
	if !d.begins('{', "an object") {
		return
	}
	found := len(d.violations())
	state, progress := false, false
	d.object([]member{
		{name: "state", read: func() { f.State, state = choose(d, "state", testbed.FixtureStates) }},
		{name: "progress", read: func() { f.Progress, progress = d.integer(0, 99, defaultProgress), true }},
		{name: "correlation_id", read: func() { f.CorrelationID = d.word(ValidCorrelation, "The id must be "+CorrelationForm) }},
		{name: "problem", read: func() {
			f.ProblemText = d.planned(func(b *behavior) { b.readProblem(&f.Problem) })
		}},
		{name: "result", read: func() {
			f.ResultText = d.planned(func(b *behavior) { b.readResult(); f.Result = b.into.Result })
		}},
	})
	d.require(state, "state")
	if d.err != nil || len(d.violations()) > found {
		return
	}
	switch {
	case progress && f.State != testbed.FixtureRunning:
		d.wrong(at+"/progress", "Only a running job has progress.")
	case f.ProblemText != nil && !f.State.Fails():
		d.wrong(at+"/problem", "Only a job that failed or is exhausted has a problem.")
	case f.ResultText != nil && (!f.State.Ends() || f.State.Fails()):
		d.wrong(at+"/result", "Only a job that succeeded has a result.")
	case f.State == testbed.FixtureExhausted && f.Problem.Retryable != nil && !*f.Problem.Retryable:
		d.wrong(at+"/problem/retryable", "A failure that is not retryable leaves attempts.")
	case f.Problem.Retryable != nil && !*f.Problem.Retryable && f.Problem.RetryAfter > 0:
		d.wrong(at+"/problem/retryAfter", "Only a failure that is retryable has a retryAfter.")
	}
}

// planned reads a part of a behavior, and gives its text; nil for none.
func (d *decoder) planned(read func(*behavior)) []byte {
	if d.null() {
		return nil
	}
	at := d.pointer()
	text := d.tree()
	if d.err != nil {
		return nil
	}
	b := behavior{decoder: newDecoder(text), into: &job.Behavior{}}
	b.base, b.guess = at, d.guess
	read(&b)
	for _, v := range b.form {
		d.malformedAt(v.Pointer, v.Detail)
	}
	for _, v := range b.values {
		d.wrong(v.Pointer, v.Detail)
	}
	return text
}
