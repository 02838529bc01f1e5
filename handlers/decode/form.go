package decode

import (
	"strings"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

const (
	maxKeyBytes  = 255
	maxNameBytes = 128 // of events and items
)

// MaxCorrelationBytes is the length of a correlation id (draft section 9.2).
const MaxCorrelationBytes = 256

// What values must be, in words.
const (
	KeyForm         = "1 to 255 visible ASCII characters."
	TimeForm        = "a time in RFC 3339 in UTC, such as 2030-01-31T12:00:00Z"
	CorrelationForm = "1 to 256 " + wordForm
	wordForm        = "characters of A-Z, a-z, 0-9, '.', '-' and '_'."
)

// ValidKey reports whether an idempotency key has KeyForm.
func ValidKey(key string) bool {
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return false
		}
	}
	return 0 < len(key) && len(key) <= maxKeyBytes
}

// ValidCorrelation reports whether s is a correlation id.
func ValidCorrelation(s string) bool { return isWord(s, MaxCorrelationBytes) }

func validName(s string) bool { return isWord(s, maxNameBytes) }

// isWord reports whether s has 1 to limit characters, as wordForm names them.
func isWord(s string, limit int) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= limit
}

// isLine reports whether s has at most so many characters, none of which breaks a line or is invisible.
func isLine(s string, most int) bool {
	return utf8.RuneCountInString(s) <= most && job.PlainText(s, len(s)) == s
}

// OneOf lists the values that are allowed.
func OneOf[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return "one of " + strings.Join(texts, ", ")
}
