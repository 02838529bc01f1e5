package decode

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
)

// check says what is wrong with a text, "" if nothing.
type check func(text string) string

// unless makes a check of texts that must satisfy valid.
func unless(valid func(string) bool, wrong string) check {
	return func(text string) string {
		if valid(text) {
			return ""
		}
		return wrong
	}
}

// form is what a text must be. wrong says what is wrong with it; without wrong, the text has so many of certain characters.
type form struct {
	wrong      check
	fits       func(string) bool
	characters string
}

// forms are those of formats and of patterns.
var forms = map[string]form{
	"date-time": {wrong: unless(func(s string) bool { _, err := job.ParseTime(s); return err == nil }, "This must be "+TimeForm+".")},
	"uuid": {wrong: unless(func(s string) bool { id, err := job.ParseID(s); return err == nil && !id.IsZero() },
		"This must be an id, such as 0190a1b2-c3d4-7000-8000-000000000b01.")},
	"uri":        {wrong: unless(validType, "This must be a URI, such as https://example.com/problems/out-of-stock.")},
	"media-type": {wrong: unless(validMedia, "This must be a media type of at most 127 characters, such as text/plain; charset=utf-8.")},
	"cron": {wrong: unless(func(s string) bool { _, err := timetable.ParseCron(s); return err == nil },
		"This must be a cron expression of five fields (minute, hour, day of the month, month, day of the week), or six with seconds "+
			`before them, such as "30 4 * * MON-FRI". The time zone is a member of its own, and names such as @daily are not known.`)},
	"time-zone": {wrong: unless(func(s string) bool { _, err := timetable.Zone(s); return err == nil && s != "" },
		"This must be a time zone of the IANA database, such as Europe/Berlin or UTC.")},
	`^[!-~]([ -~]{0,198}[!-~])?$`:                            {wrong: unless(verdict.ValidLabel, labelForm)},
	`^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\#/?@]+([/?][^\s\\#]*)?$`: {wrong: checkURL},
	"^[A-Za-z0-9._-]+$":                                      {fits: func(s string) bool { return isWord(s, math.MaxInt) }, characters: strings.TrimSuffix(wordForm, ".")},
	"^[!-~]+$":                                               {fits: func(s string) bool { return isASCII(s, '!') }, characters: "visible ASCII characters"},
	"^[ -~]+$":                                               {fits: func(s string) bool { return isASCII(s, ' ') }, characters: "printable ASCII characters"},
	`^[^\x00-\x1f\x7f-\x9f]*$`:                               {fits: func(s string) bool { return isLine(s, math.MaxInt) }, characters: "characters in one line"},
}

// form returns what the texts of a schema must be.
func (s *schema) textForm() form {
	if s.Longest != "" {
		return form{wrong: s.duration()}
	}
	name := cmp.Or(s.Format, s.Pattern)
	if f, known := forms[name]; known || name == "" {
		return f
	}
	panic("no check of texts for " + name) // tests read all schemas
}

// duration returns a check of durations as Go writes them.
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
