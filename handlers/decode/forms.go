package decode

import (
	"cmp"
	"fmt"
	"math"
	"mime"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
)

// check describes the mistake in a text, or returns "".
type check func(text string) string

func unless(valid func(string) bool, wrong string) check {
	return func(text string) string {
		if valid(text) {
			return ""
		}
		return wrong
	}
}

// form is the required form of a text. Either `wrong` is set, or both `fits` and `characters`.
type form struct {
	wrong      check
	fits       func(string) bool // reports whether a text is valid
	characters string            // description of the allowed characters
}

// The keys are the formats and patterns that the schemas use.
var forms = map[string]form{
	"date-time": {wrong: unless(func(s string) bool { _, err := job.ParseTime(s); return err == nil }, "This must be "+TimeForm+".")},
	"uuid": {wrong: unless(func(s string) bool { id, err := job.ParseID(s); return err == nil && !id.IsZero() },
		"This must be an id, such as 0190a1b2-c3d4-7000-8000-000000000b01.")},
	"uri":        {wrong: unless(validType, "This must be a URI, such as https://example.com/problems/out-of-stock.")},
	"media-type": {wrong: unless(validMedia, "This must be a media type of at most 127 characters, such as text/plain; charset=utf-8.")},
	"cron": {wrong: unless(func(s string) bool { _, err := timetable.ParseCron(s); return err == nil },
		"This must be a cron expression of five fields (minute, hour, day of the month, month, day of the week), or six with seconds "+
			`before them, such as "30 4 * * MON-FRI". The time zone is a separate member, and names such as @daily are not known.`)},
	"time-zone": {wrong: unless(func(s string) bool { _, err := timetable.Zone(s); return err == nil && s != "" },
		"This must be a time zone of the IANA database, such as Europe/Berlin or UTC.")},
	// The checks of labels and URLs are stricter than their patterns.
	`^[!-~]([ -~]{0,198}[!-~])?$`:                            {wrong: unless(verdict.ValidLabel, labelForm)},
	`^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\#/?@]+([/?][^\s\\#]*)?$`: {wrong: checkURL},
	// Errors about these patterns describe the allowed characters in words.
	"^[A-Za-z0-9._-]+$": {fits: func(s string) bool { return isWord(s, math.MaxInt) }, characters: strings.TrimSuffix(wordForm, ".")},
	"^[!-~]+$":          {fits: func(s string) bool { return isASCII(s, '!') }, characters: "visible ASCII characters"},
	"^[ -~]+$":          {fits: func(s string) bool { return isASCII(s, ' ') }, characters: "printable ASCII characters"},
	`^[^\x00-\x1f\x7f-\x9f]*$`: {fits: func(s string) bool { return isLine(s, math.MaxInt) },
		characters: "characters in one line"},
}

func (s *schema) textForm() form {
	if s.Longest != "" {
		return form{wrong: s.duration()}
	}
	name := cmp.Or(s.Format, s.Pattern)
	if f, known := forms[name]; known || name == "" {
		return f
	}
	panic("no check of texts for " + name) // does not happen: a test reads all schemas
}

func (s *schema) duration() check {
	const maxText = 64 // characters
	least, _ := time.ParseDuration(cmp.Or(s.Shortest, "0s"))
	most, _ := time.ParseDuration(s.Longest)
	step, _ := time.ParseDuration(cmp.Or(s.Step, "1ns"))
	steps := map[bool]string{true: "in whole milliseconds "}[step == time.Millisecond]
	return unless(func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && utf8.RuneCountInString(s) <= maxText && least <= d && d <= most && d%step == 0
	}, fmt.Sprintf(`This must be a duration %sfrom "%s" to "%s", such as "200ms", "1.5s" or "1m30s".`, steps, cmp.Or(s.Shortest, "0s"),
		s.Longest))
}

const maxKeyBytes = 255

// MaxCorrelationBytes is the maximum length of a correlation id (async-problem-details, section 9.2).
const MaxCorrelationBytes = 256

// Descriptions of valid values, for error messages.
const (
	KeyForm         = "1 to 255 visible ASCII characters."
	TimeForm        = "a time in RFC 3339 in UTC, such as 2030-01-31T12:00:00Z"
	CorrelationForm = "1 to 256 " + wordForm
	wordForm        = "characters of A-Z, a-z, 0-9, '.', '-' and '_'."
)

// ValidKey reports whether an idempotency key matches KeyForm.
func ValidKey(key string) bool {
	return 0 < len(key) && len(key) <= maxKeyBytes && isASCII(key, '!')
}

func isASCII(s string, from byte) bool {
	for i := range len(s) {
		if s[i] < from || s[i] > '~' {
			return false
		}
	}
	return true
}

// ValidCorrelation reports whether s is a valid correlation id.
func ValidCorrelation(s string) bool { return isWord(s, MaxCorrelationBytes) }

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

// isLine reports whether s has at most `limit` characters, and no line breaks or invisible characters.
func isLine(s string, limit int) bool {
	const replaced = 3 // PlainText may replace a byte of s by U+FFFD, which has this many bytes
	return utf8.RuneCountInString(s) <= limit && job.PlainText(s, replaced*len(s)) == s
}

// OneOf returns a text such as "one of A, B, C".
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

// checkURL does not check the host's IP address, because the dialer checks it.
func checkURL(text string) string {
	const most = 2048
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Sprintf("The URL may have at most %d characters, but has %d.", most, n)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) || c == '\\' }) {
		return "The URL must not contain spaces, control characters or backslashes."
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

// brokenEscape matches a % that does not start a percent-encoding (RFC 3986, section 2.1).
var brokenEscape = regexp.MustCompile(`%([^0-9A-Fa-f]|.?$|[0-9A-Fa-f][^0-9A-Fa-f])`)

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && 0 < port && port < 65_536
}

// No name in the API is longer than maxGuessBytes. Longer texts get no suggestion.
const maxGuessBytes = 40

// Nearest returns the name in `known` that is most similar to `text`, or "" if no name is similar enough. It ignores case, and treats
// hyphens as underscores.
func Nearest[T ~string](text string, known []T) (nearest T) {
	if text == "" || len(text) > maxGuessBytes {
		return nearest
	}
	fold := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
	least := 1 + min(3, (len(text)+1)/3) // a name is similar if it needs fewer edits than this
	for _, name := range known {
		if n := distance(fold(text), fold(string(name)), least); n < least {
			nearest, least = name, n
		}
	}
	return nearest
}

// DidYouMean returns a question with the nearest name, such as " Did you mean x?", or "".
func DidYouMean[T ~string](text string, known []T) string {
	if name := Nearest(text, known); name != "" {
		return " Did you mean " + string(name) + "?"
	}
	return ""
}

// distance returns the number of edits to turn a into b: inserting, deleting or replacing a byte, or swapping two neighbors. It returns
// `limit` if the lengths differ by at least `limit`, or if a text is longer than maxGuessBytes.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || max(len(a), len(b)) > maxGuessBytes {
		return limit
	}
	edits := make([][maxGuessBytes + 1]int, len(a)+1) // edits[i][j] is the distance between a[:i] and b[:j]
	for i := 0; i <= len(a); i++ {
		for j := 0; j <= len(b); j++ {
			if edits[i][j] = max(i, j); min(i, j) == 0 {
				continue
			}
			edits[i][j] = 1 + min(edits[i-1][j], edits[i][j-1], edits[i-1][j-1])
			if a[i-1] == b[j-1] {
				edits[i][j] = min(edits[i][j], edits[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				edits[i][j] = min(edits[i][j], 1+edits[i-2][j-2])
			}
		}
	}
	return edits[len(a)][len(b)]
}
