package handlers

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// submission reads a request for a job (section 8, submit job).
type submission struct {
	*decoder
	req        job.Request
	at         jsontext.Pointer // of the request in the document
	maxPayload int
	members    [][]byte // `"name": value` as sent, without idempotency_key
}

// decodeSubmit reads the body of a request for a job. key is the one of the
// header. A wrong structure is an error; wrong values are left in Violations.
func decodeSubmit(body []byte, key string, maxPayload int) (job.Request, error) {
	s := &submission{decoder: newDecoder(body), maxPayload: maxPayload}
	hasType := false
	s.document(func(name string) bool {
		start := s.nameAt
		if !s.member(name, &hasType) {
			return false
		}
		if name != "idempotency_key" {
			s.members = append(s.members, body[start:s.json.InputOffset()])
		}
		return true
	})
	s.require(hasType, "/type")
	if err := s.result(); err != nil {
		return job.Request{}, err
	}
	s.req.IdempotencyKey = s.oneKey(s.req.IdempotencyKey, key)
	if s.req.IdempotencyKey != "" {
		s.req.Hash = canonicalHash(s.members)
	}
	s.req.Violations = s.values
	return s.req, nil
}

// canonicalHash is the SHA-256 of an object in canonical form: members sorted,
// white space and string escapes normalised, numbers as they were written.
func canonicalHash(members [][]byte) [32]byte {
	text := jsontext.Value("{" + string(bytes.Join(members, []byte(","))) + "}")
	_ = text.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // valid JSON
	return sha256.Sum256(text)
}

// oneKey joins the key of the body and that of the header.
func (d *decoder) oneKey(own, header string) string {
	if own != "" && header != "" && own != header {
		d.values = append(d.values, job.Violation{Pointer: "/idempotency_key", Detail: "The Idempotency-Key header has another key."})
	}
	return cmp.Or(own, header)
}

// member reads one member of the request.
func (s *submission) member(name string, hasType *bool) bool {
	switch name {
	case "type":
		*hasType = s.readType()
	case "work_kind":
		s.readKind()
	case "execution_at":
		s.readTime()
	case "callback":
		s.readCallback()
	case "params":
		s.req.Params = s.payload(true)
	case "auto_retry":
		s.req.AutoRetry = s.boolean()
	case "event":
		s.readEvent()
	case "idempotency_key":
		s.req.IdempotencyKey = s.key()
	case "correlation_id":
		s.req.CorrelationID = s.word(validCorrelation, "The id must be 1 to 256 characters of A-Z, a-z, 0-9, '.', '-' and '_'.")
	default:
		return false
	}
	return true
}

func (s *submission) readType() bool {
	text, ok := s.text()
	if s.req.Type = job.Type(text); ok && !s.req.Type.Valid() {
		s.invalid("The type must be EXECUTE, DEFERRED or EMIT_EVENT.")
	}
	return ok
}

func (s *submission) readKind() {
	text, ok := s.text()
	if s.req.WorkKind = job.Kind(text); ok && !s.req.WorkKind.Valid() {
		s.invalid("This work kind is not in the catalogue.")
	}
}

func (s *submission) readTime() {
	text, ok := s.text()
	if !ok {
		return
	}
	at, err := job.ParseTime(text)
	if err != nil {
		s.invalid("The time must be RFC 3339 in UTC, such as 2030-01-31T12:00:00Z.")
		return
	}
	s.req.ExecutionAt = &at
}

func (s *submission) readCallback() {
	text, ok := s.text()
	if !ok {
		return
	}
	if err := checkCallback(text); err != "" {
		s.invalid(err)
		return
	}
	s.req.Callback = text
}

// key reads an idempotency key.
func (d *decoder) key() string { return d.word(validKey, "The key must be "+keyForm) }

// word reads a string that must satisfy valid; "" if it is absent or does not.
func (d *decoder) word(valid func(string) bool, detail string) string {
	text, ok := d.text()
	if ok && !valid(text) {
		d.invalid(detail)
		return ""
	}
	return text
}

// payload reads JSON of the client's own, an object or anything, and gives a
// copy of it as sent; nil if it is absent or too large.
func (s *submission) payload(object bool) []byte {
	if s.err != nil || s.null() {
		return nil
	}
	if object && s.json.PeekKind() != '{' {
		s.tree()
		s.wrongType("an object")
		return nil
	}
	raw := s.tree()
	if len(raw) > s.maxPayload {
		s.invalid(fmt.Sprintf("This may have %d bytes and has %d.", s.maxPayload, len(raw)))
		return nil
	}
	return bytes.Clone(raw)
}

func (s *submission) readEvent() {
	if s.err != nil || s.null() {
		return
	}
	if s.json.PeekKind() != '{' {
		s.tree()
		s.wrongType("an object")
		return
	}
	event, named := &job.Emission{}, false
	s.object(func(name string) bool {
		switch name {
		case "name":
			event.Name, named = s.text()
			if named && !validEventName(event.Name) {
				s.invalid("The name must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '-' and '_'.")
			}
		case "data":
			event.Data = s.payload(false)
		default:
			return false
		}
		return true
	})
	s.require(named, s.at+"/event/name")
	s.req.Emit = event
}

func validEventName(name string) bool {
	const maxBytes = 128
	return 0 < len(name) && len(name) <= maxBytes && isWord(name)
}

// checkCallback says what is wrong with a callback URL, "" for nothing. Which
// addresses may be called is checked when they are dialled.
func checkCallback(text string) string {
	const maxBytes = 2048
	if len(text) > maxBytes {
		return fmt.Sprintf("The URL may have %d bytes.", maxBytes)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) || c == '\\' }) {
		return "The URL must not have spaces, control characters or backslashes."
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "This is not a URL."
	case u.Scheme != "http" && u.Scheme != "https":
		return "The URL must be absolute, http:// or https://."
	case u.Hostname() == "" || !validPort(u):
		return "The URL needs a host, and a port from 1 to 65535 if any."
	case u.User != nil:
		return "The URL must not have a user or password."
	case strings.Contains(text, "#"):
		return "The URL must not have a fragment."
	}
	return ""
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && 0 < port && port < 65_536
}
