package main

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// cell is a character with the SGR code of its look: "" or one of looks.
type cell struct {
	char rune
	look string
}

// looks are the SGR codes that are shown, with their classes in the picture. They are those of internal/cli/term.
var looks = map[string]string{"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}

// screen is what a terminal shows: it keeps every line, and understands what our programs send to a terminal, no more.
type screen struct {
	columns int

	mu       sync.Mutex
	lines    [][]cell
	row, col int
	look     string
	rest     []byte // the beginning of a sequence or character whose end has not come
}

// Write takes what a program prints.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, text...)
	for len(s.rest) > 0 {
		n := s.take(s.rest)
		if n == 0 {
			break
		}
		s.rest = s.rest[n:]
	}
	return len(text), nil
}

// take does what stands at the beginning of the text, and says how long that is; 0: not all of it is there.
func (s *screen) take(text []byte) int {
	switch {
	case text[0] == '\r':
		s.col = 0
		return 1
	case text[0] == '\n':
		s.row++
		return 1
	case text[0] == 0x1b:
		return s.sequence(text)
	case !utf8.FullRune(text):
		return 0
	}
	char, size := utf8.DecodeRune(text)
	if s.col == s.columns { // a full line is continued only now: a line break may come instead
		s.row, s.col = s.row+1, 0
	}
	line := s.line()
	for len(*line) <= s.col {
		*line = append(*line, cell{char: ' '})
	}
	(*line)[s.col] = cell{char, s.look}
	s.col++
	return size
}

// sequence does an escape sequence that begins with CSI, and passes others by.
func (s *screen) sequence(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != '[' {
		return 2
	}
	end := 2
	for end < len(text) && (text[end] < '@' || text[end] > '~') {
		end++
	}
	if end == len(text) {
		return 0
	}
	argument := string(text[2:end])
	switch text[end] {
	case 'A':
		n, _ := strconv.Atoi(argument)
		s.row = max(0, s.row-max(1, n))
	case 'K':
		s.cut()
	case 'J':
		s.cut()
		s.lines = s.lines[:min(len(s.lines), s.row+1)]
	case 'm':
		if _, known := looks[argument]; known {
			s.look = argument
		} else {
			s.look = ""
		}
	}
	return end + 1
}

func (s *screen) line() *[]cell {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	return &s.lines[s.row]
}

// cut removes the rest of the line.
func (s *screen) cut() {
	line := s.line()
	*line = (*line)[:min(len(*line), s.col)]
}

// span is a part of a line that has one look.
type span struct {
	column     int
	text, look string
}

// shown gives the lines as they are now. What is empty between spans of text belongs to none of them.
func (s *screen) shown() [][]span {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([][]span, len(s.lines))
	for i, line := range s.lines {
		for from := 0; from < len(line); {
			to := from + 1
			for to < len(line) && line[to].look == line[from].look {
				to++
			}
			var text strings.Builder
			for _, c := range line[from:to] {
				text.WriteRune(c.char)
			}
			trimmed := strings.TrimLeft(text.String(), " ")
			column := from + utf8.RuneCountInString(text.String()) - utf8.RuneCountInString(trimmed)
			if trimmed = strings.TrimRight(trimmed, " "); trimmed != "" {
				all[i] = append(all[i], span{column, trimmed, line[from].look})
			}
			from = to
		}
	}
	return all
}

// text is all that is shown, without looks.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, line := range s.lines {
		for _, c := range line {
			text.WriteRune(c.char)
		}
		text.WriteByte('\n')
	}
	return text.String()
}
