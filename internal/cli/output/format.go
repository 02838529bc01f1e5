// Package output prints what the service answered in the form that the caller asked for: a table for people, and JSON, YAML,
// names or a template for scripts.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Formats are the values of the flag --output.
var Formats = []string{"table", "wide", "json", "yaml", "name", "go-template="}

// Form is a form of output that was asked for.
type Form struct {
	name     string
	template *template.Template
}

// Parse reads the value of --output.
func Parse(value string) (Form, error) {
	name, text, _ := strings.Cut(value, "=")
	switch name {
	case "", "table":
		return Form{name: "table"}, nil
	case "wide", "json", "yaml", "name":
		if text == "" {
			return Form{name: name}, nil
		}
	case "go-template":
		if text == "" {
			return Form{}, fmt.Errorf("give a template, as in -o go-template='{{.job_id}} {{.state}}'")
		}
		t, err := template.New("output").Funcs(template.FuncMap{"json": asJSON}).Option("missingkey=zero").Parse(text)
		if err != nil {
			return Form{}, fmt.Errorf("the template cannot be read: %w", err)
		}
		return Form{name: name, template: t}, nil
	}
	return Form{}, fmt.Errorf("there is no form of output %q: use table, wide, json, yaml, name or go-template=TEMPLATE", value)
}

// IsTable reports whether people are to read it.
func (f Form) IsTable() bool { return f.name == "table" || f.name == "wide" }

// Printer prints in one form.
type Printer struct {
	Form  Form
	Out   io.Writer
	Style term.Style
	Now   func() time.Time
}

// View is how things of one kind are shown.
type View struct {
	ID      string // path of what -o name prints
	Columns []Column
}

// List prints several things: JSON as one array, a template once for each.
func (p *Printer) List(v View, items []any) error {
	if p.Form.IsTable() {
		return p.table(v, items)
	}
	values := make([]any, len(items))
	for i, item := range items {
		var err error
		if values[i], err = Values(item); err != nil {
			return err
		}
	}
	return p.document(v, values, values)
}

// One prints one thing.
func (p *Printer) One(v View, item any) error {
	if p.Form.IsTable() {
		return p.table(v, []any{item})
	}
	value, err := Values(item)
	if err != nil {
		return err
	}
	return p.document(v, value, []any{value})
}

// document prints a whole as JSON or YAML, or a line for each of its parts.
func (p *Printer) document(v View, whole any, parts []any) error {
	switch p.Form.name {
	case "json":
		return p.json(whole, "  ")
	case "yaml":
		return p.yaml(whole)
	}
	for _, part := range parts {
		if err := p.line(v, part); err != nil {
			return err
		}
	}
	return nil
}

// Each prints one of a series without end: JSON on one line, YAML as a document. For people, text is the line.
func (p *Printer) Each(v View, item any, text func(value any) string) error {
	value, err := Values(item)
	if err != nil {
		return err
	}
	switch p.Form.name {
	case "table", "wide":
		_, err = fmt.Fprintln(p.Out, text(value))
		return err
	case "json":
		return p.json(value, "")
	case "yaml":
		if _, err := fmt.Fprintln(p.Out, "---"); err != nil {
			return err
		}
		return p.yaml(value)
	}
	return p.line(v, value)
}

// line prints a name, or what a template makes of it.
func (p *Printer) line(v View, value any) error {
	if p.Form.name == "name" {
		_, err := fmt.Fprintln(p.Out, term.Line(Text(At(value, v.ID))))
		return err
	}
	var text bytes.Buffer
	if err := p.Form.template.Execute(&text, value); err != nil {
		return fmt.Errorf("the template cannot be filled in: %w", err)
	}
	if !bytes.HasSuffix(text.Bytes(), []byte("\n")) {
		text.WriteByte('\n')
	}
	_, err := text.WriteTo(p.Out)
	return err
}

func (p *Printer) json(value any, indent string) error {
	encoder := json.NewEncoder(p.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(value)
}

func (p *Printer) yaml(value any) error {
	text, err := asJSON(value)
	if err != nil {
		return err
	}
	var plain any // whose numbers are numbers: JSON is YAML
	if err := yaml.Unmarshal([]byte(text), &plain); err != nil {
		return err
	}
	encoder := yaml.NewEncoder(p.Out)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(plain), encoder.Close())
}

func asJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}
