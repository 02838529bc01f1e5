package tour

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
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
func (r *Row) OK() bool { return len(r.Findings) == 0 && !r.Open }

// mark is the row's last column.
func (r *Row) mark() string {
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

// Write prints all rows, the reasons of each difference and the verdict.
func (r *Result) Write(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tEXPECTED\tGOT\tATTEMPTS\tDURATION\tOK")
	for _, r := range r.Rows {
		attempts, duration := "-", "-"
		if r.Attempts > 0 {
			attempts, duration = strconv.Itoa(r.Attempts), show(r.Duration)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Kind, r.Expected, judge.Printable(cmp.Or(r.Got, "-")), attempts, duration, r.mark())
	}
	_ = table.Flush()
	printDifferences(w, r.Rows)
	fmt.Fprintf(w, "\n%s\n", r.verdict())
}

// printDifferences gives the reasons, and what else is to be known. They quote
// the service, which must not get at the reader's terminal.
func printDifferences(w io.Writer, rows []Row) {
	for _, r := range rows {
		if len(r.Findings) == 0 && len(r.Notes) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", r.Kind)
		for i, f := range slices.Concat(r.Findings, r.Notes) {
			if i == maxFindings {
				fmt.Fprintf(w, "  - and %d more\n", len(r.Findings)+len(r.Notes)-maxFindings)
				break
			}
			fmt.Fprintf(w, "  - %s\n", judge.Printable(f))
		}
	}
}

// verdict says in a line how it went.
func (r *Result) verdict() string {
	by := map[string][]string{} // kinds by mark
	for _, r := range r.Rows {
		by[r.mark()] = append(by[r.mark()], r.Kind)
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
