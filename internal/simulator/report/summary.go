package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// Of violations, the summary has this many, and of the first ones all that was seen of the job.
const (
	summaryViolations = 10
	summaryHistories  = 3
)

// WriteSummary writes the run in plain text: the verdict first, then numbers, faults, expectations and the first
// violations. It uses colours on a terminal, unless NO_COLOR is set.
func WriteSummary(w io.Writer, run Run) error {
	var out bytes.Buffer
	s := summary{&out, sizeOf(w) != nil && os.Getenv("NO_COLOR") == ""}
	s.verdict(run)
	s.numbers(run)
	s.faults(run)
	s.expectations(run)
	s.invariants(run)
	s.violations(run)
	for _, note := range run.Notes {
		s.line("note: " + printable(note))
	}
	_, err := w.Write(out.Bytes())
	return err
}

type summary struct {
	out   *bytes.Buffer
	color bool
}

func (s summary) line(text string) { fmt.Fprintln(s.out, text) }

func (s summary) styled(style, text string) string {
	if !s.color {
		return text
	}
	return style + text + plainText
}

// table writes rows in columns.
func (s summary) table(rows [][]string) {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.TrimRight("  "+strings.Join(row, "\t"), "\t"))
	}
	_ = table.Flush() // to memory
}

func (s summary) verdict(run Run) {
	style := map[Outcome]string{Passed: green, Unjudged: yellow, Unmet: red, Violated: red}[run.Outcome()]
	s.line("\n" + s.styled(bold+style, string(run.Outcome())) + "  " + run.sentence())
	s.line(fmt.Sprintf("scenario %s, seed %d, %s from %s",
		orDash(run.Scenario), run.Seed, clockTime(run.Took), run.Started.Format("2006-01-02 15:04:05 MST")))
}

func (s summary) numbers(run Run) {
	n := run.Numbers
	taken := fmt.Sprintf("taken %s  not taken %s", grouped(n.Delivered), grouped(n.Refused))
	s.line("")
	s.table([][]string{
		{"sent", grouped(n.Arrivals), average(n.Arrivals, run.Took), listed(n.Answers)},
		{"finished", grouped(total(n.Finished)), average(total(n.Finished), run.Took), listed(n.Finished)},
		{"deliveries", grouped(n.Delivered + n.Refused), average(n.Delivered+n.Refused, run.Took), taken},
	})
	s.line("")
	rows := [][]string{{"", "p50", "p90", "p95", "p99", "p99.9", "max", "mean"}}
	for _, l := range n.latencies() {
		if l.Count > 0 {
			rows = append(rows, []string{l.Name, brief(l.P50), brief(l.P90), brief(l.P95), brief(l.P99), brief(l.P999), brief(l.Max), brief(l.Mean)})
		}
	}
	if len(rows) > 1 {
		s.table(rows)
	}
}

// namedLatency is one of the two that are measured.
type namedLatency struct {
	Name string
	Latency
}

func (n Numbers) latencies() []namedLatency {
	return []namedLatency{{"submit", n.Submit}, {"finish", n.Finish}}
}

func (s summary) faults(run Run) {
	if len(run.Kinds) == 0 {
		return
	}
	s.line(fmt.Sprintf("\n%s faults injected", grouped(run.Numbers.Injected)))
	var rows [][]string
	for _, k := range run.Kinds {
		rows = append(rows, []string{printable(k.Kind), "×" + grouped(k.Count), times(k.Times), "lasted " + brief(k.Lasted) + " in all"})
	}
	s.table(rows)
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return grouped(n) + " times"
}

func (s summary) expectations(run Run) {
	if len(run.Expectations) == 0 {
		return
	}
	s.line("\nexpectations")
	rows := [][]string{}
	for _, e := range run.Expectations {
		met := map[bool]string{true: "ok", false: "NOT MET"}[e.OK]
		rows = append(rows, []string{met, printable(e.Name), "wanted " + printable(e.Want), "got " + printable(e.Got)})
	}
	s.table(rows)
}

func (s summary) invariants(run Run) {
	if run.Verdict == nil {
		return
	}
	s.line("\ninvariants")
	rows := [][]string{}
	for _, i := range run.invariants() {
		row := []string{i.Result, "×" + grouped(i.Checked), i.Title}
		if i.Why != "" {
			row[2] += " (" + i.Why + ")"
		}
		rows = append(rows, row)
	}
	s.table(rows)
}

func (s summary) violations(run Run) {
	if run.Verdict == nil || run.Verdict.ViolationCount == 0 {
		return
	}
	list := run.Verdict.Violations
	for i, v := range list[:min(len(list), summaryViolations)] {
		story := storyOf(v)
		s.line("\n" + s.styled(red, fmt.Sprintf("violation %d of %s: ", i+1, grouped(run.Verdict.ViolationCount))) + story.Headline())
		if i < summaryHistories {
			for _, fact := range story.Facts {
				s.line("    " + fact)
			}
		}
	}
	if more := run.Verdict.ViolationCount - summaryViolations; more > 0 {
		s.line(fmt.Sprintf("\nand %s more", grouped(more)))
	}
}
