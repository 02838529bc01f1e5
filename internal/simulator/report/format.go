package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/width"
)

var english = message.NewPrinter(language.English)

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string { return english.Sprintf("%d", n) }

// brief writes a time with three digits, in the unit that fits: 12.3 ms.
func brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	case d < 2*time.Minute:
		return digits(d.Seconds()) + " s"
	}
	return clockTime(d)
}

// digits keeps three of them, and no more than two decimals.
func digits(f float64) string {
	decimals := 2
	for limit := 10.0; f >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

// clockTime writes 1:02:03, or 2:03 below an hour.
func clockTime(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// rate writes events per second.
func rate(n float64) string {
	if n >= 1000 {
		return grouped(int64(n+0.5)) + "/s"
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + "/s"
}

// average writes how many there were per second.
func average(n int64, d time.Duration) string { return rate(perSecond(n, d)) }

// perSecond is an average, 0 for no time at all.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// printable makes text from outside safe on a terminal and in XML, on one line: control characters, those that turn
// the direction of text, and invalid bytes are written as escapes.
func printable(text string) string { return escaped(text, false) }

// printableLines is the same and keeps line breaks.
func printableLines(text string) string { return escaped(strings.ReplaceAll(text, "\r\n", "\n"), true) }

func escaped(text string, lines bool) string {
	harmless := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) || lines && r == '\n' }
	if !strings.ContainsFunc(text, func(r rune) bool { return !harmless(r) }) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case harmless(r):
			out.WriteRune(r)
		case lines && r == '\t':
			out.WriteString("    ")
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return out.String()
}

// columns is how wide a text is on a terminal: East Asian characters take two.
func columns(text string) int {
	n := 0
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.Is(unicode.Mn, r):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// cut shortens a text to a width, and shows that it did.
func cut(text string, limit int) string {
	if columns(text) <= limit {
		return text
	}
	if limit < 1 {
		return ""
	}
	n := 0
	for i, r := range text {
		if n += columns(string(r)); n > limit-1 {
			return text[:i] + "…"
		}
	}
	return text
}
