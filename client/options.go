package client

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

func gather(options []Option) (settings, error) {
	var s settings
	for _, option := range options {
		option(&s)
	}
	return s, s.err
}

// IdempotencyKey sends this key with a submission, of a job, batch or webhook,
// in place of a random one: 1 to 255 visible ASCII characters. A program that
// keeps it can repeat the submission after it has died itself.
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
// example. Authorization cannot be set: that is WithKey's part.
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

// PreferWait asks the service to hold its answer back until there is news, for
// up to d: whole seconds, at most MaxWait.
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
