package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var runs = sync.OnceValue(func() map[string]Run {
	violated := sampleRun(time.Minute, 20, 30)
	violated.Verdict = violatedVerdict(1000)
	return map[string]Run{
		"nothing":    {},
		"empty":      newRecorder(began, (&clock{began}).read).Run(),
		"ten hours":  sampleRun(10*time.Hour, 0.5, 300),
		"faults":     sampleRun(10*time.Minute, 10, 1000),
		"violations": violated,
		"hostile":    hostileRun(),
	}
})

const hostile = "</script></svg><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>" +
	"\"'`{{.}}]]>&amp;\x00\x1b[2J\x9b\u202e\xff\r\n" +
	"\ufffe);}*/url(http://evil.example)"

func hostileRun() Run {
	c := &clock{began}
	r := newRecorder(began, c.read)
	r.Stage(hostile, nil)
	c.now = began.Add(time.Second)
	r.Stage("2"+hostile, nil)
	for _, name := range []string{hostile, Accepted} {
		r.Sent(1)
		r.Answered(time.Second, name)
		r.Moved("", name)
		r.Finished(time.Second, name)
	}
	r.NotAccepted(hostile)
	r.Delivered(true)
	r.Fault(hostile, hostile, began, c.now, 1)
	c.now = began.Add(3 * time.Second)
	run := r.Run()
	run.Scenario, run.Description, run.Text, run.Command = hostile, hostile, hostile, hostile
	run.Service, run.Machine = map[string]string{hostile: hostile}, map[string]string{hostile: hostile}
	run.Expectations = []Expectation{{hostile, hostile, hostile, true, false}, {hostile, hostile, hostile, false, false}}
	run.Notes = []string{hostile}
	run.WorkKinds = []WorkKind{{Kind: "SUCCESS_FAST", Expected: "SUCCEEDED", Got: hostile, Findings: []string{hostile}}}
	run.Verdict = violatedVerdict(2)
	return run
}

func written(t *testing.T, write func(io.Writer, Run) error, run Run) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, write(&out, run))
	return out.String()
}

func TestOutputsHoldNoControlCharacters(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		for kind, write := range map[string]func(io.Writer, Run) error{"summary": WriteSummary, "junit": WriteJUnit} {
			text := written(t, write, run)
			require.True(t, utf8.ValidString(text), "%s of %s", kind, name)
			bad := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
			if bad >= 0 {
				t.Errorf("%s of %s has %q", kind, name, text[max(bad-40, 0):min(bad+20, len(text))])
			}
		}
	}
}

func TestSummaryBeginsWithTheVerdict(t *testing.T) {
	t.Parallel()
	run := sampleRun(time.Minute, 20, 30)
	text := written(t, WriteSummary, run)
	require.True(t, strings.HasPrefix(strings.TrimSpace(text), "PASSED 15 of 16 invariants held: 98.6 % of 1,078 submissions accepted"), text)
	require.Regexp(t, `WEBHOOK_5XX +SUCCEEDED, delivered on retry +SUCCEEDED, delivery FAILED +0 .* NO\n`+
		`WEBHOOK_5XX: one\nWEBHOOK_5XX: two\n\n1 of 2`, text)
	run.Verdict = violatedVerdict(1000)
	text = written(t, WriteSummary, run)
	require.Contains(t, text, "VIOLATIONS")
	require.Contains(t, text, "violation 10 of 1,000")
	require.NotContains(t, text, "violation 11 of 1,000")
	require.Contains(t, text, "and 990 more")
	require.Equal(t, 3*6, strings.Count(text, "job.running"), "only the first three violations have their history")
	require.Less(t, strings.Count(text, "\n"), 100)
}

func TestSummaryBeginsWithTheShares(t *testing.T) {
	t.Parallel()
	const held = " 15 of 16 invariants held: "
	enough, tooFew := Expectation{Evidence: true, OK: true}, Expectation{Evidence: true}
	for _, c := range []struct {
		answers  map[string]int64
		evidence Expectation
		want     string
	}{
		{map[string]int64{Accepted: 1000, Replayed: 11, Refused: 22, Unanswered: 6}, enough,
			"PASSED" + held + "97.3 % of 1,039 submissions accepted, 2.1 % refused, 0.6 % unanswered\n"},
		{map[string]int64{Accepted: 80, Planned: 10, Rejected: 10}, enough,
			"PASSED" + held + "80 % of 100 submissions accepted, 20 % refused (10 % as planned), 0 % unanswered\n"},
		{map[string]int64{Accepted: 1, Failed: 9999}, tooFew,
			"INCONCLUSIVE" + held + "<0.1 % of 10,000 submissions accepted, 0 % refused, >99.9 % failed, 0 % unanswered\n"},
		{nil, tooFew, "INCONCLUSIVE" + held + "0 % of 0 submissions accepted, 0 % refused, 0 % unanswered\n"},
	} {
		run := Run{Verdict: goodVerdict(), Numbers: Numbers{Answers: c.answers}, Expectations: []Expectation{c.evidence}}
		require.Equal(t, c.want, written(t, WriteSummary, run)[1:len(c.want)+1])
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	unmet := []Expectation{{Name: "submit p99"}}
	for _, c := range []struct {
		run  Run
		want Outcome
	}{
		{Run{}, Unjudged},
		{Run{Verdict: goodVerdict()}, Passed},
		{Run{Verdict: goodVerdict(), Expectations: unmet}, Unmet},
		{Run{Verdict: violatedVerdict(1), Expectations: unmet}, Violated},
		{Run{Verdict: goodVerdict(), Expectations: append(unmet, Expectation{Evidence: true})}, Inconclusive},
		{Run{Verdict: violatedVerdict(1), Expectations: []Expectation{{Evidence: true}}}, Violated},
	} {
		require.Equal(t, c.want, c.run.Outcome())
	}
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteJUnit, run)
		var suite struct {
			Failures int          `xml:"failures,attr"`
			Skipped  int          `xml:"skipped,attr"`
			Cases    []junit.Case `xml:"testcase"`
		}
		require.NoError(t, xml.Unmarshal([]byte(text), &suite), name)
		require.Less(t, len(text), 1<<20, name)
		for _, c := range suite.Cases {
			require.True(t, c.Skipped == nil || c.Skipped.Message != "", "%s: a skipped test case has a reason", name)
		}
		counts := []int{len(suite.Cases), suite.Failures, suite.Skipped}
		switch name {
		case "nothing", "empty":
			require.Equal(t, []int{1, 0, 1}, counts)
		case "faults":
			require.Equal(t, []int{len(judge.Invariants) + 2, 0, 1}, counts, "one invariant is skipped")
		case "violations":
			require.Equal(t, 3, suite.Failures)
			require.Contains(t, suite.Cases[0].Failure.Text, "job.running", "the history of the job")
			require.Contains(t, suite.Cases[0].Failure.Text, "and 324 more")
		case "hostile":
			require.Equal(t, 3, suite.Failures, "two invariants and one expectation")
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteJSON, run)
		require.Less(t, len(text), 600<<10, name)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &members))
		require.ElementsMatch(t, []string{ // members of the stable format
			"version", "outcome", "headline", "sentence", "scenario", "description", "scenario_text", "seed", "command", "service", "machine",
			"started_at", "duration_ms", "totals", "latency_ms", "expectations", "verdict", "fault_kinds", "stages", "notes", "series", "faults",
			"work_kinds",
		}, slices.Collect(maps.Keys(members)), name)
		var d struct {
			Outcome    Outcome
			DurationMS float64 `json:"duration_ms"`
			Totals     map[string]any
			Latency    map[string]map[string]float64 `json:"latency_ms"`
			Verdict    struct {
				Violations     []struct{ History []string }
				ViolationCount int64 `json:"violation_count"`
			}
			Series Series
			Faults []map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(text), &d), name)
		if name != "hostile" { // the report replaces invalid UTF-8 in its names
			require.Equal(t, run.Series, d.Series, name)
		}
		var series map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(members["series"], &series))
		require.ElementsMatch(t, []string{
			"step_ms", "arrivals", "answers", "finished", "states", "workers", "deliveries_taken", "deliveries_not_taken",
			"submit_p50_ms", "submit_p99_ms", "finish_p50_ms", "finish_p99_ms",
		}, slices.Collect(maps.Keys(series)), name)
		switch name {
		case "violations":
			require.Len(t, d.Verdict.Violations, 1000)
			require.EqualValues(t, 1000, d.Verdict.ViolationCount)
			require.Len(t, d.Verdict.Violations[99].History, 6)
			require.Empty(t, d.Verdict.Violations[100].History)
		case "faults":
			require.Equal(t, Passed, d.Outcome)
			require.EqualValues(t, 600_000, d.DurationMS)
			require.EqualValues(t, run.Numbers.Arrivals, d.Totals["arrivals"])
			require.InDelta(t, float64(run.Numbers.Submit.P99)/1e6, d.Latency["submit"]["p99"], 0.001)
			require.ElementsMatch(t, []string{"count", "min", "mean", "p50", "p90", "p95", "p99", "p99_9", "max"},
				slices.Collect(maps.Keys(d.Latency["finish"])))
			require.Len(t, d.Faults, 1000)
			require.ElementsMatch(t, []string{"kind", "target", "at_ms", "duration_ms", "count"}, slices.Collect(maps.Keys(d.Faults[0])))
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteHTML, run)
		require.Less(t, len(text), 3<<20, name)
		require.Contains(t, text, "</html>", name)
		for _, attribute := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `^(#violations|data:,)$`, attribute[1], "%s: the page fetches nothing", name)
		}
		require.NotContains(t, text, "alert(1)</script>", name)
		require.NotContains(t, text, "<img", name)
		require.Contains(t, text, "Permission is hereby granted", "the license of the chart library")
		switch name {
		case "faults":
			require.Contains(t, text, "✓ PASSED")
		case "violations":
			require.Contains(t, text, "✗ VIOLATIONS")
			require.Equal(t, 1000, strings.Count(text, `<details class="violation">`))
			require.Equal(t, 900, strings.Count(text, "Its history is not kept."))
		}
	}
}
