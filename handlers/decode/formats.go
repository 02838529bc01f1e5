package decode

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
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

// formats are those that schemas and amended name.
var formats = map[string]check{
	"date-time": unless(func(s string) bool { _, err := job.ParseTime(s); return err == nil }, "This must be "+TimeForm+"."),
	"uuid": unless(func(s string) bool { id, err := job.ParseID(s); return err == nil && !id.IsZero() },
		"This must be an id, such as 0190a1b2-c3d4-7000-8000-000000000b01."),
	"uri":        unless(validType, "This must be a URI, such as https://example.com/problems/out-of-stock."),
	"media-type": unless(validMedia, "This must be a media type of at most 127 characters, such as text/plain; charset=utf-8."),
	"cron": unless(func(s string) bool { _, err := timetable.ParseCron(s); return err == nil },
		"This must be a cron expression of five fields (minute, hour, day of the month, month, day of the week), or six with seconds "+
			`before them, such as "30 4 * * MON-FRI". The time zone is a member of its own, and names such as @daily are not known.`),
	"time-zone": unless(func(s string) bool { _, err := timetable.Zone(s); return err == nil && s != "" },
		"This must be a time zone of the IANA database, such as Europe/Berlin or UTC."),
	"interval": milliseconds(job.MinInterval, job.MaxInterval),
	"jitter":   milliseconds(0, job.MaxScheduleJitter),
	"advance":  span(0, math.MaxInt64, `This must be a duration of not less than "0s", such as "90s", "25h" or "720h30m".`),
	"window":   lengthUpTo(fault.MaxFor),
	"delay":    lengthUpTo(fault.MaxDelay),
	"refuse":   lengthUpTo(fault.MaxRefuse),
	"name":     unless(func(s string) bool { return isLine(s, maxClientName) }, "It must be a line of at most 100 characters."),
	"result": func(s string) string {
		if len(s) <= job.MaxResultBytes {
			return ""
		}
		return fmt.Sprintf("A result may have at most %d bytes and this has %d.", job.MaxResultBytes, len(s))
	},
}

// maxClientName is the length of a client's name, in characters.
const maxClientName = 100

// maxSpanText is the length of a duration as it is written, in characters.
const maxSpanText = 64

// span is for durations as Go writes them.
func span(least, most time.Duration, form string) check {
	return unless(func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && utf8.RuneCountInString(s) <= maxSpanText && least <= d && d <= most
	}, form)
}

// lengthUpTo is for lengths of time such as "1.5s", up to a longest one.
func lengthUpTo(most time.Duration) check {
	return span(1, most, "This must be a length of time such as 250ms or 1.5s, up to "+most.String()+".")
}

// milliseconds is for durations in whole milliseconds.
func milliseconds(least, most time.Duration) check {
	form := fmt.Sprintf(`This must be a duration in whole milliseconds from "%s" to "%s", such as "90s" or "1h30m".`, least,
		strings.TrimSuffix(most.String(), "0m0s"))
	within := span(least, most, form)
	return func(s string) string {
		if d, _ := time.ParseDuration(s); d%time.Millisecond != 0 {
			return form
		}
		return within(s)
	}
}

// pattern replaces the regular expression of a schema: it is faster, or says more.
type pattern struct {
	text       string
	match      func(string) bool
	characters string // what they are
	wrong      check  // in place of the other two
}

// String returns the regular expression.
func (p pattern) String() string { return p.text }

// MatchString reports whether a text has the pattern.
func (p pattern) MatchString(text string) bool {
	if p.wrong != nil {
		return p.wrong(text) == ""
	}
	return p.match(text)
}

func compilePattern(text string) (jsonschema.Regexp, error) {
	if p, ok := patterns[text]; ok {
		p.text = text
		return p, nil
	}
	return regexp.Compile(text)
}

// patterns are the regular expressions that several schemas have.
var patterns = map[string]pattern{
	"^[A-Za-z0-9._-]+$": {match: func(s string) bool { return isWord(s, math.MaxInt) }, characters: strings.TrimSuffix(wordForm, ".")},
	"^[!-~]+$":          {match: func(s string) bool { return isASCII(s, '!') }, characters: "visible ASCII characters"},
	"^[ -~]+$":          {match: func(s string) bool { return isASCII(s, ' ') }, characters: "printable ASCII characters"},
	`^[^\x00-\x1f\x7f-\x9f]*$`: {match: func(s string) bool { return isLine(s, math.MaxInt) },
		characters: "characters in one line"},
	`^[!-~]([ -~]{0,198}[!-~])?$`:                            {wrong: unless(verdict.ValidLabel, labelForm)},
	`^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\#/?@]+([/?][^\s\\#]*)?$`: {wrong: checkURL},
	`^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`: {wrong: span(0, 24*time.Hour,
		`This must be a duration from "0s" to "24h", such as "200ms", "1.5s" or "1m30s".`)},
}

// amended are keywords of schemas that differ from the document's, for what only a function can check.
var amended = map[string]map[string]any{
	"Subscription":              {note: ". Progress, job.progress, is shown in event streams only"},
	"WorkKind":                  {note: kindNote},
	"ScheduleRequest.cron":      {"format": "cron"},
	"SchedulePatch.cron":        {"format": "cron"},
	"ScheduleRequest.time_zone": {"format": "time-zone"},
	"SchedulePatch.time_zone":   {"format": "time-zone"},
	"ScheduleRequest.interval":  {"format": "interval"},
	"SchedulePatch.interval":    {"format": "interval"},
	"ScheduleRequest.jitter":    {"format": "jitter"},
	"SchedulePatch.jitter":      {"format": "jitter"},
	"ClockMove.advance":         {"format": "advance"},
	"FaultMatch.for":            {"format": "window"},
	"FaultEffect.delay":         {"format": "delay"},
	"FaultEffect.refuse":        {"format": "refuse"},
	"PlannedResult.media_type":  {"format": "media-type"},
	"PlannedResult.body":        {"format": "result"},
	"ClientName.name":           {"format": "name"},
	"SinceRequest.cursor":       {"pattern": nil, "maxLength": nil},               // the cursor's reader refuses it
	"BatchRequest.jobs":         {"items": nil, "minItems": nil, "maxItems": nil}, // Batch checks them
	"RetryPolicy.max_attempts":  {"maximum": json.Number("9007199254740992")},     // the use case knows the limit
	"BatchItemRequest.idempotency_key": never("An item has no key of its own. Give one for the whole batch, beside jobs or in the " +
		"Idempotency-Key header."),
	"ScheduledJob.idempotency_key": never("The runs of a schedule have no idempotency key: each due time has one job."),
	"ScheduledJob.execution_at":    never("The schedule says when its jobs run."),
}

const kindNote = ", or be left out to have one drawn"

// note is how the sentence about an enumeration ends. Members with the note hidden are not listed.
const (
	note   = "x-note"
	hidden = "hidden"
)

// never is for a member that is known only to say why it may not be there.
func never(why string) map[string]any {
	return map[string]any{"type": "null", "description": why, note: hidden}
}

// formLists are the bounds of arrays that belong to the form of a body.
var formLists = map[string]bool{
	"FaultRules.MaxItems":           true,
	"FixturesRequest.jobs.MaxItems": true, "PlannedFailure.attempts.MinItems": true,
}
