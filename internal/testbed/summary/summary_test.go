package summary

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

// judged returns a verdict on two rules. backoff is a "must" rule, and time-outs is a "should" rule.
func judged(profile fault.Profile, label string, backoff, timeOuts verdict.Status, met int) verdict.Verdict {
	began := fault.Time(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC))
	v := verdict.Verdict{
		Session: verdict.Session{ID: label, Profile: profile, Label: label, Seed: 7, Recorded: 12, CreatedAt: began},
		Verdict: verdict.Passed, Why: "1 rule passed.", Counts: map[verdict.Status]int{},
		Faults: []fault.Count{{Fault: "429", Of: "submissions", Requests: 9, Times: 2}, {Fault: hostile, Of: "event streams", Times: met}},
		Results: []verdict.Result{
			{Rule: "backoff", Title: "The client waits.", Level: verdict.Must, Status: backoff, Times: 3, Failures: 2,
				Fix: verdict.Fix{Text: "Wait."}, Evidence: []verdict.Evidence{{
					Found: "Another.", Expected: "The same.", Times: 2,
					Before:  &verdict.Moment{At: began, Request: "POST /first", Answer: "202"},
					Request: &verdict.Moment{At: began, Request: "POST " + hostile, Headers: []string{hostile}, Answer: hostile, Fault: hostile},
				}}},
			{Rule: "time-outs", Title: "It gives up.", Level: verdict.Should, Status: timeOuts, Reason: "no wait"},
		},
	}
	for _, r := range v.Results {
		v.Counts[r.Status]++
	}
	return v
}

const (
	held, broken, skipped = verdict.OK, verdict.Fail, verdict.NotTested
)

func TestSummaryVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  Policy
		rules   string // two letters per session, for backoff and time-outs: h (held), b (broken) or - (not tested)
		met     int
		verdict verdict.Conclusion
		missing int
		failed  bool
	}{
		"all kept":                         {Policy{}, "h- -h", 1, verdict.Passed, 0, false},
		"a must rule is broken":            {Policy{}, "hh bh hh", 1, verdict.Failed, 0, true},
		"a should rule is broken":          {Policy{}, "hb h-", 1, verdict.Warned, 0, false},
		"a should rule is broken, strict":  {Policy{Strict: true}, "hb", 1, verdict.Failed, 0, true},
		"broken, only a warning":           {Policy{Warn: []string{"backoff"}}, "bh", 1, verdict.Warned, 0, false},
		"only a warning, strict":           {Policy{Warn: []string{"time-outs"}, Strict: true}, "hb", 1, verdict.Warned, 0, false},
		"not tested":                       {Policy{}, "h- h-", 1, verdict.Passed, 0, false},
		"not tested, complete":             {Policy{Complete: true}, "h- h-", 1, verdict.Passed, 1, true},
		"tested in one session, complete":  {Policy{Complete: true}, "h- hh", 1, verdict.Passed, 0, false},
		"a fault did not happen, complete": {Policy{Complete: true}, "hh hh", 0, verdict.Passed, 1, true},
		"required and kept in one session": {Policy{Require: []string{"time-outs"}}, "h- hh", 1, verdict.Passed, 0, false},
		"required and not tested":          {Policy{Require: []string{"time-outs"}}, "h-", 1, verdict.Passed, 1, true},
		"required should rule is broken":   {Policy{Require: []string{"time-outs"}}, "hh hb", 1, verdict.Failed, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Summary{Policy: c.policy}
			of := map[byte]verdict.Status{'h': held, 'b': broken, '-': skipped}
			for session := range strings.FieldsSeq(c.rules) {
				s.Add("", judged("overloaded", "", of[session[0]], of[session[1]], c.met))
			}
			require.Equal(t, c.verdict, s.Verdict())
			require.Len(t, s.Missing(), c.missing)
			require.Equal(t, c.failed, s.Failed())
		})
	}
}

func text(t *testing.T, s *Summary) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Text(&b, term.Style{}))
	return b.String()
}

func TestSessionAsText(t *testing.T) {
	t.Parallel()
	s := &Summary{}
	v := judged("flaky-network", "", broken, skipped, 0)
	v.Results = append(v.Results, verdict.Result{Rule: "stop-at-end", Title: "It stops.", Status: held, Times: 3})
	s.Add("", v)
	shown := text(t, s)
	require.Contains(t, shown, "\n12 requests, profile flaky-network, seed 7\n")
	require.Contains(t, shown, " FAIL   backoff")
	require.Contains(t, shown, "(2 of 3 times)")
	require.Regexp(t, `(?s)12:00:00.000  POST /first.*POST <script.*Another. \(2 times\)`, shown)
	require.Regexp(t, `(?s)  -     not tested: no wait +time-outs\n  ok    stop-at-end .* FAIL   backoff`, shown,
		"the broken rule comes last")
	require.Contains(t, shown, "FAILED: 1 error\n  must    backoff: Wait.\n1 rule passed.\n")
	require.Contains(t, shown, "  faults in 9 submissions:\n        2  429\n\n")
	require.NotContains(t, shown, "\x1b")
}

func TestSeveralSessions(t *testing.T) {
	t.Parallel()
	s := &Summary{Policy: Policy{Require: []string{"time-outs"}}}
	s.Add("mine.yaml", judged("", "", held, skipped, 1))
	s.Add("", judged("overloaded", "test_a", broken, skipped, 1))
	s.Add("", judged("overloaded", "test_<b>", broken, skipped, 1))
	shown := text(t, s)
	require.Regexp(t, `(?s) FAIL   backoff .*POST /first.*\n +in: overloaded, seed 7, test_a, and 1 more\n`, shown)
	require.Regexp(t, `\nFAILED +overloaded +7 +test_a +12 +backoff +-\nFAILED .*\nPASSED +mine.yaml +7 +- +12 +- +-\n`, shown)
	require.Contains(t, shown, "\n  -     time-outs              not tested: no wait. ")
	require.Contains(t, shown, "\nFAILED: 1 error in 3 sessions\n  must    backoff: Wait.\n0 rules passed, 1 not tested: no wait.\n"+
		"The rule time-outs is required, but was not tested: no wait.\n")
	s.Page = "mine.html"
	require.Contains(t, text(t, s), "\nFull report: mine.html\n")

	var junit, html, document bytes.Buffer
	require.NoError(t, s.JUnit(&junit))
	names := regexp.MustCompile(`<testsuite name="([^"]+)" tests="\d+" failures="(\d)"`).FindAllStringSubmatch(junit.String(), -1)
	require.Len(t, names, 4)
	for i, want := range []string{
		"mine.yaml, seed 7 0", "overloaded, seed 7, test_a 1", "overloaded, seed 7, test_&lt;b&gt; 1", "all sessions 1",
	} {
		require.Equal(t, "forgerun verdict: "+want, names[i][1]+" "+names[i][2])
	}

	require.NoError(t, s.Index(&html, []string{"1.html", "2.html", "3.html"}))
	require.Contains(t, html.String(), `<td class="result bad">FAILED</td><td><a href="3.html">overloaded, seed 7, test_&lt;b&gt;</a></td>`)
	require.Contains(t, html.String(), `<section class="verdict bad" aria-label="Verdict">`+"\n<h1>FAILED: 1 error</h1>")
	require.Contains(t, html.String(), "<p>0 rules passed, 1 not tested: no wait.</p>")

	require.NoError(t, s.JSON(&document))
	var read struct {
		Verdict  verdict.Conclusion
		Missing  []string
		Sessions []verdict.Verdict
	}
	require.NoError(t, json.Unmarshal(document.Bytes(), &read))
	require.Equal(t, verdict.Failed, read.Verdict)
	require.Len(t, read.Missing, 1)
	require.Equal(t, "test_a", read.Sessions[1].Label)
}
