package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config tells how to reach a ForgeRun service. Only URL is required. It prints
// without Key, but fmt cannot know that of a Config in an unexported field of a
// struct: keep the Client there.
type Config struct {
	URL       string        // base address, with or without /v1
	Key       string        // API key; "" for public calls
	HTTP      *http.Client  // nil: one of its own. Of a given one Transport and Timeout are used; redirects are not followed, cookies not kept.
	UserAgent string        // "": forgerun-go
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
	base      url.URL         // without /v1
	prefix    string          // path that precedes /v1
	auth      func() []string // of Authorization; a function, since fmt shows the text of any other field
	userAgent []string
	maxTries  int
	timeout   time.Duration
	stall     time.Duration // of a stream without any byte
	log       *slog.Logger
	now       func() time.Time
	sleep     func(context.Context, time.Duration) error
	rand      func() float64
	err       error // what every call ends with
}

// New makes a client. It does not connect: an error is one of the
// configuration.
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
	if !fieldValue(cfg.UserAgent) {
		return nil, errors.New("client: UserAgent has characters that a header cannot have")
	}
	if cfg.MaxTries < 0 {
		return nil, fmt.Errorf("client: MaxTries is %d; it must not be negative", cfg.MaxTries)
	}
	prefix := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1"), "/")
	c := &Client{
		transport: transportOf(cfg.HTTP),
		base:      url.URL{Scheme: base.Scheme, Host: base.Host},
		prefix:    prefix,
		userAgent: []string{orDefault(cfg.UserAgent, "forgerun-go")},
		maxTries:  orDefault(cfg.MaxTries, defaultTries),
		timeout:   orDefault(cfg.Timeout, defaultTimeout),
		stall:     stalled,
		log:       cfg.Logger,
		now:       cfg.Now,
		sleep:     cfg.Sleep,
		rand:      cfg.Rand,
	}
	if cfg.Timeout == 0 && cfg.HTTP != nil && cfg.HTTP.Timeout > 0 {
		c.timeout = cfg.HTTP.Timeout
	}
	if c.setKey(cfg.Key); c.err != nil {
		return nil, c.err
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
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

// WithKey gives a client that sends another API key over the same
// connections; "" for none. If the key has characters that a header cannot
// have, every call of that client says so.
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
	var value []string
	if key != "" {
		value = []string{"Bearer " + key}
	}
	c.auth = func() []string { return value }
}

// transportOf gives what sends single requests. An http.Client is not needed
// above it: it would follow redirects, and one would carry the key to an
// address that nobody has chosen.
func transportOf(given *http.Client) http.RoundTripper {
	if given != nil {
		if given.Transport != nil {
			return given.Transport
		}
		return http.DefaultTransport
	}
	usual, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // the program has put its own in that place
	}
	transport := usual.Clone()
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

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// fieldName reports whether text can be the name of a header (RFC 9110, section
// 5.6.2).
func fieldName(text string) bool {
	for i := range len(text) {
		if b := text[i]; !lower(b|0x20) && !digit(b) && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return text != ""
}

// fieldValue reports whether text can stand in a header without changing it.
func fieldValue(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}
