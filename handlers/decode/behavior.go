package decode

import (
	"bytes"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// readWork reads what the params of a CUSTOM job say, and notes which params the
// work kind ignores. It comes last: the kind may stand after the params.
func (s *submission) readWork() {
	if s.req.Retry != nil && !s.says {
		s.req.AutoRetry = true
	}
	if s.err != nil || len(s.req.Params) == 0 {
		return
	}
	if s.req.WorkKind != job.Custom || !s.limits.TestBed {
		s.req.Warnings = ignoredParams(s.req.Params, "")
		return
	}
	b := behavior{decoder: newDecoder(s.req.Params), into: &job.Behavior{}}
	b.base, b.guess = s.paramsAt, s.guess
	b.objectOr([]member{{name: behaviorName, read: b.read}}, func(string) { b.tree() })
	s.req.Behavior, s.guess = b.into, b.guess
	s.req.Warnings = ignoredParams(s.req.Params, behaviorName)
	for _, v := range b.form {
		s.malformedAt(v.Pointer, v.Detail)
	}
	for _, v := range b.values {
		s.invalidAt(v.Pointer, v.Detail)
	}
	s.more += b.more
}

const (
	behaviorName = "behavior"
	maxWarnings  = 10 // about members by name
)

// ignoredParams gives a warning for each member of params but the used one, and
// for many one that counts the others. The pointers begin at the job's request.
func ignoredParams(params []byte, used string) (warnings []job.Violation) {
	d := jsontext.NewDecoder(bytes.NewBuffer(params))
	more := 0
	for _, err := d.ReadToken(); err == nil && d.PeekKind() == '"'; err = d.SkipValue() {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil {
			break
		}
		switch text := name.String(); {
		case text == used:
		case len(warnings) < maxWarnings && len(text) <= maxPointerBytes:
			warnings = append(warnings, job.Violation{Pointer: "/params/" + pointerEscapes.Replace(text), Detail: ignored})
		default:
			more++
		}
	}
	if more > 0 {
		warnings = append(warnings, job.Violation{Pointer: "/params", Detail: "And " + job.Grouped(more) + " more members: " + ignored})
	}
	return warnings
}

const ignored = "The work kind ignores this: it is stored and shown with the job, and changes nothing."

// behavior reads what a CUSTOM job does.
type behavior struct {
	*decoder
	into *job.Behavior
}

func (b *behavior) read() {
	if !b.begins('{', "an object") {
		return
	}
	to := b.into
	b.object([]member{
		{name: "seed", read: func() {
			const absent = -1
			if n := b.integer(0, job.MaxBehaviorSeed, absent); n != absent {
				seed := int64(n)
				to.Seed = &seed
			}
		}},
		{name: "duration", read: func() { to.Duration, _ = b.duration() }},
		{name: "jitter", read: func() { to.Jitter, _ = b.duration() }},
		{name: "begin_at", read: func() { to.BeginAt = b.share() }},
		{name: "steps", read: func() { to.Steps = b.integer(1, job.MaxBehaviorSteps, 0) }},
		{name: "failures", read: func() { b.list(job.MaxPlannedFailures, "failures", b.readFailure) }},
		{name: "result", read: b.readResult},
		{name: "emit", read: func() { b.list(job.MaxPlannedEvents, "events", b.readEvent) }},
		{name: "cpu", read: func() { to.CPU = b.share() }},
		{name: "memory_bytes", read: func() { to.MemoryBytes = b.integer(0, job.MaxBehaviorMemory, 0) }},
		{name: "io_bytes", read: func() { to.IOBytes = b.integer(0, job.MaxBehaviorIO, 0) }},
	})
}

// duration reads a duration as Go writes it, 0 if it is wrong; false if it is
// absent or wrong.
func (d *decoder) duration() (time.Duration, bool) {
	return d.span(0, 24*time.Hour, `This must be a duration from "0s" to "24h", such as "200ms", "1.5s" or "1m30s".`)
}

// maxSpanText is the length of a duration as it is written, in characters.
const maxSpanText = 64

// span reads a duration as Go writes it, 0 if it is wrong; false if it is absent or wrong.
func (d *decoder) span(least, most time.Duration, form string) (time.Duration, bool) {
	text, ok := d.text()
	if !ok {
		return 0, false
	}
	length, err := time.ParseDuration(text)
	if err != nil || utf8.RuneCountInString(text) > maxSpanText || length < least || length > most {
		d.invalid(form)
		return 0, false
	}
	return length, true
}

// share reads a number from 0 to 1.
func (d *decoder) share() float64 {
	if !d.begins('0', "a number") {
		return 0
	}
	n, err := strconv.ParseFloat(string(d.value()), 64)
	if d.err == nil && (err != nil || n < 0 || n > 1) {
		d.invalid("This must be a number from 0 to 1.")
		return 0
	}
	return n
}

// list reads an array of at most so many values.
func (d *decoder) list(most int, what string, item func()) {
	if !d.begins('[', "an array") {
		return
	}
	n := d.array(func(i int) {
		if i >= most {
			d.tree()
			return
		}
		item()
	})
	if n > most {
		d.invalid(fmt.Sprintf("There may be at most %d %s.", most, what))
	}
}

func (b *behavior) readFailure() {
	f := job.PlannedFailure{}
	if !b.begins('{', "an object") {
		return
	}
	b.object([]member{
		{name: "attempts", read: func() {
			b.list(job.MaxPlannedAttempt, "attempts", func() {
				if n := b.integer(1, job.MaxPlannedAttempt, 0); n > 0 {
					f.Attempts = append(f.Attempts, n)
				}
			})
		}},
		{name: "after", read: func() {
			if after, ok := b.duration(); ok {
				f.After = &after
			}
		}},
		{name: "problem", read: func() { b.readProblem(&f.Problem) }},
	})
	if len(f.Attempts) == 0 && b.err == nil && !b.faulty("/attempts") {
		b.malformedAt(b.pointer()+"/attempts", "This must name the attempts that fail, such as [1, 2].")
	}
	b.into.Failures = append(b.into.Failures, f)
}

// faulty reports whether something was found wrong with a member of the object
// read last, or in it.
func (b *behavior) faulty(name string) bool {
	at := b.pointer() + name
	found := func(v job.Violation) bool { return strings.HasPrefix(v.Pointer+"/", at+"/") }
	return slices.ContainsFunc(b.form, found) || slices.ContainsFunc(b.values, found)
}

func (b *behavior) readResult() {
	if !b.begins('{', "an object") {
		return
	}
	r := &b.into.Result
	b.object([]member{
		{name: "media_type", read: func() {
			r.MediaType = b.word(validMedia, "This must be a media type of at most 127 characters, such as text/plain; charset=utf-8.")
		}},
		{name: "size", read: func() {
			if n := b.integer(1, job.MaxResultBytes, 0); n > 0 {
				r.Size = &n
			}
		}},
		{name: "body", read: func() {
			if text, ok := b.text(); ok {
				r.Body = &text
				if len(text) > job.MaxResultBytes {
					b.invalid(fmt.Sprintf("A result may have at most %d bytes and this has %d.", job.MaxResultBytes, len(text)))
				}
			}
		}},
	})
	if r.Size != nil && r.Body != nil {
		b.malformed("A result has a size or a body, not both.")
	}
}

func validMedia(s string) bool {
	const most = 127
	media, _, err := mime.ParseMediaType(s)
	isASCII := !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
	return err == nil && len(s) <= most && isASCII && strings.Count(media, "/") == 1 && !strings.HasPrefix(media, "/") &&
		!strings.HasSuffix(media, "/") && !strings.Contains(media, "*")
}

func (b *behavior) readEvent() {
	if !b.begins('{', "an object") {
		return
	}
	e, named := job.PlannedEvent{}, false
	b.object([]member{
		{name: "name", read: func() { e.Name, named = b.eventName() }},
		{name: "data", read: func() {
			if !b.null() {
				e.Data = slices.Clone(b.tree())
			}
		}},
		{name: "after", read: func() { e.After, _ = b.duration() }},
	})
	b.require(named, "name")
	b.into.Emit = append(b.into.Emit, e)
}

// planned names the members of a problem that its own rules are for, and fixed
// those that belong to the job, or are another spelling of a planned one.
var (
	extensionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{2,63}$`)

	fixedMembers = map[string]string{
		"instance": "", "jobId": "", "jobStatus": "", "submittedAt": "", "completedAt": "", "correlationId": "", "attempt": "",
		"scenario": "", "language": "", "results": "",
		"processingStage": "stage", "retry_after": "retryAfter",
	}
)

func (b *behavior) readProblem(p *job.PlannedProblem) {
	if !b.begins('{', "an object") {
		return
	}
	plain := fmt.Sprintf("This must be a line of 1 to %d characters.", job.MaxPlannedText)
	var more extensions
	b.objectOr([]member{
		{name: "type", read: func() {
			p.Type = b.word(validType, "This must be a URI, such as https://example.com/problems/out-of-stock.")
		}},
		{name: "title", read: func() { p.Title = b.word(validLine, plain) }},
		{name: "status", read: func() { p.Status = b.integer(400, 599, 0) }},
		{name: "detail", read: func() { p.Detail = b.word(validLine, plain) }},
		{name: "code", read: func() { p.Code, _ = choose(b.decoder, "code of a failure", job.FailureCodes()) }},
		{name: "retryable", read: func() {
			if !b.null() {
				retryable := b.boolean()
				p.Retryable = &retryable
			}
		}},
		{name: "retryAfter", read: func() { p.RetryAfter = b.integer(1, job.MaxPlannedRetryAfter, 0) }},
		{name: "stage", read: func() { p.Stage, _ = choose(b.decoder, "stage", stageNames()) }},
	}, func(name string) { more.read(b, name) })
	p.Extensions = more.object(b)
}

// extensions are the members of a problem that are the client's own.
type extensions struct {
	text  []byte
	count int
}

func (e *extensions) read(b *behavior, name string) {
	other, fixed := fixedMembers[name]
	switch {
	case fixed && other != "":
		b.malformed("This member is called " + other + " here.")
	case fixed:
		b.malformed("This member is the job's own, and cannot be planned.")
	case !extensionName.MatchString(name):
		b.malformed("The name of an extension member must be a letter and 2 to 63 letters, digits and '_' (RFC 9457, section 3.2).")
	default:
		e.count++
		e.text = append(append(strconv.AppendQuote(append(e.text, ','), name), ':'), b.tree()...)
		return
	}
	b.tree()
}

// object gives the members as a JSON object, nil if there are none or too many.
func (e *extensions) object(b *behavior) []byte {
	switch {
	case e.count == 0 || b.err != nil:
		return nil
	case e.count > job.MaxExtensions || len(e.text) > job.MaxExtensionBytes:
		b.invalid(fmt.Sprintf("A problem may have at most %d extension members, and of at most %d bytes in all.",
			job.MaxExtensions, job.MaxExtensionBytes))
		return nil
	}
	e.text[0] = '{'
	return append(e.text, '}')
}

func validLine(s string) bool { return s != "" && isLine(s, job.MaxPlannedText) }

func validType(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && validLine(s) && !strings.ContainsFunc(s, unicode.IsSpace)
}

func stageNames() []job.Stage {
	names := make([]job.Stage, len(job.Stages))
	for i, s := range job.Stages {
		names[i] = s.Stage
	}
	return names
}
