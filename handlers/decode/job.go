package decode

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// submission reads a request for a job (section 8, submit job).
type submission struct {
	*decoder
	req      job.Request
	hasType  bool
	says     bool // whether it is retried by the service
	limits   Limits
	paramsAt string // pointer to the params, where there is a test bed
}

// Limits are those of the server for the work of jobs.
type Limits struct {
	MaxPayload int  // bytes of params or event data
	TestBed    bool // CUSTOM is a work kind
}

// submissions are those that read a request before, with their members.
var submissions = sync.Pool{New: func() any {
	s := &keyedSubmission{submission: submission{decoder: newDecoder(nil)}}
	s.known = append(s.members(), s.keyMember())
	return s
}}

// keyedSubmission is a submission that is used again and again.
type keyedSubmission struct {
	submission
	known []member
}

// Job reads the body of a request for a job. key is that of the header. An
// error is a body that cannot be read to its end. All else that is wrong is left
// in the request's Violations, so that the use case can add what it finds.
func Job(body []byte, key string, limits Limits) (job.Request, error) {
	s := submissions.Get().(*keyedSubmission)
	defer func() {
		s.reset(nil) // which is the caller's
		s.req = job.Request{}
		submissions.Put(s)
	}()
	s.reset(body)
	s.req, s.hasType, s.says, s.limits = job.Request{}, false, false, limits
	s.req.IdempotencyKey, s.req.Hash = s.keyed(key, s.known)
	s.require(s.hasType, "type")
	if s.err != nil {
		return job.Request{}, s.result()
	}
	s.readWork()
	s.req.Violations, s.req.Unlisted, s.req.Malformed = s.findings()
	return s.req, nil
}

// members are those of a job in any request, the idempotency key aside.
func (s *submission) members() []member {
	return []member{
		{name: "type", read: s.readType},
		{name: "work_kind", read: s.readKind},
		{name: "execution_at", read: func() { s.req.ExecutionAt, _ = s.time() }},
		{name: "callback", read: func() { s.req.Callback, _ = s.url() }},
		{name: "params", read: func() {
			if s.req.Params = s.payload(true); s.limits.TestBed {
				s.paramsAt = s.pointer()
			}
		}},
		{name: "auto_retry", read: func() {
			s.says = s.err == nil && s.json.PeekKind() != 'n'
			s.req.AutoRetry = s.boolean()
		}},
		{name: "retry", read: s.readRetry},
		{name: "event", read: s.readEvent},
		{name: "correlation_id", read: func() { s.req.CorrelationID = s.word(ValidCorrelation, "The id must be "+CorrelationForm) }},
	}
}

func (s *submission) readType() {
	text, ok := s.text()
	s.hasType = ok
	if s.req.Type = job.Type(text); ok && !s.req.Type.Valid() {
		s.invalid("There is no such type." + suggest(s.decoder, text, job.Types) + " The type must be " + OneOf(job.Types) + ".")
	}
}

func (s *submission) readKind() {
	text, ok := s.text()
	s.req.WorkKind = job.Kind(text)
	if !ok || s.req.WorkKind.Valid() || s.limits.TestBed && s.req.WorkKind == job.Custom {
		return
	}
	kinds := job.Kinds()
	if s.limits.TestBed {
		kinds = job.AllKinds()
	}
	s.invalid("There is no such work kind." + suggest(s.decoder, text, kinds) +
		" It must be " + OneOf(kinds) + ", or be left out to have one drawn.")
}

// payload reads JSON of the client's own, an object or anything, and gives a
// copy of it as sent; nil if it is absent or too large.
func (s *submission) payload(object bool) []byte {
	if object && !s.begins('{', "an object") || s.err != nil || s.null() {
		return nil
	}
	raw := s.tree()
	if len(raw) > s.limits.MaxPayload {
		s.invalid(fmt.Sprintf("This may have at most %d bytes and has %d.", s.limits.MaxPayload, len(raw)))
		return nil
	}
	return bytes.Clone(raw)
}

func (s *submission) readEvent() {
	if !s.begins('{', "an object") {
		return
	}
	event, named := &job.Emission{}, false
	s.object([]member{
		{name: "name", read: func() { event.Name, named = s.eventName() }},
		{name: "data", read: func() { event.Data = s.payload(false) }},
	})
	s.require(named, "name")
	s.req.Emit = event
}

// eventName reads the name of an event of the client's own; false if it is absent
// or not a string.
func (d *decoder) eventName() (name string, present bool) {
	if name, present = d.text(); present && !validName(name) {
		d.invalid("The name must be 1 to 128 " + wordForm)
	}
	return name, present
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
