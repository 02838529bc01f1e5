package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

// figure is one line of the result.
type figure struct {
	Figure   string  `json:"figure"`
	Target   float64 `json:"target"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"` // of both
	OK       bool    `json:"ok"`
	AtMost   bool    `json:"at_most"`        // the target is an upper bound; otherwise a lower one
	Note     string  `json:"note,omitempty"` // the absolute values behind a ratio, in a few words
}

// atLeast judges a figure that is better when it is higher.
func atLeast(name string, target, measured float64, unit, note string) figure {
	return figure{Figure: name, Target: target, Measured: measured, Unit: unit, OK: measured >= target, Note: note}
}

// atMost judges a figure that is better when it is lower.
func atMost(name string, target, measured float64, unit, note string) figure {
	return figure{Figure: name, Target: target, Measured: measured, Unit: unit, OK: measured <= target, AtMost: true, Note: note}
}

// verdict says it in words.
func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FALLS SHORT"
}

// cells of a figure's line: name, target, measured, the latter in terms of the
// former, verdict, note.
func (f figure) cells() []string {
	sign, part := ">=", "-"
	if f.AtMost {
		sign = "<="
	}
	if f.Target != 0 {
		part = number(f.Measured / f.Target)
	}
	return []string{f.Figure, sign + " " + number(f.Target) + " " + f.Unit, number(f.Measured), part, verdict(f.OK), f.Note}
}

var columns = []string{"figure", "target", "measured", "ratio", "ok", ""}

// number has three significant digits, more only before the point.
func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// writeTable writes the figures for a terminal.
func writeTable(w io.Writer, figures []figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, f := range figures {
		_, _ = fmt.Fprintln(table, strings.Join(f.cells(), "\t"))
	}
	return table.Flush()
}

// writeMarkdown writes them for a document, under what they were measured on.
func writeMarkdown(path string, about []string, figures []figure) error {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s\n\n", strings.Join(about, "; "))
	line := func(cells []string) {
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		_, _ = fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	line(append([]string{}, columns...))
	_, _ = fmt.Fprintln(&b, strings.Repeat("|---", len(columns))+"|")
	for _, f := range figures {
		line(f.cells())
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// writeJSON writes a list of figures, an empty one too.
func writeJSON(path string, figures []figure) error {
	content, err := json.MarshalIndent(append([]figure{}, figures...), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
