package wire

import (
	"iter"
	"strings"
)

// Link is one entry of a Link header (RFC 8288).
type Link struct {
	Target     string
	At         int // offset of Target in the header
	Parameters string
}

// Links returns the links of a header. Commas and semicolons in targets and in quoted parameters are not separators.
func Links(header string) iter.Seq[Link] {
	return func(yield func(Link) bool) {
		for at := 0; ; {
			open := strings.IndexByte(header[at:], '<')
			if open < 0 {
				return
			}
			at += open + 1
			size := strings.IndexByte(header[at:], '>')
			if size < 0 {
				return
			}
			l := Link{Target: header[at : at+size], At: at}
			at += size + 1
			end := at + endOfLink(header[at:])
			l.Parameters = header[at:end]
			if !yield(l) {
				return
			}
			at = end
		}
	}
}

// endOfLink returns the index of the comma that ends the parameters, or the length of the text.
func endOfLink(parameters string) int {
	quoted, escaped := false, false
	for i, c := range []byte(parameters) {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return i
		}
	}
	return len(parameters)
}
