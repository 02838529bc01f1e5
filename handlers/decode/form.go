package decode

import (
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

const maxKeyBytes = 255

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
	return 0 < len(key) && len(key) <= maxKeyBytes && isASCII(key, '!')
}

// isASCII reports whether s has printable ASCII only, from a character on.
func isASCII(s string, from byte) bool {
	for i := range len(s) {
		if s[i] < from || s[i] > '~' {
			return false
		}
	}
	return true
}

// ValidCorrelation reports whether s is a correlation id.
func ValidCorrelation(s string) bool { return isWord(s, MaxCorrelationBytes) }

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
	const replaced = 3 // bytes of U+FFFD, so that nothing is cut
	return utf8.RuneCountInString(s) <= most && job.PlainText(s, replaced*len(s)) == s
}

// OneOf lists the values that are allowed.
func OneOf[T ~string](values []T) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return "one of " + strings.Join(all, ", ")
}

func validType(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && isLine(s, job.MaxPlannedText) && !strings.ContainsFunc(s, unicode.IsSpace)
}

func validMedia(s string) bool {
	const most = 127
	media, _, err := mime.ParseMediaType(s)
	return err == nil && len(s) <= most && isASCII(s, ' ') && strings.Count(media, "/") == 1 && !strings.HasPrefix(media, "/") &&
		!strings.HasSuffix(media, "/") && !strings.Contains(media, "*")
}

// checkURL says what is wrong with the URL of a callback or webhook, "" for nothing. Which
// addresses may be called is checked when they are dialled.
func checkURL(text string) string {
	const most = 2048
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Sprintf("The URL may have at most %d characters and has %d.", most, n)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) || c == '\\' }) {
		return "The URL must not have spaces, control characters or backslashes."
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "This must be an absolute URL, such as https://example.com/done."
	case u.Scheme != "http" && u.Scheme != "https":
		return "The URL must be absolute and begin with http:// or https://, such as https://example.com/done."
	case u.Hostname() == "" || !validPort(u):
		return "The URL must have a host, and may have a port from 1 to 65535."
	case u.User != nil:
		return "The URL must not have a user or password."
	case strings.Contains(text, "#"):
		return "The URL must not have a fragment."
	case brokenEscape.MatchString(text):
		return "A % in the URL must be followed by two hexadecimal digits; write %25 for the sign itself."
	}
	return ""
}

// brokenEscape is a % that begins no percent-encoding (RFC 3986, section 2.1).
var brokenEscape = regexp.MustCompile(`%([^0-9A-Fa-f]|.?$|[0-9A-Fa-f][^0-9A-Fa-f])`)

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && 0 < port && port < 65_536
}
