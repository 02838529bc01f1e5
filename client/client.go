//go:generate go run -C ../tools ./apitypes ../client/types.yaml

// Package client is the Go client of ForgeRun: the HTTP API but for ranges of results, and the client's part of
// draft-ratnawat-httpapi-async-problem-details.
//
// A Client is safe for use by several goroutines. Each call takes a context and returns a typed value or an error, which is a *Problem
// (the service's own answer), a *NoAnswerError (no complete answer came), an *UnexpectedError (an answer that is not ForgeRun's) or the
// context's error.
//
// Requests that are safe to repeat are repeated: those that read, those that delete and cancel, and submissions, which get an idempotency
// key of their own when the caller gives none. Job and webhook ids are opaque.
//
// The package imports the standard library and a parser of structured fields, and nothing of the service: what it knows of ForgeRun is
// what the API's documents say.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says how to reach a ForgeRun service. Only URL is required. It prints without Key, but fmt cannot call the methods of a Config
// in an unexported field of a struct: keep the Client there.
type Config struct {
	URL string // base address, with or without /v1
	Key string // API key; "" for public calls
	// HTTP is the client whose Transport and Timeout are used; nil: one of its own. Redirects are followed to the same origin alone,
	// cookies not kept.
	HTTP      *http.Client
	UserAgent string        // "": forgerun-go
	Session   string        // label of the test bed's session that requests belong to; "": of the one without. See WithSession.
	MaxTries  int           // of one request; 0: 5; 1: never repeated
	Timeout   time.Duration // of one try, without the time that PreferWait adds; 0: 30 s; negative: none. Streams have none.
	Logger    *slog.Logger  // nil: none

	// Tests set these so that they need not wait.
	Now   func() time.Time                                          // nil: time.Now
	Sleep func(ctx context.Context, wait time.Duration) (err error) // nil: waits, or ends with the context's error
	Rand  func() float64                                            // nil: math/rand; in [0, 1)
}

const (
	defaultTries   = 5
	defaultTimeout = 30 * time.Second
)

// A Client sends requests to one service with one API key.
type Client struct {
	transport http.RoundTripper
	base      string        // without /v1
	auth      func() string // value of Authorization; a function, since fmt prints any other unexported field
	userAgent string
	session   string
	maxTries  int
	timeout   time.Duration
	stall     time.Duration // how long a stream may be silent
	log       *slog.Logger
	now       func() time.Time
	sleep     func(context.Context, time.Duration) error
	rand      func() float64
	err       error // what every call returns
}

// New makes a client. It does not connect: an error is one of the configuration.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("client: the URL cannot be read; it may look like https://forgerun.example.com")
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("client: the URL must begin with http:// or https:// and a host, not %q", base.Redacted())
	}
	if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("client: the URL must not have a user, a query or a fragment")
	}
	if !fieldValue(cfg.UserAgent) || !fieldValue(cfg.Session) {
		return nil, errors.New("client: UserAgent or Session has characters that a header cannot have")
	}
	if cfg.MaxTries < 0 {
		return nil, fmt.Errorf("client: MaxTries is %d; it must not be negative", cfg.MaxTries)
	}
	prefix := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(base.EscapedPath(), "/"), "/v1"), "/")
	if cfg.Timeout == 0 && cfg.HTTP != nil {
		cfg.Timeout = max(0, cfg.HTTP.Timeout)
	}
	c := &Client{
		transport: transportOf(cfg.HTTP),
		base:      (&url.URL{Scheme: base.Scheme, Host: base.Host}).String() + prefix,
		userAgent: cmp.Or(cfg.UserAgent, "forgerun-go"),
		session:   cfg.Session,
		maxTries:  cmp.Or(cfg.MaxTries, defaultTries),
		timeout:   cmp.Or(cfg.Timeout, defaultTimeout),
		stall:     maxSilence,
		log:       cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		now:       cfg.Now,
		sleep:     cfg.Sleep,
		rand:      cfg.Rand,
	}
	if c.setKey(cfg.Key); c.err != nil {
		return nil, c.err
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.sleep == nil {
		c.sleep = sleep
	}
	if c.rand == nil {
		c.rand = rand.Float64
	}
	return c, nil
}

// WithKey gives a client that sends another API key over the same connections; "" for none. If the key has characters that a header
// cannot have, every call of that client returns an error.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.setKey(key)
	return &other
}

func (c *Client) setKey(key string) {
	c.err = nil
	if !fieldValue(key) {
		c.err = errors.New("client: the key has characters that a header cannot have")
	}
	var value string
	if key != "" {
		value = "Bearer " + key
	}
	c.auth = func() string { return value }
}

// transportOf gives the transport of single requests. An http.Client above it would carry the key to other ports of a host, too.
func transportOf(given *http.Client) http.RoundTripper {
	if given != nil {
		return cmp.Or(given.Transport, http.DefaultTransport)
	}
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // the program has replaced it
	}
	transport := standard.Clone()
	transport.MaxIdleConnsPerHost = 100 // the default of 2 would close most connections of a busy client
	return transport
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Health asks whether the process answers at all.
func (c *Client) Health(ctx context.Context) error {
	_, err := fetch[Readiness](ctx, c, &request{method: http.MethodGet, path: "/healthz"})
	return err
}

// Ready asks once whether the service can do its work, and what it checked. A service that cannot is an answer, not an error.
func (c *Client) Ready(ctx context.Context) (*Readiness, error) {
	readiness, err := fetch[Readiness](ctx, c, &request{method: http.MethodGet, path: "/readyz", repeat: never})
	if problem, ok := errors.AsType[*Problem](err); ok && problem.Status == http.StatusServiceUnavailable {
		readiness, err = &Readiness{Status: "unavailable"}, nil
		members(problem.Extensions).take("checks", &readiness.Checks)
	}
	return readiness, err
}

// Keys and secrets are kept out of logs: the types that have one print without it, whatever the verb, and log/slog does the same with
// each of them that it gets as a value of its own. JSON has them.

// String says where requests go.
func (c *Client) String() string { return "client of " + c.base }

// Format writes String for every verb.
func (c *Client) Format(f fmt.State, _ rune) { format(f, c) }

// String says where requests go.
func (c Config) String() string { return "configuration of a client of " + withoutUser(c.URL) }

// Format writes String for every verb.
func (c Config) Format(f fmt.State, _ rune) { format(f, c) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func format(f fmt.State, s fmt.Stringer) { _, _ = f.Write([]byte(s.String())) }

// withoutUser leaves out the part of a URL that can have a password.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	u.User = nil
	return u.String()
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
