package search

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

func (s *search) conclude() {
	r := &s.report
	r.Seconds, r.Covered = time.Since(s.began).Round(100*time.Millisecond).Seconds(), len(s.seen)
	broke := map[Cell]int{}
	for _, f := range r.Findings {
		for _, step := range f.Schedule {
			broke[Cell{Operation: step.Operation, Fault: strings.Join(step.Effect.Kinds(), ", ")}]++
		}
	}
	r.Cells = []Tried{}
	for cell, n := range s.tried {
		r.Cells = append(r.Cells, Tried{cell.Operation, cell.Fault, n, broke[cell]})
	}
	slices.SortFunc(r.Cells, func(a, b Tried) int {
		return cmp.Or(strings.Compare(a.Operation, b.Operation), strings.Compare(a.Fault, b.Fault))
	})
}

// All returns the findings. Flaky findings come last.
func (r *Report) All() []Finding { return slices.Concat(r.Findings, r.Flaky) }

// Headline returns the result of the search in one line.
func (r *Report) Headline() string {
	text := "No sequence broke the client"
	switch n := len(r.Findings); {
	case n == 1:
		text = "1 sequence breaks the client"
	case n > 1:
		text = fmt.Sprintf("%d sequences break the client", n)
	}
	if n := len(r.Flaky); n > 0 {
		text += fmt.Sprintf("; %d more only sometimes", n)
	}
	return text
}

// Sum returns a short summary of the search in plain text.
func (r *Report) Sum() string {
	return fmt.Sprintf("Seed %d: %s in %.0f s. They covered %s of operation, fault and job state.",
		r.Seed, counted(r.Trials, "run"), r.Seconds, counted(r.Covered, "combination"))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Rate describes how often the schedule broke the client.
func (f *Finding) Rate() string {
	text := fmt.Sprintf("The client broke in %d of %d runs", f.Hits, f.Runs)
	if f.Once {
		return "The client broke in 1 run; the search ended before the sequence was repeated"
	}
	if f.Cut {
		text += "; the search ended before the sequence was shortened"
	}
	return text
}

// Lines describes the requests that prove the broken rule, one per line.
func (b *Break) Lines() (lines []string) {
	if b.Evidence == nil {
		return nil
	}
	for _, m := range []*verdict.Moment{b.Evidence.Before, b.Evidence.Request} {
		if m == nil {
			continue
		}
		line := fmt.Sprintf("%s %s, response: %s", time.Time(m.At).UTC().Format("15:04:05.000"), m.Request, m.Answer)
		if kind, _, ok := strings.Cut(m.Fault, " {"); ok {
			line += "; fault: " + kind
		}
		lines = append(lines, line)
	}
	return lines
}

// YAML returns a file for --faults with the faults of the finding, and a comment that describes the finding.
func (f *Finding) YAML(replay string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s.\n", f.Words)
	for _, broken := range f.Breaks {
		fmt.Fprintf(&b, "# %s: %s\n", broken.Rule, oneLine(broken.Found))
	}
	fmt.Fprintf(&b, "#\n# %s\n", oneLine(replay))
	var list yaml.Node
	if err := yaml.Unmarshal([]byte(text(f.Rules)), &list); err != nil { // decoding the JSON as YAML keeps the order of the members
		return nil, err
	}
	plainly(&list)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&list); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func plainly(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plainly(child)
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Page is the data of the HTML page of a report.
type Page struct {
	*Report
	Replays map[string]string // by name of the finding: the command that replays it
}

// Rows returns a row for each fault that was tried, sorted by name.
func (p Page) Rows() (rows []Row) {
	for _, o := range p.Operations {
		for _, c := range p.Cells {
			at := slices.IndexFunc(rows, func(r Row) bool { return r.Fault == c.Fault })
			switch {
			case c.Operation != o.Name:
				continue
			case at < 0:
				at, rows = len(rows), append(rows, Row{Fault: c.Fault, Cells: make([]*Tried, len(p.Operations))})
			}
			rows[at].Cells[slices.Index(p.Operations, o)] = &c
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a.Fault, b.Fault) })
	return rows
}

// Row has a cell for each operation. A cell is nil if the fault did not happen to the operation.
type Row struct {
	Fault string
	Cells []*Tried
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(report.Style) }, //nolint:gosec // our own style sheet
}).Parse(pageText))

// HTML writes the page.
func (p Page) HTML(w io.Writer) error { return pageTemplate.Execute(w, p) }
