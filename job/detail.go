package job

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxDetailBytes bounds the texts of an error that are for the client.
const MaxDetailBytes = 1024

// PlainText makes text fit to be shown as a line anywhere: control characters and
// those that change how others are shown become U+FFFD, and what is longer than
// limit bytes is cut.
func PlainText(text string, limit int) string {
	const dots = "..."
	plain := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return c
	}, text[:min(len(text), limit+1)]) // what is beyond would be cut
	if len(plain) <= limit {
		return plain
	}
	cut := max(0, limit-len(dots))
	for cut > 0 && !utf8.RuneStart(plain[cut]) {
		cut--
	}
	return plain[:cut] + dots[:min(len(dots), limit)]
}

// maxPlaceBytes bounds what a detail shows of where a violation is.
const maxPlaceBytes = 100

// WithFirst gives the detail of an error: a lead, what is wrong first, and how much
// more is. It is at most MaxDetailBytes long.
func WithFirst(lead string, violations []Violation) string {
	if len(violations) == 0 {
		return lead
	}
	first := violations[0]
	place := first.Pointer + first.Parameter
	if place != "" {
		place = PlainText(place, maxPlaceBytes) + ": "
	}
	more := ""
	switch n := len(violations) - 1; {
	case n == 1:
		more = " One more is in violations."
	case n > 1:
		more = fmt.Sprintf(" %d more are in violations.", n)
	}
	return lead + " " + place + PlainText(first.Detail, MaxDetailBytes-len(lead)-len(place)-len(more)-1) + more
}

// Grouped writes a number that is not negative as people read it: 4,321.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
