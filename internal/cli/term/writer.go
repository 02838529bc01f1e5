package term

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The program writes ownMark before each control character that Writer must not escape. The mark is random, so text from elsewhere cannot
// contain it.
var ownMark = "\x00" + rand.Text()

// Writer wraps stdout or stderr. It escapes control characters other than newlines, tabs and the codes that Style writes. It uses JSON
// escapes such as \u001b, so JSON stays valid.
type Writer struct {
	out io.Writer

	mu   sync.Mutex
	rest []byte // the end of the last Write, if that Write ended within a UTF-8 character or within ownMark
}

// Guard returns a Writer for an output of the program.
func Guard(out io.Writer) *Writer { return &Writer{out: out} }

// Raw returns the output that a Writer wraps. Child processes and job results use it, so that their output is not escaped.
func Raw(w io.Writer) io.Writer {
	if guarded, ok := w.(*Writer); ok {
		return guarded.out
	}
	return w
}

func markFor(w io.Writer) string {
	if _, guarded := w.(*Writer); guarded {
		return ownMark
	}
	return ""
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := p
	if len(w.rest) > 0 || !plain(p) {
		text = w.escape(slices.Concat(w.rest, p))
	}
	if _, err := w.out.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// plain reports whether text is ASCII without characters to escape.
func plain(text []byte) bool {
	return !slices.ContainsFunc(text, func(b byte) bool { return b >= 0x7f || b < ' ' && b != '\n' && b != '\t' })
}

// escape escapes text. If the text ends within a UTF-8 character or within ownMark, escape keeps this part for the next Write.
func (w *Writer) escape(text []byte) []byte {
	complete := len(text)
	if at := bytes.LastIndexByte(text, ownMark[0]); at >= 0 && len(text)-at <= len(ownMark) && strings.HasPrefix(ownMark, string(text[at:])) {
		complete = at
	} else if at := len(text) - 1; at >= 0 && text[at] >= utf8.RuneSelf {
		for at > 0 && at > len(text)-utf8.UTFMax && !utf8.RuneStart(text[at]) {
			at--
		}
		if !utf8.FullRune(text[at:]) {
			complete = at
		}
	}
	w.rest = slices.Clone(text[complete:])
	parts := strings.Split(string(text[:complete]), ownMark)
	for i, part := range parts {
		ours := min(i, 1, len(part)) // 1 after a mark, because the control character there is not escaped
		parts[i] = part[:ours] + Printable(part[ours:])
	}
	return []byte(strings.Join(parts, ""))
}

// Printable escapes control characters other than newline and tab. It also escapes invisible characters, such as characters that reverse
// text. Invalid UTF-8 becomes U+FFFD.
func Printable(text string) string {
	steers := func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, steers) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !steers(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// Line is like Printable, but replaces line breaks and tabs with spaces.
func Line(text string) string { return Printable(lineBreaks.Replace(text)) }

var lineBreaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ")

func file(v any) *os.File {
	if guarded, ok := v.(*Writer); ok {
		v = guarded.out
	}
	f, _ := v.(*os.File)
	return f
}
