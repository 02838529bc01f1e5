package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Of violations, the summary has this many, and of the first ones all that was seen of the job.
const (
	summaryViolations = 10
	summaryHistories  = 3
)

var outcomeColors = map[Outcome]term.Color{Passed: term.Good, Unjudged: term.Warn, Unmet: term.Bad, Violated: term.Bad}

// WriteSummary writes the run in plain text: the verdict first, then numbers, faults, expectations and the first
// violations. It uses colours on a terminal, unless NO_COLOR is set.
func WriteSummary(w io.Writer, run Run) error {
	var out bytes.Buffer
	style := term.Of(w, os.Getenv)
	fmt.Fprintf(&out, "\n%s  %s\n", style.Paint(outcomeColors[run.Outcome()], string(run.Outcome())), run.sentence())
	fmt.Fprintf(&out, "scenario %s, seed %d, %s from %s\n",
		judge.Printable(run.Scenario), run.Seed, clockTime(run.Took), run.Started.Format("2006-01-02 15:04:05 MST"))
	summarizeNumbers(&out, run)
	if len(run.Kinds) > 0 {
		rows := [][]string{}
		for _, k := range run.Kinds {
			lasted := "lasted " + brief(k.Lasted()) + " in all"
			rows = append(rows, []string{judge.Printable(k.Kind), "×" + grouped(k.Count), plural(k.Times, "time"), lasted})
		}
		table(&out, grouped(run.Numbers.Faults)+" faults injected", rows)
	}
	if len(run.Expectations) > 0 {
		rows := [][]string{}
		for _, e := range run.Expectations {
			met := map[bool]string{true: "ok", false: "NOT MET"}[e.OK]
			rows = append(rows, []string{met, judge.Printable(e.Name), "wanted " + judge.Printable(e.Want), "got " + judge.Printable(e.Got)})
		}
		table(&out, "expectations", rows)
	}
	if run.Verdict != nil {
		summarizeVerdict(&out, style, run)
	}
	for _, note := range run.Notes {
		fmt.Fprintf(&out, "note: %s\n", judge.Printable(note))
	}
	_, err := w.Write(out.Bytes())
	return err
}

// table writes rows in columns, below a title.
func table(out io.Writer, title string, rows [][]string) {
	fmt.Fprintf(out, "\n%s\n", title)
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(columns, strings.TrimRight("  "+strings.Join(row, "\t"), "\t"))
	}
	_ = columns.Flush() // to memory
}

func summarizeNumbers(out io.Writer, run Run) {
	n := run.Numbers
	finished, delivered := total(n.Finished), n.Deliveries.Taken+n.Deliveries.NotTaken
	table(out, "jobs", [][]string{
		{"sent", grouped(n.Arrivals), rate(n.Arrivals, run.Took), listed(n.Answers)},
		{"finished", grouped(finished), rate(finished, run.Took), listed(n.Finished)},
		{"deliveries", grouped(delivered), rate(delivered, run.Took),
			fmt.Sprintf("taken %s  not taken %s", grouped(n.Deliveries.Taken), grouped(n.Deliveries.NotTaken))},
	})
	rows := [][]string{{"", "p50", "p90", "p95", "p99", "p99.9", "max", "mean"}}
	for i, l := range []Latency{n.Submit, n.Finish} {
		if l.Count > 0 {
			name := []string{"submit", "finish"}[i]
			rows = append(rows, []string{name, brief(l.P50), brief(l.P90), brief(l.P95), brief(l.P99), brief(l.P999), brief(l.Max), brief(l.Mean)})
		}
	}
	if len(rows) > 1 {
		table(out, "latencies", rows)
	}
}

func summarizeVerdict(out io.Writer, style term.Style, run Run) {
	rows := [][]string{}
	for _, i := range run.invariants() {
		row := []string{i.Result, "×" + grouped(i.Checked), i.Title}
		if i.Skipped != "" {
			row[2] += " (" + i.Skipped + ")"
		}
		rows = append(rows, row)
	}
	table(out, "invariants", rows)
	count := run.Verdict.ViolationCount
	all := run.violations()
	for i, v := range all[:min(len(all), summaryViolations)] {
		title := fmt.Sprintf("violation %d of %s:", i+1, grouped(count))
		fmt.Fprintf(out, "\n%s %s\n", style.Paint(term.Bad, title), v.headline())
		if i < summaryHistories {
			for _, fact := range v.History {
				fmt.Fprintf(out, "    %s\n", fact)
			}
		}
	}
	if more := count - summaryViolations; more > 0 {
		fmt.Fprintf(out, "\nand %s more\n", grouped(more))
	}
}
