// Package output prints values of the API as a table for people or as JSON for scripts.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Forms are the values of the flag --output.
var Forms = []string{"table", "wide", "json"}

// Printer prints values in the format Form.
type Printer struct {
	Form  string // one of Forms
	Quiet bool   // print only the first column, the id
	Out   io.Writer
	Style term.Style
	Now   func() time.Time
}

// Check returns an error for an unknown Form.
func (p *Printer) Check() error {
	if !slices.Contains(Forms, p.Form) {
		return fmt.Errorf("unknown output format %q: use table, wide or json (jq can convert it), or --quiet for ids", p.Form)
	}
	return nil
}

// IsTable reports whether the output is a table.
func (p *Printer) IsTable() bool { return p.Form != "json" && !p.Quiet }

// List prints the elements of a slice, as rows of a table or as one JSON array.
func (p *Printer) List(v View, items any) error {
	value, err := Values(items)
	if err != nil {
		return err
	}
	rows, _ := value.([]any)
	return p.print(v, append([]any{}, rows...), rows) // append makes it [] instead of null when empty
}

// One prints one value.
func (p *Printer) One(v View, item any) error {
	value, err := Values(item)
	if err != nil {
		return err
	}
	return p.print(v, value, []any{value})
}

func (p *Printer) print(v View, whole any, rows []any) error {
	switch {
	case p.Quiet:
		for _, row := range rows {
			if _, err := fmt.Fprintln(p.Out, term.Line(Text(At(row, v[0].Path)))); err != nil {
				return err
			}
		}
		return nil
	case p.Form == "json":
		return p.json(whole, "  ")
	}
	return p.table(v, rows)
}

// Each prints one value on one line. In the form json the line is JSON, otherwise it is the result of the function `line`. If Quiet is set,
// Each prints nothing.
func (p *Printer) Each(item any, line func(value any) string) error {
	value, err := Values(item)
	switch {
	case err != nil || p.Quiet:
		return err
	case p.Form == "json":
		return p.json(value, "")
	}
	_, err = fmt.Fprintln(p.Out, line(value))
	return err
}

func (p *Printer) json(value any, indent string) error {
	encoder := json.NewEncoder(p.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(value)
}
