// Package term prints colors and redrawn lines on terminals, and plain text elsewhere.
package term

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style tells whether an output supports colors and redrawn lines. The zero value supports neither.
type Style struct {
	Colors   bool
	Terminal bool

	mark string // written before a control character, so that Writer does not escape it
}

// Of returns the capabilities of w. A terminal supports redrawn lines, and colors unless NO_COLOR is set. A file, a pipe or a dumb terminal
// supports neither.
func Of(w io.Writer, getenv func(string) string) Style {
	if !IsTerminal(w) || getenv("TERM") == "dumb" {
		return Style{}
	}
	return Style{Colors: getenv("NO_COLOR") == "", Terminal: true, mark: markFor(w)}
}

// IsTerminal reports whether v is a terminal. v is an input or output of the program.
func IsTerminal(v any) bool {
	f := file(v)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// ReadPassword reads a line from a terminal without showing it. It hides the input, and then calls `ask` to print the prompt. It returns
// io.EOF for Ctrl-C and Ctrl-D.
func ReadPassword(terminal *os.File, ask func()) (string, error) {
	before, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(int(terminal.Fd()), before) }()
	ask()
	return term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{terminal, io.Discard}, "").ReadPassword("")
}

// Width returns the number of columns of the terminal w, or 80 if w is not a terminal or its width is unknown.
func Width(w io.Writer) int {
	if f := file(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Color is an ANSI color or font style, such as "32" for green.
type Color string

// The colors, by meaning.
const (
	Plain  Color = ""
	Good   Color = "32" // green
	Bad    Color = "31" // red
	Warn   Color = "33" // yellow
	Active Color = "36" // cyan
	Faint  Color = "2"
	Strong Color = "1"
)

// Paint returns text in a color, if the output shows colors.
func (s Style) Paint(c Color, text string) string {
	if !s.Colors || c == Plain || text == "" {
		return text
	}
	return s.escape("[") + string(c) + "m" + text + s.escape("[0m")
}

func (s Style) escape(sequence string) string { return s.mark + "\x1b" + sequence }

// ClearLine clears the current line of a terminal.
func (s Style) ClearLine() string { return s.mark + "\r" + s.escape("[K") }

// Status is a progress line that is overwritten in place.
type Status struct {
	out   io.Writer
	on    bool
	drawn bool
	clear string
}

// NewStatus returns the status line of an output. If `on` is false, the line is never shown.
func NewStatus(out io.Writer, on bool) *Status {
	return &Status{out: out, on: on, clear: Style{mark: markFor(out)}.ClearLine()}
}

// Show draws `text`, cut to the width of the terminal. `painted` contains pairs: a word of `text`, and the same word in color.
func (s *Status) Show(text string, painted ...string) {
	if !s.on {
		return
	}
	if runes := []rune(text); len(runes) >= Width(s.out) {
		text = string(runes[:max(0, Width(s.out)-1)])
	}
	_, _ = io.WriteString(s.out, s.clear+strings.NewReplacer(painted...).Replace(text))
	s.drawn = true
}

// Clear removes the line if it is shown.
func (s *Status) Clear() {
	if s.drawn {
		_, _ = io.WriteString(s.out, s.clear)
	}
	s.drawn = false
}

// State converts the jobStatus in the data of an event into the API's job state. For example, COMPLETED becomes SUCCEEDED.
func State(event, status string) string {
	if !strings.HasPrefix(event, "job") {
		return status
	}
	switch status {
	case "COMPLETED":
		return "SUCCEEDED"
	case "CANCELLED":
		return "CANCELED"
	case "TIMED_OUT":
		return "FAILED"
	case "PROCESSING":
		return "RUNNING"
	}
	return status
}

// StateColor returns the color for a state of a job, a batch, a worker or a delivery.
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
