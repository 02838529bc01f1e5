package verdict_test

import (
	"bytes"
	"encoding/xml"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/verdict"
)

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

func wrong() *client.Verdict {
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	return &client.Verdict{
		Session: client.Session{Profile: "flaky-network", Seed: 7, Exchanges: 12, CreatedAt: began, EndedAt: began.Add(time.Minute)},
		Verdict: "wrong", Counts: map[string]int{"held": 1, "broken": 1, "not_exercised": 1},
		Results: []client.RuleResult{
			{Rule: "backoff", Title: "The client waits.", Status: "held", Times: 3, See: "https://example.com/a"},
			{Rule: "same-body", Title: "The same body.", Status: "broken", Times: 3, Failures: 2, See: "https://example.com/b",
				Evidence: []client.Evidence{{
					At: began, Request: "POST " + hostile, Answer: hostile, Fault: `{"status":503}`, Found: "Another.", Expected: "The same.",
				}}},
			{Rule: "time-outs", Title: "It gives up.", Status: "not_exercised", See: "https://example.com/c", Exercise: "A delay."},
		},
	}
}

// Whatever the client sent, the forms of a verdict are what they should be.
func TestForms(t *testing.T) {
	t.Parallel()
	var text, junit, html bytes.Buffer
	require.NoError(t, verdict.WriteText(&text, wrong()))
	require.NoError(t, verdict.WriteJUnit(&junit, wrong()))
	require.NoError(t, verdict.WriteHTML(&html, wrong()))

	require.Contains(t, text.String(), "BROKEN  same-body")
	require.Contains(t, text.String(), "(2 of 3 times)")
	require.Contains(t, text.String(), "The client is wrong: 1 rules kept, 1 broken, 1 not exercised.")
	require.NotContains(t, text.String(), "\x1b")

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
	require.Equal(t, []int{3, 1, 1}, []int{suite.Tests, suite.Failures, suite.Skipped})
	require.NotNil(t, suite.Cases[1].Failure)
	require.NotNil(t, suite.Cases[2].Skipped)

	require.NotContains(t, html.String(), "<script")
	require.Contains(t, html.String(), `<section class="broken" id="same-body">`)
	require.Contains(t, html.String(), "What would exercise it: A delay.")
	require.NotContains(t, html.String(), "\x1b")
}
