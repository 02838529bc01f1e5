package main

import (
	"bytes"
	"regexp"
	"strings"
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

// span is a part of a line that has one look.
type span struct {
	column     int
	text, look string
}

// shown gives the lines that a terminal shows of what was printed: the last one is drawn anew, and some are coloured. What is
// empty between spans of text belongs to none of them.
func shown(printed []byte) [][]span {
	text := string(bytes.ToValidUTF8(cutOff.ReplaceAll(printed, nil), nil))
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
