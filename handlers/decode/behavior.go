package decode

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// readWork reads what the params of a CUSTOM job say, and notes which params the
// work kind ignores. Its decoder has read the request to its end.
func readWork(d *decoder, r *job.Request) {
	if r.WorkKind != job.Custom || !d.limits.TestBed {
		r.Warnings = ignoredParams(r.Params, "")
		return
	}
	r.Behavior = &job.Behavior{}
	d.inside(r.Params, d.pointer()+"/params", func(d *decoder) {
		d.objectOr([]member{{behaviorName, optional, set(r.Behavior, readBehavior)}}, func(string) { d.tree() })
	})
	r.Warnings = ignoredParams(r.Params, behaviorName)
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

// Values of a behavior and what is in it, made once.
var (
	readSeed        = pointer(integer[int64](0, job.MaxBehaviorSeed))
	readSteps       = integer(1, job.MaxBehaviorSteps)
	readShare       = number(func(n float64) bool { return 0 <= n && n <= 1 }, "This must be a number from 0 to 1.")
	readMemory      = integer(0, job.MaxBehaviorMemory)
	readIO          = integer(0, job.MaxBehaviorIO)
	readFailures    = list(job.MaxPlannedFailures, "failures", readFailure)
	readEmitted     = list(job.MaxPlannedEvents, "events", readPlannedEvent)
	readAttempts    = list(job.MaxPlannedAttempt, "attempts", integer(1, job.MaxPlannedAttempt))
	readAfter       = pointer(readDuration)
	readLine        = word(validLine, fmt.Sprintf("This must be a line of 1 to %d characters.", job.MaxPlannedText))
	readProblemType = word(validType, "This must be a URI, such as https://example.com/problems/out-of-stock.")
	readStatus      = integer(400, 599)
	readRetryable   = pointer(readBool)
	readRetryAfter  = integer(1, job.MaxPlannedRetryAfter)
	readStage       = choice("stage", names(job.Stages, func(s job.StageSpec) job.Stage { return s.Stage }))
	readMediaType   = word(validMedia, "This must be a media type of at most 127 characters, such as text/plain; charset=utf-8.")
	readResultSize  = pointer(integer(1, job.MaxResultBytes))
	readResultBody  = pointer(checked(checkResultBody))
)

// readBehavior reads what a CUSTOM job does.
func readBehavior(d *decoder) (b job.Behavior, ok bool) {
	ok = d.object([]member{
		{"seed", optional, set(&b.Seed, readSeed)},
		{"duration", optional, set(&b.Duration, readDuration)},
		{"jitter", optional, set(&b.Jitter, readDuration)},
		{"begin_at", optional, set(&b.BeginAt, readShare)},
		{"steps", optional, set(&b.Steps, readSteps)},
		{"failures", optional, set(&b.Failures, readFailures)},
		{"result", optional, set(&b.Result, readResult)},
		{"emit", optional, set(&b.Emit, readEmitted)},
		{"cpu", optional, set(&b.CPU, readShare)},
		{"memory_bytes", optional, set(&b.MemoryBytes, readMemory)},
		{"io_bytes", optional, set(&b.IOBytes, readIO)},
	})
	return b, ok
}

func readFailure(d *decoder) (f job.PlannedFailure, ok bool) {
	wrong := false
	ok = d.object([]member{
		{"attempts", optional, func(d *decoder) {
			found := d.count()
			f.Attempts, _ = readAttempts(d)
			wrong = d.count() > found
		}},
		{"after", optional, set(&f.After, readAfter)},
		{"problem", optional, set(&f.Problem, readProblem)},
	})
	if ok && len(f.Attempts) == 0 && !wrong && d.err == nil {
		d.malformedAt(d.pointer()+"/attempts", "This must name the attempts that fail, such as [1, 2].")
	}
	return f, ok
}

func readPlannedEvent(d *decoder) (e job.PlannedEvent, ok bool) {
	ok = d.object(append(emissionMembers(&e.Emission), member{"after", optional, set(&e.After, readDuration)}))
	return e, ok
}

func readResult(d *decoder) (r job.PlannedResult, ok bool) {
	ok = d.object([]member{
		{"media_type", optional, set(&r.MediaType, readMediaType)},
		{"size", optional, set(&r.Size, readResultSize)},
		{"body", optional, set(&r.Body, readResultBody)},
	})
	if r.Size != nil && r.Body != nil {
		d.malformed("A result has a size or a body, not both.")
	}
	return r, ok
}

func checkResultBody(text string) string {
	return unless(len(text) <= job.MaxResultBytes,
		fmt.Sprintf("A result may have at most %d bytes and this has %d.", job.MaxResultBytes, len(text)))
}

// extensionName is that of a member that a problem may have besides its own, and fixedMembers
// are those that belong to the job, or are another spelling of a planned one.
var (
	extensionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{2,63}$`)

	fixedMembers = map[string]string{
		"instance": "", "jobId": "", "jobStatus": "", "submittedAt": "", "completedAt": "", "correlationId": "", "attempt": "",
		"scenario": "", "language": "", "results": "",
		"processingStage": "stage", "retry_after": "retryAfter",
	}
)

func readProblem(d *decoder) (p job.PlannedProblem, ok bool) {
	var more extensions
	ok = d.objectOr([]member{
		{"type", optional, set(&p.Type, readProblemType)},
		{"title", optional, set(&p.Title, readLine)},
		{"status", optional, set(&p.Status, readStatus)},
		{"detail", optional, set(&p.Detail, readLine)},
		{"code", optional, set(&p.Code, readFailureCode)},
		{"retryable", optional, set(&p.Retryable, readRetryable)},
		{"retryAfter", optional, set(&p.RetryAfter, readRetryAfter)},
		{"stage", optional, set(&p.Stage, readStage)},
	}, func(name string) { more.read(d, name) })
	p.Extensions = more.object(d)
	return p, ok
}

// extensions are the members of a problem that are the client's own.
type extensions struct {
	text  []byte
	count int
}

func (e *extensions) read(d *decoder, name string) {
	other, fixed := fixedMembers[name]
	switch {
	case fixed && other != "":
		d.malformed("This member is called " + other + " here.")
	case fixed:
		d.malformed("This member is the job's own, and cannot be planned.")
	case !extensionName.MatchString(name):
		d.malformed("The name of an extension member must be a letter and 2 to 63 letters, digits and '_' (RFC 9457, section 3.2).")
	default:
		e.count++
		e.text = append(append(strconv.AppendQuote(append(e.text, ','), name), ':'), d.tree()...)
		return
	}
	d.tree()
}

// object gives the members as a JSON object, nil if there are none or too many.
func (e *extensions) object(d *decoder) []byte {
	switch {
	case e.count == 0 || d.err != nil:
		return nil
	case e.count > job.MaxExtensions || len(e.text) > job.MaxExtensionBytes:
		d.invalid(fmt.Sprintf("A problem may have at most %d extension members, and of at most %d bytes in all.",
			job.MaxExtensions, job.MaxExtensionBytes))
		return nil
	}
	e.text[0] = '{'
	return append(e.text, '}')
}
