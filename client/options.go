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

const maxRedirects = 10

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
		_, _ = io.CopyN(io.Discard, response.Body, maxExcerpt) // read the body, so that the connection can be reused
		_ = response.Body.Close()
	}
}

// redirected returns the address to send the request to again, or "" if it must not be sent again. It never returns another origin,
// because the request has the API key.
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

// request builds the HTTP request. GetBody stays nil: with it, net/http would repeat requests on its own.
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
	sent.Header.Set("Accept-Encoding", "identity") // no compression, because the service computes digests of the uncompressed result
	sent.Header.Set("User-Agent", c.userAgent)
	if c.session != "" {
		sent.Header.Set("ForgeRun-Session", c.session)
	}
	if auth := c.auth(); auth != "" {
		sent.Header.Set("Authorization", auth)
	}
	return sent, nil
}

// An Option modifies one call.
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

// IdempotencyKey sets the request's idempotency key instead of a random one. A key has 1 to 255 visible ASCII characters. A request
// without credentials needs a key of at least 32 characters. A program that stores the key can repeat the request after a crash. The
// service then returns the first response again, without secrets, and Meta.Replayed is true.
func IdempotencyKey(key string) Option {
	return func(s *settings) {
		if key == "" {
			s.err = errors.New("client: the idempotency key is empty")
			return
		}
		s.set("Idempotency-Key", key)
	}
}

// CorrelationID sets X-Correlation-ID, which overrides the correlation id in the body.
func CorrelationID(id string) Option {
	return func(s *settings) { s.set("X-Correlation-Id", id) }
}

// Header sets a header of the request, such as traceparent or Accept-Language. It cannot set Authorization: see WithKey.
func Header(name, value string) Option {
	return func(s *settings) {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			s.err = errors.New("client: the header Authorization cannot be set: pass the key in Config.Key or WithKey")
			return
		}
		s.set(name, value)
	}
}

// MaxWait is the longest time that the service delays a response.
const MaxWait = 30 * time.Second

// PreferWait asks the service to delay its response until the state changes, but at most for `d`. Longer waits are limited to MaxWait;
// fractions of a second are dropped.
func PreferWait(d time.Duration) Option {
	return func(s *settings) {
		s.wait = min(d, MaxWait).Truncate(time.Second)
		if s.wait > 0 {
			s.set("Prefer", "wait="+strconv.Itoa(int(s.wait/time.Second)))
		}
	}
}

// IfNoneMatch makes the call return ErrNotModified if the entity tag is still the same.
func IfNoneMatch(etag string) Option {
	return func(s *settings) {
		if etag != "" {
			s.set("If-None-Match", etag)
		}
	}
}

const tokenChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

// fieldName reports whether text is a valid header name (RFC 9110, section 5.6.2).
func fieldName(text string) bool {
	return text != "" && strings.Trim(text, tokenChars) == ""
}

// fieldValue reports whether text can be sent unchanged as the value of a header.
func fieldValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}
