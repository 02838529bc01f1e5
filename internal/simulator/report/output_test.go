package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// runs are all sorts of runs that every output must cope with.
var runs = sync.OnceValue(func() map[string]Run {
	violated := sampleRun(time.Minute, 20, 30)
	violated.Verdict = violatedVerdict(1000)
	return map[string]Run{
		"nothing":    {},
		"empty":      newRecorder(began, (&clock{began}).read).Run(),
		"one second": sampleRun(time.Second, 100, 1),
		"ten hours":  sampleRun(10*time.Hour, 0.5, 300),
		"faults":     sampleRun(10*time.Minute, 10, 1000),
		"violations": violated,
		"hostile":    hostileRun(),
	}
})

// hostile has a bit of everything that breaks out of something.
const hostile = "</script></svg><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>" +
	"\"'`{{.}}]]>&amp;\x00\x1b[2J\x9b\u202e\xff\r\n" +
	"\ufffe);}*/url(http://evil.example)"

func hostileRun() Run {
	c := &clock{began}
	r := newRecorder(began, c.read)
	r.Stage(hostile)
	c.now = began.Add(time.Second)
	r.Stage("2" + hostile)
	for _, name := range []string{hostile, Accepted} {
		r.Sent(c.now)
		r.Answered(began, c.now, name)
		r.Moved("", name)
		r.Finished(began, c.now, name)
	}
	r.Delivered(c.now, true)
	r.Fault(hostile, hostile, began, c.now, 1)
	c.now = began.Add(3 * time.Second)
	run := r.Run()
	run.Scenario, run.Description, run.Text, run.Command = hostile, hostile, hostile, hostile
	run.Service, run.Machine = []Setting{{hostile, hostile}}, []Setting{{hostile, hostile}}
	run.Expectations = []Expectation{{hostile, hostile, hostile, true}, {hostile, hostile, hostile, false}}
	run.Notes = []string{hostile}
	run.Verdict = violatedVerdict(2)
	run.Verdict.Violations[0] = judge.Violation{Invariant: hostile, Job: hostile, What: hostile, History: run.Verdict.Violations[0].History}
	run.Verdict.Violations[0].History[0].Note = hostile
	run.Verdict.Skipped[judge.Invariants[len(judge.Invariants)-1].Key] = hostile
	return run
}

func written(t *testing.T, write func(io.Writer, Run) error, run Run) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, write(&out, run))
	return out.String()
}

var writers = map[string]func(io.Writer, Run) error{
	"summary": WriteSummary, "json": WriteJSON, "junit": WriteJUnit, "html": WriteHTML,
}

// No output of any run has bytes in it that move a terminal or break a document.
func TestOutputsHoldNoControlCharacters(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		for kind, write := range map[string]func(io.Writer, Run) error{"summary": WriteSummary, "junit": WriteJUnit, "html": WriteHTML} {
			text := written(t, write, run)
			bad := strings.IndexFunc(text, func(r rune) bool {
				return r == unicode.ReplacementChar || r != '\n' && !unicode.IsPrint(r)
			})
			if bad >= 0 {
				t.Errorf("%s of %s has %q", kind, name, text[max(bad-40, 0):min(bad+20, len(text))])
			}
		}
	}
}

func TestEveryWriteErrorIsTold(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		require.ErrorIs(t, write(brokenWriter{}, Run{}), io.ErrClosedPipe, name)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestSummaryBeginsWithTheVerdict(t *testing.T) {
	t.Parallel()
	run := sampleRun(time.Minute, 20, 30)
	text := written(t, WriteSummary, run)
	require.True(t, strings.HasPrefix(strings.TrimSpace(text), "PASSED  15 of 16 invariants checked"), text)
	order := []string{"PASSED", "sent", "p99.9", "faults injected", "\nexpectations", "\ninvariants"}
	for i := 1; i < len(order); i++ {
		require.Less(t, strings.Index(text, order[i-1]), strings.Index(text, order[i]), "%s before %s", order[i-1], order[i])
	}
	run.Verdict = violatedVerdict(1000)
	text = written(t, WriteSummary, run)
	require.Contains(t, text, "VIOLATIONS")
	require.Contains(t, text, "violation 10 of 1,000")
	require.NotContains(t, text, "violation 11 of 1,000")
	require.Contains(t, text, "and 990 more")
	require.Equal(t, 3*6, strings.Count(text, "job.running"), "the histories of the first three")
	require.Less(t, strings.Count(text, "\n"), 100)
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	unmet := []Expectation{{Name: "submit p99"}}
	for _, c := range []struct {
		run  Run
		want Outcome
	}{
		{Run{}, Unjudged},
		{Run{Verdict: &judge.Verdict{}}, Unjudged},
		{Run{Verdict: goodVerdict()}, Passed},
		{Run{Verdict: goodVerdict(), Expectations: []Expectation{{OK: true}}}, Passed},
		{Run{Verdict: goodVerdict(), Expectations: unmet}, Unmet},
		{Run{Expectations: unmet}, Unmet},
		{Run{Verdict: violatedVerdict(1), Expectations: unmet}, Violated},
	} {
		require.Equal(t, c.want, c.run.Outcome())
	}
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteJUnit, run)
		var suites junitSuites
		require.NoError(t, xml.Unmarshal([]byte(text), &suites), name)
		require.Len(t, suites.Suite.Cases, suites.Tests, name)
		require.Less(t, len(text), 1<<20, name)
		failures, skipped := 0, 0
		for _, c := range suites.Suite.Cases {
			if c.Failure != nil {
				failures++
			}
			if c.Skipped != nil {
				require.NotEmpty(t, c.Skipped.Message, name)
				skipped++
			}
		}
		require.Equal(t, []int{failures, skipped}, []int{suites.Failures, suites.Skipped}, name)
		switch name {
		case "nothing", "empty":
			require.Equal(t, []int{1, 0, 1}, []int{suites.Tests, failures, skipped})
		case "faults":
			require.Equal(t, []int{len(judge.Invariants) + 2, 0, 1}, []int{suites.Tests, failures, skipped}, "an invariant was not looked at")
		case "violations":
			require.Equal(t, 3, failures)
			require.Contains(t, suites.Suite.Cases[0].Failure.Text, "job.running", "with what was seen")
			require.Contains(t, suites.Suite.Cases[0].Failure.Text, "and 324 more")
		case "hostile":
			require.Equal(t, 3, failures, "the unknown invariant, a known one and an expectation")
			require.Contains(t, text, `\x1b[2J\x9b\u202e\xff`)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteJSON, run)
		var d document
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&d), name)
		require.Less(t, len(text), 400<<10, name)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &members))
		require.ElementsMatch(t, []string{ // others rely on them
			"version", "outcome", "scenario", "seed", "command", "service", "machine", "started_at", "duration_ms", "totals",
			"latency_ms", "expectations", "verdict", "fault_kinds", "stages", "notes", "series", "faults",
		}, slices.Collect(maps.Keys(members)), name)
		n := len(run.Series.Arrivals)
		for _, length := range []int{len(d.Series.Arrivals), len(d.Series.Workers), len(d.Series.SubmitP99), len(d.Series.Delivered)} {
			require.Equal(t, n, length, name)
		}
		for _, series := range []map[string][]int64{d.Series.Answers, d.Series.Finished, d.Series.States} {
			for what, values := range series {
				require.Len(t, values, n, "%s: %s", name, what)
			}
		}
		if name == "violations" {
			require.Len(t, d.Verdict.Violations, jsonViolations)
			require.EqualValues(t, 1000, d.Verdict.ViolationCount)
			require.Len(t, d.Verdict.Violations[jsonHistories-1].History, 6)
			require.Empty(t, d.Verdict.Violations[jsonHistories].History)
		}
		if name == "faults" {
			require.Equal(t, Passed, d.Outcome)
			require.EqualValues(t, 600_000, d.DurationMS)
			require.Equal(t, run.Numbers.Arrivals, d.Totals.Arrivals)
			require.InDelta(t, float64(run.Numbers.Submit.P99)/1e6, d.Latency.Submit.P99, 0.001)
			require.Len(t, d.Faults, 1000)
		}
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	run := sampleRun(time.Second, 100, 0)
	run.Verdict = violatedVerdict(1)
	run.Verdict.Violations[0].What = "the answer quotes frk_abcdefgh12345678"
	run.Verdict.Violations[0].History[0].Note = "signed with whsec_abcdefgh12345678"
	for name, write := range writers {
		require.NotContains(t, written(t, write, run), "abcdefgh12345678", name)
	}
}

var pathText = regexp.MustCompile(` d="([^"]*)"`)

func TestPageHasEveryPlotWithItsSeries(t *testing.T) {
	t.Parallel()
	for name, run := range runs() {
		text := written(t, WriteHTML, run)
		require.Less(t, len(text), 3<<20, name)
		figures := strings.Split(text, "<figure ")[1:]
		for _, f := range figures {
			id := regexp.MustCompile(`id="([a-z-]+)"`).FindStringSubmatch(f)[1]
			require.Contains(t, f, `<title id="`+id+`-title">`, name)
			require.Regexp(t, `<desc id="`+id+`-desc">[^<]+</desc>`, f, "%s: %s", name, id)
			for _, d := range pathText.FindAllStringSubmatch(f, -1) {
				require.Equal(t, -1, strings.IndexFunc(d[1], func(r rune) bool {
					return !strings.ContainsRune("MLZ-0123456789. ", r)
				}), "%s: %s", name, id)
			}
			drawn := strings.Count(f, `<path class="line `) + strings.Count(f, `<path class="area `)
			if name == "faults" {
				want := map[string]int{
					"faults": 9, "traffic": 5, "submit-latency": 2, "finish-latency": 2, "active": 4,
					"ended": 3, "workers": 1, "deliveries": 2, "distribution": 2,
				}
				require.Equal(t, want[id], drawn, id)
				require.Contains(t, f, "<tbody>", "%s: the numbers behind it", id)
				if id != "faults" && id != "distribution" {
					bands := strings.Split(strings.Split(f, `<g class="bands`)[1], "</g>")[0]
					require.Equal(t, 9, strings.Count(bands, "<path"), "%s: a band of each kind of fault", id)
				}
			}
		}
		if name == "faults" {
			require.Len(t, figures, 9)
			require.Contains(t, text, "✓ PASSED")
			require.Contains(t, text, `class="bands dense"`)
		}
		if name == "violations" {
			require.Contains(t, text, "✗ VIOLATIONS")
			require.Equal(t, 1000, strings.Count(text, `<div class="violation">`))
			require.Equal(t, 100, strings.Count(text, "<pre>")-1, "histories, and the scenario")
		}
	}
}

func TestPageIsEscapedAndFetchesNothing(t *testing.T) {
	t.Parallel()
	text := written(t, WriteHTML, hostileRun())
	require.Equal(t, 1, strings.Count(text, "<script"))
	require.False(t, strings.Contains(text, "<img"))
	require.False(t, strings.Contains(text, "alert(1)</script>"))
	for _, attribute := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		require.Regexp(t, `^(#violations|data:,)$`, attribute[1])
	}
}

func TestPathsOfSeries(t *testing.T) {
	t.Parallel()
	x, y := timeAxis(4*time.Second), linearAxis(10, false)
	values := []float64{10, math.NaN(), 5, 0}
	got := pathOf(x, y, 4, time.Second, func(i int) float64 { return values[i] })
	require.Equal(t, "M0 0L125 0L250 0M500 125L625 125L875 250L1000 250", got, "a gap where there is no value")
	require.Empty(t, pathOf(x, y, 0, time.Second, nil))
}

func TestAxes(t *testing.T) {
	t.Parallel()
	labels := func(a axis) string {
		var list []string
		for _, tick := range a.Ticks {
			require.GreaterOrEqual(t, tick.At, 0.0)
			require.LessOrEqual(t, tick.At, 100.0)
			list = append(list, tick.Label)
		}
		return strings.Join(list, " | ")
	}
	for want, a := range map[string]axis{
		"0 | 1":                                 linearAxis(0, false),
		"0 | 0.1 | 0.2 | 0.3":                   linearAxis(0.3, false),
		"0 | 1 | 2 | 3":                         linearAxis(3, true),
		"0 | 5000 | 10k | 15k | 20k":            linearAxis(17_000, false),
		"0 s | 0.1 s | 0.2 s | 0.3 s":           timeAxis(300 * time.Millisecond),
		"0 min | 2 min | 4 min | 6 min | 8 min": timeAxis(8 * time.Minute),
		"0 h | 2 h | 4 h | 6 h | 8 h | 10 h":    timeAxis(10 * time.Hour),
		"100 µs | 1 ms | 10 ms | 100 ms | 1 s":  logAxis(200*time.Microsecond, 900*time.Millisecond),
		"1 ms | 2 ms | 5 ms | 10 ms":            logAxis(2*time.Millisecond, 3*time.Millisecond),
		"0 | 50 % | 90 % | 99 % | 99.9 %":       tailAxis(2000),
	} {
		require.Equal(t, want, labels(a))
	}
	for took := time.Millisecond; took < 100_000*time.Hour; took = took * 3 / 2 {
		n := len(timeAxis(took).Ticks)
		require.True(t, n >= 1 && n <= 9, fmt.Sprint(took, " has ", n))
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0": grouped(0), "-1,234": grouped(-1234), "999": grouped(999), "1,234,567": grouped(1234567), "-123": grouped(-123),
		"1.50 µs": brief(1500), "12.3 ms": brief(12345 * time.Microsecond), "123 ms": brief(123 * time.Millisecond),
		"90.0 s": brief(90 * time.Second), "2:30": brief(150 * time.Second),
		"1:02:03": clockTime(time.Hour + 2*time.Minute + 3*time.Second), "12.5/s": rate(12.5), "20,000/s": rate(20_000),
		`a\nb\x1b`: printable("a\nb\x1b"), "a\nb    c": printableLines("a\r\nb\tc"),
		"日…": cut("日本語", 3), "日本": cut("日本", 4), "ab": cut("ab", 2),
	} {
		require.Equal(t, want, got)
	}
}
