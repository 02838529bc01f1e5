package client

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Option changes one call.
type Option func(*settings)

type settings struct {
	header http.Header
	wait   time.Duration
	err    error
}

func (s *settings) set(name, value string) {
	if !fieldName(name) {
		s.err = fmt.Errorf("client: %q cannot be the name of a header", name)
		return
	}
	if !fieldValue(value) {
		s.err = fmt.Errorf("client: the value of %s has characters that a header cannot have", name)
		return
	}
	if s.header == nil {
		s.header = make(http.Header, 2)
	}
	s.header.Set(name, value)
}

func gather(options []Option) settings {
	var s settings
	for _, option := range options {
		option(&s)
	}
	return s
}

// IdempotencyKey sends this key with a request that creates or changes, in place
// of a random one if there is one: 1 to 255 visible ASCII characters, at least 32
// without credentials. A program that stores it can repeat the request after a
// crash of its own: the answer is the first one, and Replayed, without secrets.
func IdempotencyKey(key string) Option {
	return func(s *settings) {
		if key == "" {
			s.err = errors.New("client: the idempotency key is empty")
			return
		}
		s.set("Idempotency-Key", key)
	}
}

// CorrelationID sends X-Correlation-ID, which goes before the one of the
// request's body.
func CorrelationID(id string) Option {
	return func(s *settings) { s.set("X-Correlation-Id", id) }
}

// Header sends a header with the request: traceparent or Accept-Language, for
// example. Authorization cannot be set: see WithKey.
func Header(name, value string) Option {
	return func(s *settings) {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			s.err = errors.New("client: the key is set with Config.Key or WithKey")
			return
		}
		s.set(name, value)
	}
}

// MaxWait is the longest time for which the service holds an answer back.
const MaxWait = 30 * time.Second

// PreferWait asks the service to hold its answer back until the state changes,
// for up to d: whole seconds, at most MaxWait.
func PreferWait(d time.Duration) Option {
	return func(s *settings) {
		s.wait = min(d, MaxWait).Truncate(time.Second)
		if s.wait > 0 {
			s.set("Prefer", "wait="+strconv.Itoa(int(s.wait/time.Second)))
		}
	}
}

// IfNoneMatch asks for the answer only if its entity tag is another one:
// otherwise the error is ErrNotModified.
func IfNoneMatch(etag string) Option {
	return func(s *settings) {
		if etag != "" {
			s.set("If-None-Match", etag)
		}
	}
}

const tokenChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

// fieldName reports whether text can be the name of a header (RFC 9110, section
// 5.6.2).
func fieldName(text string) bool {
	return text != "" && strings.Trim(text, tokenChars) == ""
}

// fieldValue reports whether text can stand in a header without changing it.
func fieldValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
