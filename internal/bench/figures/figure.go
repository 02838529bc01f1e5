// Package figures judges what was measured against its target, and writes it down.
package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Figure is one line of the result.
type Figure struct {
	Figure   string  `json:"figure"`
	Target   float64 `json:"target"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"` // of both
	OK       bool    `json:"ok"`
	AtMost   bool    `json:"at_most"`        // the target is an upper bound; otherwise a lower one
	Note     string  `json:"note,omitempty"` // the absolute values behind a ratio, in a few words
}

// AtLeast judges a figure that is better when it is higher.
func AtLeast(name string, target, measured float64, unit, note string) Figure {
	return Figure{Figure: name, Target: target, Measured: measured, Unit: unit, OK: measured >= target, Note: note}
}

// AtMost judges a figure that is better when it is lower.
func AtMost(name string, target, measured float64, unit, note string) Figure {
	return Figure{Figure: name, Target: target, Measured: measured, Unit: unit, OK: measured <= target, AtMost: true, Note: note}
}

// cells of a figure's line: name, target, measured, measured in terms of the target,
// verdict, note.
func (f Figure) cells() []string {
	sign, ratio, verdict := ">=", "-", "FALLS SHORT"
	if f.AtMost {
		sign = "<="
	}
	if f.Target != 0 {
		ratio = number(f.Measured / f.Target)
	}
	if f.OK {
		verdict = "ok"
	}
	return []string{f.Figure, sign + " " + number(f.Target) + " " + f.Unit, number(f.Measured), ratio, verdict, f.Note}
}

var columns = []string{"figure", "target", "measured", "ratio", "ok", ""}

// number has three significant digits, more only before the point.
func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// WriteTable writes the figures for a terminal.
func WriteTable(w io.Writer, figures []Figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(columns, "\t"))
	for _, f := range figures {
		_, _ = fmt.Fprintln(table, strings.Join(f.cells(), "\t"))
	}
	return table.Flush()
}

// WriteMarkdown writes them for a document, after a description of the machine.
func WriteMarkdown(path string, about []string, figures []Figure) error {
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

// WriteJSON writes a list of figures, an empty one too.
func WriteJSON(path string, figures []Figure) error {
	content, err := json.MarshalIndent(append([]Figure{}, figures...), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
