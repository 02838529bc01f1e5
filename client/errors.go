package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotModified means that the resource has not changed since the entity tag in IfNoneMatch.
var ErrNotModified = errors.New("client: not modified")

// Problem is the problem document (RFC 9457) of a refused request. A failed job has an Outcome, not a Problem.
type Problem struct {
	ProblemDocument // Status is the HTTP status; a different status in the document is ignored.

	Method, URL string        // the URL has no query
	RetryAfter  time.Duration // time to wait before another request; 0: not given
	RequestID   string
	// Tries is the number of requests sent for the call. If Tries is over 1, an earlier request may have succeeded although the last one was
	// refused.
	Tries      int
	Extensions map[string]json.RawMessage // members that have no field in this struct
}

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
		if strings.Contains(p.Detail, v.Pointer+v.Parameter+": "+v.Detail) {
			continue
		}
		text.WriteString("; " + line(v.Pointer+v.Parameter) + " " + line(v.Detail))
	}
	if p.RequestID != "" {
		text.WriteString(" (request " + line(p.RequestID) + ")")
	}
	return text.String()
}

// Retryable reports whether the request may succeed later. Tries says how often the client has already tried it.
func (p *Problem) Retryable() bool {
	_, _, passing := transient(p)
	return passing
}

// Members of the wrong type are ignored (RFC 9457, section 3.1).
func (p *Problem) read(body []byte) error {
	var m members
	if err := json.Unmarshal(body, &m); err != nil || m == nil {
		return errors.New("not a JSON object")
	}
	m.fill(p)
	p.Extensions = m
	return nil
}

// NoAnswerError means that no complete response arrived. The service may have carried out the request. Err can be the context's error.
type NoAnswerError struct {
	Method, URL string // the URL has no query
	Tries       int
	Err         error
}

func (e *NoAnswerError) Error() string {
	tries := "tries"
	if e.Tries == 1 {
		tries = "try"
	}
	return fmt.Sprintf("no answer to %s %s after %d %s: %v", e.Method, e.URL, e.Tries, tries, e.Err)
}
func (e *NoAnswerError) Unwrap() error { return e.Err }

// UnexpectedError means that the response is not from ForgeRun, but for example from a proxy.
type UnexpectedError struct {
	Method, URL string // the URL has no query
	Status      int
	ContentType string
	RequestID   string
	RetryAfter  time.Duration
	Tries       int
	Reason      string
	Body        []byte // at most the first 1 KiB
}

func (e *UnexpectedError) Error() string {
	return fmt.Sprintf("unexpected answer to %s %s: status %d, %q: %s", e.Method, e.URL, e.Status, e.ContentType, e.Reason)
}

func (r *request) refusal(a *fullResponse) error {
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
		reason = "it redirects in a loop, or to another origin, which must not get the key"
	}
	err := r.unexpected(a, reason)
	err.RetryAfter = wait
	return err
}

func (r *request) lost(err error, tries int) error {
	return &NoAnswerError{Method: r.method, URL: r.url(), Tries: tries, Err: err}
}

// url omits the query, because its values may be private.
func (r *request) url() string { return r.base + r.path }

func (r *request) unexpected(a *fullResponse, reason string) *UnexpectedError {
	err := &UnexpectedError{
		Method: r.method, URL: r.url(), Status: a.status, Tries: a.tries, Reason: reason,
		ContentType: a.header.Get("Content-Type"), RequestID: a.requestID(),
	}
	if !r.secret {
		err.Body = a.body[:min(len(a.body), maxExcerpt)]
	}
	return err
}

// line replaces control characters, which could break a log or terminal.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, text)
}
