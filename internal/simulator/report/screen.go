package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Sequences that every terminal of today knows.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearDown  = "\x1b[J" // from the cursor to the end of the screen
	clearLine  = "\x1b[K"
	plainText  = "\x1b[0m"
	bold       = "\x1b[1m"
	yellow     = "\x1b[33m"
	red        = "\x1b[31m"
	green      = "\x1b[32m"
)

const labelWidth = 10

// screen draws a block of rows where the last one was. Between calls the cursor
// is at the start of the line below the block.
type screen struct {
	size  func() (width, height int)
	color bool
	rows  []row
	drawn []int // width of each row of the last block
	off   bool  // the cursor is hidden
}

// draw replaces the block, in one write, so that it does not flicker.
func (s *screen) draw(w io.Writer, rows []row) {
	s.rows = rows
	_ = s.above(w, nil) // a terminal that is gone is no reason to stop a run
}

// above writes lines where the block is, and the block again below them.
func (s *screen) above(w io.Writer, lines []byte) error {
	width, height := s.size()
	var out bytes.Buffer
	if !s.off {
		out.WriteString(hideCursor)
		s.off = true
	}
	s.back(&out, width)
	if len(lines) > 0 {
		out.WriteString(clearDown)
		out.Write(lines)
	}
	for _, r := range s.rows[:max(min(len(s.rows), height-1), 0)] {
		text := cut(r.String(), width-1)
		s.drawn = append(s.drawn, columns(text))
		if s.color && r.style != "" {
			text = r.style + text + plainText
		}
		out.WriteString(text + clearLine + "\r\n")
	}
	out.WriteString(clearDown)
	_, err := w.Write(out.Bytes())
	return err
}

// back moves to where the block began. A terminal that became narrower has wrapped its rows.
func (s *screen) back(out *bytes.Buffer, width int) {
	up := 0
	for _, drawn := range s.drawn {
		up += max((drawn+width-1)/max(width, 1), 1)
	}
	out.WriteByte('\r')
	if up > 0 {
		fmt.Fprintf(out, "\x1b[%dA", up)
	}
	s.drawn = s.drawn[:0]
}

// end takes the block away.
func (s *screen) end(w io.Writer) {
	if !s.off {
		return
	}
	width, _ := s.size()
	var out bytes.Buffer
	s.back(&out, width)
	out.WriteString(clearDown + plainText + showCursor)
	_, _ = w.Write(out.Bytes())
	s.off = false
}

func (r row) String() string {
	if r.label == "" {
		return r.text
	}
	return r.label + strings.Repeat(" ", max(labelWidth-columns(r.label), 2)) + r.text
}
