package report_test

import (
	"bytes"
	"encoding/xml"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/report"
)

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

func wrong() *verdict.Verdict {
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	ended := began.Add(time.Minute)
	return &verdict.Verdict{
		Session: verdict.Session{Profile: "flaky-network", Seed: 7, Recorded: 12, CreatedAt: fault.Time(began), EndedAt: fault.TimeOf(&ended)},
		Verdict: "wrong", Counts: map[verdict.Status]int{"held": 1, "broken": 1, "not_exercised": 1},
		Faults: []fault.Count{{Fault: "429", Of: "submissions", Requests: 9, Times: 2}, {Fault: "stream cut", Of: "event streams"}},
		Results: []verdict.Result{
			{Rule: "backoff", Title: "The client waits.", Level: "should", Status: "broken", Times: 3, See: "https://example.com/a"},
			{Rule: "same-body", Title: "The same body.", Level: "must", Quote: "It must.", Status: "broken", Times: 3, Failures: 2,
				See: "https://example.com/b",
				Evidence: []verdict.Evidence{{
					Found: "Another.", Expected: "The same.", Times: 2,
					Before: &verdict.Moment{At: fault.Time(began), Request: "POST /first", Answer: "202"},
					Request: &verdict.Moment{
						At: fault.Time(began), Request: "POST " + hostile, Headers: []string{hostile}, Answer: hostile, Fault: hostile,
					},
				}}},
			{Rule: "time-outs", Title: "It gives up.", Status: "not_exercised", See: "https://example.com/c", Exercise: "A delay."},
		},
	}
}

// Whatever the client sent, the forms of a verdict are what they should be.
func TestForms(t *testing.T) {
	t.Parallel()
	var junit, html bytes.Buffer
	require.NoError(t, report.JUnit(&junit, wrong()))
	require.NoError(t, report.HTML(&html, wrong()))

	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(junit.Bytes(), &suite), junit.String())
	require.Equal(t, []int{5, 1, 3}, []int{suite.Tests, suite.Failures, suite.Skipped})
	require.NotContains(t, junit.String(), "\x1b")
	require.NotNil(t, suite.Cases[1].Failure)
	require.NotNil(t, suite.Cases[2].Skipped)

	for _, text := range []string{junit.String(), html.String()} {
		require.Regexp(t, `(?s)POST /first.*POST &lt;script.*[Ff]ound \(2 times\)`, text)
	}
	require.NotContains(t, html.String(), "<script")
	require.Contains(t, html.String(), `<section class="broken must" id="same-body">`)
	require.Contains(t, html.String(), "<q>It must.</q>")
	require.Contains(t, html.String(), "2 of 9")
	require.Contains(t, html.String(), "not met by 0")
	require.Contains(t, html.String(), "<td>A delay.</td>")
	require.NotContains(t, html.String(), "\x1b")
}
