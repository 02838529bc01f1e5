package tour

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
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
	Notes               []string // to be known, and no difference
	Err                 error    // why the kind could not be judged to its end
}

// OK reports whether all was as expected.
func (r *Row) OK() bool { return len(r.Findings) == 0 && r.Err == nil }

func (r *Row) judged() bool { return len(r.Findings) > 0 || r.Err == nil }

// Result is the outcome of a tour.
type Result struct {
	Address string // of the service
	Rows    []Row
	Took    time.Duration
}

// OK reports whether all kinds were as expected.
func (r *Result) OK() bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool { return !row.OK() })
}

// Away is why the service did not answer to the end, nil if it did.
func (r *Result) Away() error {
	for _, row := range r.Rows {
		if errors.Is(row.Err, errAway) {
			return fmt.Errorf("the service at %s stopped answering during the tour: %w", r.Address, row.Err)
		}
	}
	return nil
}

// Write prints all rows, the reasons of each difference and the verdict.
func (r *Result) Write(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tEXPECTED\tGOT\tATTEMPTS\tDURATION\tOK")
	for _, r := range r.Rows {
		attempts, duration, ok := "-", "-", "yes"
		if r.Attempts > 0 {
			attempts, duration = strconv.Itoa(r.Attempts), show(r.Duration)
		}
		switch {
		case !r.judged():
			ok = "?"
		case !r.OK():
			ok = "NO"
		case r.Cut:
			ok = "so far"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Kind, r.Expected, orDash(r.Got), attempts, duration, ok)
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
			fmt.Fprintf(w, "  - %s\n", printable(f))
		}
	}
}

// verdict says in a line how it went.
func (r *Result) verdict() string {
	var differ, open, cut []string
	for _, r := range r.Rows {
		switch {
		case !r.judged():
			open = append(open, r.Kind)
		case !r.OK():
			differ = append(differ, r.Kind)
		case r.Cut:
			cut = append(cut, r.Kind)
		}
	}
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

// printable replaces control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}
