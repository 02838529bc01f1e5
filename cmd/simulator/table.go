package main

import (
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

// printTable prints all results, the reasons of each difference and the
// verdict.
func printTable(w io.Writer, results []result, took time.Duration) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tEXPECTED\tGOT\tATTEMPTS\tDURATION\tOK")
	for _, r := range results {
		attempts, duration, ok := "-", "-", "yes"
		if r.attempts > 0 {
			attempts, duration = strconv.Itoa(r.attempts), show(r.duration)
		}
		switch {
		case !r.judged():
			ok = "?"
		case !r.ok():
			ok = "NO"
		case r.cut:
			ok = "so far"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.kind.name, r.kind.expected, orDash(r.got), attempts, duration, ok)
	}
	table.Flush()
	printDifferences(w, results)
	fmt.Fprintf(w, "\n%s\n", verdict(results, took))
}

// printDifferences gives the reasons, and what else is to be known. They quote
// the service, which must not get at the reader's terminal.
func printDifferences(w io.Writer, results []result) {
	for _, r := range results {
		if len(r.findings) == 0 && len(r.notes) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", r.kind.name)
		for i, f := range slices.Concat(r.findings, r.notes) {
			if i == maxFindings {
				fmt.Fprintf(w, "  - and %d more\n", len(r.findings)+len(r.notes)-maxFindings)
				break
			}
			fmt.Fprintf(w, "  - %s\n", printable(f))
		}
	}
}

// verdict says in a line how it went.
func verdict(results []result, took time.Duration) string {
	var differ, open, cut []string
	for _, r := range results {
		switch {
		case !r.judged():
			open = append(open, r.kind.name)
		case !r.ok():
			differ = append(differ, r.kind.name)
		case r.cut:
			cut = append(cut, r.kind.name)
		}
	}
	switch {
	case len(differ) > 0:
		return fmt.Sprintf("%d of %d kinds differ: %s.", len(differ), len(results), strings.Join(differ, ", "))
	case len(open) > 0:
		return fmt.Sprintf("%d of %d kinds could not be judged: %s.", len(open), len(results), strings.Join(open, ", "))
	case len(cut) > 0:
		return fmt.Sprintf("All %d kinds behaved as the catalogue says, in %s, as far as was waited: the end of %s was not.",
			len(results), took.Round(100*time.Millisecond), strings.Join(cut, ", "))
	default:
		return fmt.Sprintf("All %d kinds behaved as the catalogue says, in %s.", len(results), took.Round(100*time.Millisecond))
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
