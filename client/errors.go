package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotModified answers IfNoneMatch when nothing has changed.
var ErrNotModified = errors.New("client: not modified")

// Problem is a problem document (RFC 9457) that the service answered a request with. It is not the failure of a job: that is an Outcome.
type Problem struct {
	ProblemDocument // with the status of the HTTP answer, whatever the document says

	Method, URL string        // of the request, without its query
	RetryAfter  time.Duration // the header: when to send the request again; 0 for none
	RequestID   string
	// Tries is how many requests were sent for the call. With more than one, an earlier one, whose answer was lost, may have caused this
	// answer.
	Tries      int
	Extensions map[string]json.RawMessage // members that have no field here
}

// Error says what was wrong, in one line.
func (p *Problem) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "forgerun answered %d", p.Status)
	if p.Method != "" {
		fmt.Fprintf(&text, " to %s %s", p.Method, p.URL)
	}
	for _, part := range []string{p.Code, p.Title, p.Detail} {
		if part != "" {
			text.WriteString(": " + line(part))
		}
	}
	for _, v := range p.Violations {
		text.WriteString("; " + line(v.Pointer+v.Parameter) + " " + line(v.Detail))
	}
	if p.RequestID != "" {
		text.WriteString(" (request " + line(p.RequestID) + ")")
	}
	return text.String()
}

// Retryable reports whether the same request may be answered otherwise later. It was sent as often as Config.MaxTries says.
func (p *Problem) Retryable() bool {
	_, passing := transient(p)
	return passing
}

// read fills p from a problem document. A member of the wrong type is treated as absent (RFC 9457, section 3.1).
func (p *Problem) read(body []byte) error {
	var m members
	if err := json.Unmarshal(body, &m); err != nil || m == nil {
		return errors.New("not a JSON object")
	}
	m.fill(p)
	p.Extensions = m
	return nil
}

// NoAnswerError says that no complete answer came. What the request was to do may have been done or not. Err can be the context's error.
type NoAnswerError struct {
	Method, URL string // of the request, without its query
	Tries       int    // requests that were sent
	Err         error
}

// Error names the request and the reason.
func (e *NoAnswerError) Error() string {
	tries := "tries"
	if e.Tries == 1 {
		tries = "try"
	}
	return fmt.Sprintf("no answer to %s %s after %d %s: %v", e.Method, e.URL, e.Tries, tries, e.Err)
}

// Unwrap gives the reason.
func (e *NoAnswerError) Unwrap() error { return e.Err }

// UnexpectedError is an answer that ForgeRun does not give: of something between it and the client, or of another service.
type UnexpectedError struct {
	Method, URL string // of the request, without its query
	Status      int
	ContentType string
	RequestID   string
	RetryAfter  time.Duration
	Tries       int
	Reason      string
	Body        []byte // up to 1 KiB of its beginning
}

// Error names the request, the answer's status and what is wrong with it.
func (e *UnexpectedError) Error() string {
	return fmt.Sprintf("unexpected answer to %s %s: status %d, %q: %s", e.Method, e.URL, e.Status, e.ContentType, e.Reason)
}

// refusal makes an error of an answer that is not 2xx.
func (r *request) refusal(a *answer) error {
	wait := retryAfter(a.header, a.received)
	if a.status >= 400 && isJSON(a.header) {
		p := &Problem{Method: r.method, URL: r.url(), RetryAfter: wait, Tries: a.tries, RequestID: a.requestID()}
		if err := p.read(a.body); err == nil {
			p.Status = a.status
			return p
		}
	}
	reason := "it is not a problem document"
	if a.status >= 300 && a.status <= 399 {
		reason = "it redirects to another origin, which must not get the key, or in a circle"
	}
	err := r.unexpected(a, reason)
	err.RetryAfter = wait
	return err
}

func (r *request) lost(err error, tries int) error {
	return &NoAnswerError{Method: r.method, URL: r.url(), Tries: tries, Err: err}
}

// url is where the request goes, without its query, which can have values of the caller's.
func (r *request) url() string { return r.base + r.path }

// unexpected makes the error of an answer that ForgeRun does not give.
func (r *request) unexpected(a *answer, reason string) *UnexpectedError {
	err := &UnexpectedError{
		Method: r.method, URL: r.url(), Status: a.status, Tries: a.tries, Reason: reason,
		ContentType: a.header.Get("Content-Type"), RequestID: a.requestID(),
	}
	if !r.secret {
		err.Body = a.body[:min(len(a.body), maxExcerpt)]
	}
	return err
}

// line replaces control characters, which would break or colour a log or terminal.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, text)
}
