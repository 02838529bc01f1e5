package report

import (
	"bytes"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var summaryTemplate = template.Must(template.New("summary.txt").Funcs(functions).ParseFS(pageFiles, "page/summary.txt"))

var outcomeColors = map[Outcome]term.Color{
	Passed: term.Good, Unjudged: term.Warn, Inconclusive: term.Warn, Unmet: term.Bad, Violated: term.Bad,
}

// WriteSummary writes the run in plain text: the verdict first, then numbers, faults, expectations and the first
// violations. It colours the verdict on a terminal, unless NO_COLOR is set.
func WriteSummary(w io.Writer, run Run) error {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if err := summaryTemplate.Execute(columns, documentOf(run)); err != nil {
		return err
	}
	_ = columns.Flush() // to memory
	outcome := string(run.Outcome())
	painted := term.Of(w, os.Getenv).Paint(outcomeColors[run.Outcome()], outcome)
	_, err := io.WriteString(w, strings.Replace(judge.PrintableLines(out.String()), outcome, painted, 1))
	return err
}
