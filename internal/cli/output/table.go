package output

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Column is a column of a table.
type Column struct {
	Head string
	Path string // of the value
	Wide bool   // only in the wide form
	Age  bool   // the value is a time: how long ago it was
	// Show makes the text of the whole thing, in place of the value at Path.
	Show func(value any) string
	// State colours the text as the state that it is.
	State bool
}

// NewView makes a view. Columns are written as HEAD:path with what they are besides, as in "JOB:job_id, AGE:created_at:age:wide":
// age, state or wide. The texts of columns without a path are made by the functions, in this order.
func NewView(id, columns string, show ...func(value any) string) View {
	v := View{ID: id}
	for text := range strings.SplitSeq(columns, ", ") {
		head, rest, _ := strings.Cut(text, ":")
		path, besides, _ := strings.Cut(rest, ":")
		is := func(word string) bool { return slices.Contains(strings.Split(besides, ":"), word) }
		c := Column{Head: head, Path: path, Age: is("age"), State: is("state"), Wide: is("wide")}
		if path == "" {
			c.Show, show = show[0], show[1:]
		}
		v.Columns = append(v.Columns, c)
	}
	return v
}

// longest is how much of a text the narrow table shows.
const longest = 60

// table prints things with aligned columns.
func (p *Printer) table(v View, items []any) error {
	var columns []Column
	for _, c := range v.Columns {
		if !c.Wide || p.Form.name == "wide" {
			columns = append(columns, c)
		}
	}
	rows := [][]string{make([]string, len(columns))}
	widths := make([]int, len(columns))
	for i, c := range columns {
		rows[0][i], widths[i] = c.Head, utf8.RuneCountInString(c.Head)
	}
	values := make([]any, len(items))
	now := p.Now()
	for i, item := range items {
		var err error
		if values[i], err = Values(item); err != nil {
			return err
		}
		now = latest(now, values[i])
	}
	for _, value := range values {
		row := make([]string, len(columns))
		for i, c := range columns {
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
			case columns[i].State:
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

// latest is a time, or that at which a thing was made or changed, if that is later: a test bed's clock may be ahead of ours.
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
	case c.Show != nil:
		text = c.Show(value)
	case c.Age:
		text = age(now, Text(At(value, c.Path)))
	default:
		text = Text(At(value, c.Path))
	}
	if text = term.Line(text); text == "" {
		return "-"
	}
	if p.Form.name != "wide" && utf8.RuneCountInString(text) > longest {
		return string([]rune(text)[:longest-3]) + "..."
	}
	return text
}

// age is how long ago a time was, or how long it is until then.
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

// Span is a duration for people, in one or two units.
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
