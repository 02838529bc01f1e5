package tour

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// maxFindings bounds the reasons printed for one kind: one fault often shows
// in many places.
const maxFindings = 8

// Row is what became of one kind.
type Row struct {
	Kind, Expected, Got string
	Attempts            int // 0: no job
	Duration            time.Duration
	Findings            []string
	Cut                 bool     // Got is how far it came: the end was not waited for
	Open                bool     // it could not be judged to its end: Notes say why
	Notes               []string // to be known, and no difference
}

// OK reports whether all was as expected.
func (r Row) OK() bool { return len(r.Findings) == 0 && !r.Open }

// Mark is the row's last column.
func (r Row) Mark() string {
	switch {
	case len(r.Findings) > 0:
		return "NO"
	case r.Open:
		return "?" // not judged to its end
	case r.Cut:
		return "so far"
	}
	return "yes"
}

// Result is the outcome of a tour.
type Result struct {
	Rows []Row
	Took time.Duration
}

// OK reports whether all kinds were as expected.
func (r *Result) OK() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return !row.OK() })
}

//go:embed table.txt
var tableText string

// Reasons quote the service, which must not get at the reader's terminal.
var tableTemplate = template.Must(template.New("table").Funcs(template.FuncMap{"line": judge.Printable, "show": show}).Parse(tableText))

// Write prints all rows, the reasons of each difference and the verdict.
func (r *Result) Write(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_ = tableTemplate.Execute(table, r) // the writer may be closed
	_ = table.Flush()
}

// Reasons are its differences, and what else is to be known.
func (r Row) Reasons() []string {
	all := slices.Concat(r.Findings, r.Notes)
	if more := len(all) - maxFindings; more > 0 {
		all = append(all[:maxFindings], fmt.Sprintf("and %d more", more))
	}
	return all
}

// Verdict says in a line how it went.
func (r *Result) Verdict() string {
	by := map[string][]string{} // kinds by mark
	for _, row := range r.Rows {
		by[row.Mark()] = append(by[row.Mark()], row.Kind)
	}
	differ, open, cut := by["NO"], by["?"], by["so far"]
	switch {
	case len(differ) > 0:
		return fmt.Sprintf("%d of %d kinds differ: %s.", len(differ), len(r.Rows), strings.Join(differ, ", "))
	case len(open) > 0:
		return fmt.Sprintf("%d of %d kinds could not be judged: %s.", len(open), len(r.Rows), strings.Join(open, ", "))
	case len(cut) > 0:
		return fmt.Sprintf("All %d kinds behaved as the catalogue says, in %s, as far as was waited: the end of %s was not.",
			len(r.Rows), r.Took.Round(100*time.Millisecond), strings.Join(cut, ", "))
	default:
		return fmt.Sprintf("All %d kinds behaved as the catalogue says, in %s.", len(r.Rows), r.Took.Round(100*time.Millisecond))
	}
}

// show rounds a duration to what a reader needs.
func show(d time.Duration) string { return d.Round(time.Millisecond).String() }
