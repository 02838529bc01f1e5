// Package term says what an output can show, and writes it: colours, links and lines that are drawn again in a terminal,
// plain text everywhere else.
package term

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style is what an output can show. The zero value shows plain text.
type Style struct {
	Colors   bool
	Links    bool // OSC 8: a terminal opens them
	Terminal bool // lines can be drawn again
}

// Of says what w can show: a terminal shows links and, unless NO_COLOR is set, colours; a file or a pipe nothing of that.
func Of(w io.Writer, getenv func(string) string) Style {
	if !IsTerminal(w) || getenv("TERM") == "dumb" {
		return Style{}
	}
	return Style{Colors: getenv("NO_COLOR") == "", Links: true, Terminal: true}
}

// IsTerminal reports whether v is a file that is a terminal.
func IsTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ReadPassword reads a line of a terminal that does not show it.
func ReadPassword(terminal *os.File) (string, error) {
	line, err := term.ReadPassword(int(terminal.Fd()))
	return string(line), err
}

// Width is the number of columns of the terminal w, and 80 if it is none or does not say.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Color is how a text is shown.
type Color string

// The colours, by what they mean.
const (
	Plain  Color = ""
	Good   Color = "32" // green
	Bad    Color = "31" // red
	Warn   Color = "33" // yellow
	Active Color = "36" // cyan
	Faint  Color = "2"
	Strong Color = "1"
)

// Paint gives text in a colour, if the output shows any.
func (s Style) Paint(c Color, text string) string {
	if !s.Colors || c == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Link gives text that a terminal opens at a URL. Elsewhere it is the text alone.
func (s Style) Link(url, text string) string {
	if !s.Links {
		return text
	}
	return "\x1b]8;;" + url + "\x1b\\" + text + "\x1b]8;;\x1b\\"
}

// Status is a line that is drawn again and again. Only a terminal has it.
type Status struct {
	out io.Writer
	on  bool
}

// NewStatus makes the line of an output; nothing is drawn unless on.
func NewStatus(out io.Writer, on bool) *Status { return &Status{out: out, on: on} }

// Show draws the line, cut to the width of the terminal, and then with words replaced by others, which have colours.
func (s *Status) Show(text string, painted ...string) {
	if !s.on {
		return
	}
	if runes := []rune(text); len(runes) >= Width(s.out) {
		text = string(runes[:max(0, Width(s.out)-1)])
	}
	_, _ = io.WriteString(s.out, ClearLine+strings.NewReplacer(painted...).Replace(text))
}

// Clear takes the line away.
func (s *Status) Clear() {
	if s.on {
		_, _ = io.WriteString(s.out, ClearLine)
	}
}

// ClearLine begins the line of a terminal anew.
const ClearLine = "\r\x1b[K"

// StateColor is the colour of a state of a job, a batch, a worker or a delivery.
func StateColor(state string) Color {
	switch state {
	case "SUCCEEDED", "COMPLETED", "DELIVERED", "DONE", "ALIVE", "true":
		return Good
	case "FAILED", "TIMED_OUT", "DEAD", "COMPLETED_WITH_ERRORS":
		return Bad
	case "CANCELED", "CANCELLED", "ABORTED", "false":
		return Warn
	case "RUNNING", "ASSIGNED", "PROCESSING":
		return Active
	}
	return Plain
}

// Printable replaces what steers a terminal: what others chose must not.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return '\ufffd'
		}
		return r
	}, text)
}

// Line is Printable on one line.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(Printable(text), func(r rune) bool { return r == '\n' }), " ")
}
