package search

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func met(operation string, e fault.Effect) verdict.Entry {
	return verdict.Entry{Operation: operation, Moment: verdict.Moment{Fault: strings.Join(e.Kinds(), ", ") + " " + text(e)}}
}

func TestBreaks(t *testing.T) {
	t.Parallel()
	b := base{jobs: 2, took: time.Second, learns: true}
	made := func(n int) (entries []verdict.Entry) {
		for job := range n {
			entries = append(entries, verdict.Entry{Of: fault.Submissions, Job: fmt.Sprint(job)})
		}
		return entries
	}
	evidence := []verdict.Evidence{{Found: "found"}}
	gone := Schedule{{Operation: "read", Of: fault.Lookups, Nth: 1, Times: 1, Effect: missing}}
	unlearned := []verdict.Result{{Rule: outcomeLearned, Status: verdict.Warn, Evidence: evidence}}
	for name, c := range map[string]struct {
		schedule Schedule
		trial    Trial
		want     []string
	}{
		"correct":                             {nil, Trial{Entries: made(2)}, nil},
		"fails":                               {nil, Trial{Failed: "exit status 1"}, []string{commandFails}},
		"fails after a fault that allows it":  {gone, Trial{Failed: "exit status 1", Entries: []verdict.Entry{met("read", missing)}}, nil},
		"fails before a fault that allows it": {gone, Trial{Failed: "exit status 1"}, []string{commandFails}},
		"hangs, though it may fail":           {gone, Trial{Failed: "it was ended", Hung: true}, []string{commandHangs}},
		"fewer jobs":                          {nil, Trial{Entries: made(1)}, []string{workLost}},
		"more jobs":                           {nil, Trial{Entries: made(3)}, []string{workDoubled}},
		"two rules, the worst first": {nil, Trial{Entries: made(2), Results: []verdict.Result{
			{Rule: "backoff", Status: verdict.Fail, Evidence: evidence}, {Rule: "no-duplicates", Status: verdict.Fail, Evidence: evidence},
		}}, []string{"no-duplicates", "backoff"}},
		"a warning": {nil, Trial{Entries: made(2), Results: []verdict.Result{
			{Rule: "retry-after", Status: verdict.Warn, Evidence: evidence},
		}}, nil},
		"succeeds without an outcome": {nil, Trial{Entries: made(2), Results: unlearned}, []string{outcomeLearned}},
		"fails without an outcome":    {nil, Trial{Failed: "exit status 1", Results: unlearned}, []string{commandFails}},
		"no outcome, which a fault allows": {gone, Trial{
			Entries: append(made(2), met("read", missing)), Results: unlearned,
		}, nil},
	} {
		var got []string
		for _, broken := range b.breaks(c.schedule, &c.trial) {
			got = append(got, broken.Rule)
		}
		require.Equal(t, c.want, got, name)
	}
	b.learns = false
	require.Empty(t, b.breaks(nil, &Trial{Entries: made(2), Results: unlearned}))
}

func TestLearns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statuses []verdict.Status
		want     bool
	}{
		{nil, false},
		{[]verdict.Status{verdict.NotTested}, false},
		{[]verdict.Status{verdict.NotTested, verdict.OK}, true},
		{[]verdict.Status{verdict.OK, verdict.Warn}, false},
	} {
		var trial Trial
		for _, status := range c.statuses {
			trial.Results = append(trial.Results, verdict.Result{Rule: outcomeLearned, Status: status})
		}
		require.Equal(t, c.want, trial.learns(), c.statuses)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	s := Schedule{
		{Operation: "submitJob", Of: fault.Submissions, Nth: 1, Times: 1, Effect: lost},
		{Operation: "submitJob", Of: fault.Submissions, Nth: 2, Times: 2, Effect: full},
		{Operation: "streamJob", Of: fault.Streams, Nth: 3, Times: 1, Effect: fault.Effect{CutAfter: new(1)}},
	}
	require.Equal(t, "1st submission: response lost after processing; then 2nd submission and its repetition: 503 with Retry-After: 1; "+
		"then 3rd connection to a stream: stream cut after 1 event", s.String())
	require.Equal(t, "no faults", Schedule(nil).String())
	require.Equal(t, []string{"11th", "12th", "21st", "102nd"}, []string{ordinal(11), ordinal(12), ordinal(21), ordinal(102)})
	f := Finding{Words: s.String(), Rules: s.Rules(), Breaks: []Break{{Rule: commandFails, Found: "two\nlines"}}}
	file, err := f.YAML("forgerun verdict --faults x.yaml -- client")
	require.NoError(t, err)
	require.Contains(t, string(file), "# command-fails: two lines\n")
	require.Contains(t, string(file), "- match:\n    operation: submitJob\n    nth: 1\n  effect:\n    close: after_commit\n")
}

func TestHappened(t *testing.T) {
	t.Parallel()
	submit, read := Operation{"submit", fault.Submissions, 1}, Operation{"read", fault.Lookups, 2}
	s := Schedule{newStep(submit, 1, lost), newStep(submit, 2, broken), newStep(submit, 4, broken), newStep(read, 1, reset)}
	s[2].Times = 2
	shown := &Trial{Entries: []verdict.Entry{met("submit", lost), met("submit", broken), {Operation: "submit"}, met("submit", broken)}}
	require.Equal(t, "1st submission: response lost after processing; then 2nd submission: 500; then 4th submission: 500",
		s.happened(shown).String())
	require.Equal(t, 2, s[2].Times)
}
