package verdict_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/verdict"
)

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

// Whatever the client sent, the terminal gets text.
func TestWriteText(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	v := client.Verdict{
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
	var text bytes.Buffer
	require.NoError(t, verdict.WriteText(&text, &v))
	require.Contains(t, text.String(), "BROKEN  same-body")
	require.Contains(t, text.String(), "(2 of 3 times)")
	require.Contains(t, text.String(), "Not exercised. What would: A delay.")
	require.Contains(t, text.String(), "The client is wrong: 1 rules kept, 1 broken, 1 not exercised.")
	require.NotContains(t, text.String(), "\x1b")
}
