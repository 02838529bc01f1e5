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

// transportOf returns the transport of single requests. An http.Client above it would carry the key to other ports of a host, too.
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

// CreateClient makes a client and gives its id. A request whose answer is lost is sent again with the same idempotency key, so that there
// is one client.
func (c *Client) CreateClient(ctx context.Context, options ...Option) (clientID string, err error) {
	created, err := fetch[CreatedClient](ctx, c, post(options, "clients").keyed())
	if err != nil {
		return "", err
	}
	return created.ClientID, nil
}

// String names the key, and does not show it.
func (k Key) String() string { return "API key " + k.KeyID }

// Format writes String for every verb.
func (k Key) Format(f fmt.State, _ rune) { format(f, k) }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// CreateKey makes the first key of a client or, with rotate, a further one. Without rotate a client that has a key gets its data with no
// APIKey. It is not repeated, since only one answer has the key.
func (c *Client) CreateKey(ctx context.Context, clientID string, rotate bool, options ...Option) (*Key, error) {
	return fetch[Key](ctx, c, post(options, "clients", clientID, "keys").with(KeyRequest{Rotate: rotate}).once())
}

// RevokeKey ends a key at once. Safe to repeat.
func (c *Client) RevokeKey(ctx context.Context, clientID, keyID string, options ...Option) error {
	r := post(options, "clients", clientID, "keys", "revoke").with(map[string]string{"key_id": keyID})
	a, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	return r.confirmed(a, "revoked")
}
