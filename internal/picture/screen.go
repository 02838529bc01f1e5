package main

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// looks are the SGR codes that are shown, with their classes in the picture. They are those of internal/cli/term.
var looks = map[string]string{"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}

// anew is how our programs begin the last line again.
const anew = "\r\x1b[K"

var (
	sequence = regexp.MustCompile(`\x1b\[([0-9;?]*)([A-Za-z])`)
	cutOff   = regexp.MustCompile(`\x1b(\[[0-9;?]*)?$`)
)

// screen keeps what programs print to a terminal, and knows as much of one as they need: lines, the last of which
// is drawn anew, and colours.
type screen struct {
	mu      sync.Mutex
	printed []byte
}

// Write takes what a program prints.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printed = append(s.printed, text...)
	return len(text), nil
}

// span is a part of a line that has one look.
type span struct {
	column     int
	text, look string
}

// shown gives the lines as they are now. What is empty between spans of text belongs to none of them.
func (s *screen) shown() [][]span {
	s.mu.Lock()
	text := string(bytes.ToValidUTF8(cutOff.ReplaceAll(s.printed, nil), nil))
	s.mu.Unlock()
	var all [][]span
	look := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line[max(strings.LastIndex(line, anew), 0):], "\r")
		var spans []span
		column := 0
		add := func(part string) {
			part = strings.ReplaceAll(part, "\r", "")
			trimmed := strings.TrimLeft(part, " ")
			at := column + len(part) - len(trimmed)
			if column += utf8.RuneCountInString(part); strings.TrimSpace(part) != "" {
				spans = append(spans, span{at, strings.TrimRight(trimmed, " "), look})
			}
		}
		from := 0
		for _, at := range sequence.FindAllStringSubmatchIndex(line, -1) {
			add(line[from:at[0]])
			if from = at[1]; line[at[4]:at[5]] == "m" {
				if look = line[at[2]:at[3]]; looks[look] == "" {
					look = ""
				}
			}
		}
		add(line[from:])
		all = append(all, spans)
	}
	return all
}

// text is all that was printed, without looks.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sequence.ReplaceAllString(string(s.printed), "")
}
