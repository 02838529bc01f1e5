package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRedirects is how many redirects are followed in one try.
const maxRedirects = 10

// roundTrip sends one request, and follows redirects to the same origin.
func (c *Client) roundTrip(ctx context.Context, r *request) (*http.Response, error) {
	target := r.url()
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	for followed := 0; ; followed++ {
		sent, err := c.request(ctx, r, target)
		if err != nil {
			return nil, err
		}
		response, err := c.transport.RoundTrip(sent)
		if err != nil || followed == maxRedirects {
			return response, err
		}
		if target = redirected(sent, response); target == "" {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, maxExcerpt) // so that the connection is kept
		_ = response.Body.Close()
	}
}

// redirected returns the address at which a redirect wants the request again, "" if there is none at the same origin: another one would
// get the key.
func redirected(sent *http.Request, response *http.Response) string {
	switch response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if sent.Method != http.MethodGet {
			return ""
		}
	default:
		return ""
	}
	to, err := sent.URL.Parse(response.Header.Get("Location"))
	if err != nil || to.Scheme != sent.URL.Scheme || to.Host != sent.URL.Host {
		return ""
	}
	return to.String()
}

// request makes one request. Its body has no GetBody, so that net/http does not repeat a submission by itself: MaxTries counts all
// requests.
func (c *Client) request(ctx context.Context, r *request, target string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if r.body != nil {
		body = io.NopCloser(bytes.NewReader(r.body))
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	sent.ContentLength = int64(len(r.body))
	sent.Header.Set("Accept", "application/json")
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(sent.Header, r.header)
	sent.Header.Set("Accept-Encoding", "identity") // digests are of the bytes as they are stored
	sent.Header.Set("User-Agent", c.userAgent)
	if c.session != "" {
		sent.Header.Set("ForgeRun-Session", c.session)
	}
	if auth := c.auth(); auth != "" {
		sent.Header.Set("Authorization", auth)
	}
	return sent, nil
}

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

// IdempotencyKey sends this key with a request that creates or changes, in place of a random one if there is one: 1 to 255 visible ASCII
// characters, at least 32 without credentials. A program that stores it can repeat the request after a crash of its own: the answer is
// the first one, and Replayed, without secrets.
func IdempotencyKey(key string) Option {
	return func(s *settings) {
		if key == "" {
			s.err = errors.New("client: the idempotency key is empty")
			return
		}
		s.set("Idempotency-Key", key)
	}
}

// CorrelationID sends X-Correlation-ID, which goes before the one of the request's body.
func CorrelationID(id string) Option {
	return func(s *settings) { s.set("X-Correlation-Id", id) }
}

// Header sends a header with the request: traceparent or Accept-Language, for example. Authorization cannot be set: see WithKey.
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

// PreferWait asks the service to hold its answer back until the state changes, for up to d: whole seconds, at most MaxWait.
func PreferWait(d time.Duration) Option {
	return func(s *settings) {
		s.wait = min(d, MaxWait).Truncate(time.Second)
		if s.wait > 0 {
			s.set("Prefer", "wait="+strconv.Itoa(int(s.wait/time.Second)))
		}
	}
}

// IfNoneMatch asks for the answer only if its entity tag is another one: otherwise the error is ErrNotModified.
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
