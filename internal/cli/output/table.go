package output

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// View lists the columns of a table. The first column has the id.
type View []Column

// Column is a column of a table.
type Column struct {
	Head string
	Path string
	Wide bool // shown only in the wide form
	Age  bool // the value is a time; print its age
	// the value is a state; print it in the state's color
	State bool
	show  func(value any) string // returns the text of the column; nil: the value at Path
}

// NewView parses columns such as "AGE:created_at:age:wide": head, path, and any of the options age, state and wide. A column without a path
// shows the result of a function. The first such column uses show[0], the next one show[1].
func NewView(columns string, show ...func(value any) string) (v View) {
	for text := range strings.SplitSeq(columns, ", ") {
		head, rest, _ := strings.Cut(text, ":")
		path, options, _ := strings.Cut(rest, ":")
		is := func(option string) bool { return slices.Contains(strings.Split(options, ":"), option) }
		c := Column{Head: head, Path: path, Age: is("age"), State: is("state"), Wide: is("wide")}
		if path == "" {
			c.show, show = show[0], show[1:]
		}
		v = append(v, c)
	}
	return v
}

// On a terminal, texts are cut to this many characters, except in the form wide.
const longest = 60

func (p *Printer) table(v View, values []any) error {
	if p.Form != "wide" {
		v = slices.DeleteFunc(slices.Clone(v), func(c Column) bool { return c.Wide })
	}
	rows, widths := [][]string{make([]string, len(v))}, make([]int, len(v))
	for i, c := range v {
		rows[0][i], widths[i] = c.Head, utf8.RuneCountInString(c.Head)
	}
	now := p.Now()
	for _, value := range values {
		now = latest(now, value)
	}
	for _, value := range values {
		row := make([]string, len(v))
		for i, c := range v {
			row[i] = p.cell(c, value, now)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		rows = append(rows, row)
	}
	for n, row := range rows {
		var line strings.Builder
		for i, text := range row {
			color := term.Plain
			switch {
			case n == 0:
				color = term.Strong
			case v[i].State:
				color = term.StateColor(text)
			}
			line.WriteString(p.Style.Paint(color, text))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
			}
		}
		if _, err := fmt.Fprintln(p.Out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// latest returns the latest of `now`, created_at and updated_at, because a test bed's clock may be ahead. A difference of up to one
// second is ignored.
func latest(now time.Time, value any) time.Time {
	for _, member := range []string{"created_at", "updated_at"} {
		if at, err := time.Parse(time.RFC3339Nano, Text(At(value, member))); err == nil && at.After(now.Add(time.Second)) {
			now = at
		}
	}
	return now
}

func (p *Printer) cell(c Column, value any, now time.Time) string {
	text := ""
	switch {
	case c.show != nil:
		text = c.show(value)
	case c.Age:
		text = age(now, Text(At(value, c.Path)))
	default:
		text = Text(At(value, c.Path))
	}
	if text = term.Line(text); text == "" {
		return "-"
	}
	if p.Style.Terminal && p.Form != "wide" && utf8.RuneCountInString(text) > longest {
		return string([]rune(text)[:longest-3]) + "..."
	}
	return text
}

func age(now time.Time, text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	d := now.Sub(at)
	if d < -time.Second {
		return "in " + Span(-d)
	}
	return Span(max(0, d))
}

// Span prints a duration for people, in one or two units.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 2*day:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d/day), int(d%day/time.Hour))
}
