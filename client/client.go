//go:generate go run -C ../tools ./apitypes ../client/types.yaml

// Package client is the Go client of ForgeRun. It implements the HTTP API, except range requests for results. It follows the client rules
// of draft-ratnawat-httpapi-async-problem-details.
//
// A Client is safe for concurrent use. Each call takes a context and returns a typed value or an error. A *Problem means that the service
// refused the request. A *NoAnswerError means that no complete response arrived. An *UnexpectedError means that the response is not from
// ForgeRun. If a call fails because its context ended, the error wraps the context's error.
//
// The client retries requests that are safe to repeat, such as reads, deletes, cancels and submissions. Submit sends a random idempotency
// key, unless the caller sets one. Job and webhook ids are opaque.
//
// The package imports only the standard library and a parser of structured fields.
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

// Config describes how to reach a ForgeRun service. Only URL is required. When fmt prints a Config, it hides Key. This does not work for
// a Config in an unexported struct field. So do not store a Config; store the Client that New returns.
type Config struct {
	URL string // base address, with or without /v1
	Key string // API key; "" for public calls
	// The client uses only HTTP.Transport and HTTP.Timeout. If HTTP is nil, the client makes a transport. The client does not follow
	// redirects to another origin, and keeps no cookies.
	HTTP      *http.Client
	UserAgent string // "": forgerun-go
	Session   string // session label for requests to a test bed; "": no label. See WithSession.
	MaxTries  int    // tries per request; 0 means 5, and 1 means no retries
	// Timeout limits one try; PreferWait extends it. 0: HTTP.Timeout, or else 30 s. Negative: no limit. Streams have no limit.
	Timeout time.Duration
	Logger  *slog.Logger // nil: no logging

	// Now, Sleep and Rand replace the clock and randomness in tests.
	Now   func() time.Time                                          // nil: time.Now
	Sleep func(ctx context.Context, wait time.Duration) (err error) // nil: a timer that ends early with the context's error
	Rand  func() float64                                            // returns a number in [0, 1); nil: math/rand
}

const (
	defaultTries   = 5
	defaultTimeout = 30 * time.Second
)

// A Client sends requests to one service with one API key.
type Client struct {
	transport  http.RoundTripper
	base       string        // without /v1
	auth       func() string // returns the Authorization header; not a string, because fmt would print it
	userAgent  string
	session    string
	maxTries   int
	timeout    time.Duration
	stall      time.Duration
	log        *slog.Logger
	now        func() time.Time
	sleep      func(context.Context, time.Duration) error
	rand       func() float64
	keyErr     error // if set, every call returns this error
	sessionErr error // like keyErr
}

// New returns a client without connecting. An error means an invalid configuration.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("client: the URL is not valid; it must be like https://forgerun.example.com")
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
		maxTries:  cmp.Or(cfg.MaxTries, defaultTries),
		timeout:   cmp.Or(cfg.Timeout, defaultTimeout),
		stall:     maxSilence,
		log:       cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		now:       cfg.Now,
		sleep:     cfg.Sleep,
		rand:      cfg.Rand,
	}
	c.setKey(cfg.Key)
	c.setSession(cfg.Session)
	if err := cmp.Or(c.keyErr, c.sessionErr); err != nil {
		return nil, err
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

// WithKey returns a client that uses another API key and the same connections. An empty key means no key. If the key has characters that
// a header cannot have, every call of that client returns an error.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.setKey(key)
	return &other
}

func (c *Client) setKey(key string) {
	c.keyErr = nil
	if !fieldValue(key) {
		c.keyErr = errors.New("client: the key has characters that a header cannot have")
	}
	var value string
	if key != "" {
		value = "Bearer " + key
	}
	c.auth = func() string { return value }
}

// transportOf returns the given client's transport, or a new one. An http.Client is not used, because it would send the key to another
// port after a redirect.
func transportOf(given *http.Client) http.RoundTripper {
	if given != nil {
		return cmp.Or(given.Transport, http.DefaultTransport)
	}
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // the program has replaced the default transport
	}
	transport := standard.Clone()
	transport.MaxIdleConnsPerHost = 100 // with the default of 2, a busy client would reopen connections all the time
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

// Health checks that the process responds.
func (c *Client) Health(ctx context.Context) error {
	_, err := fetch[Readiness](ctx, c, &request{method: http.MethodGet, path: "/healthz"})
	return err
}

// Ready reports whether the service can work, with the result of each check. It does not retry. An unavailable service is a result, not
// an error.
func (c *Client) Ready(ctx context.Context) (*Readiness, error) {
	readiness, err := fetch[Readiness](ctx, c, &request{method: http.MethodGet, path: "/readyz", repeat: never})
	if problem, ok := errors.AsType[*Problem](err); ok && problem.Status == http.StatusServiceUnavailable {
		readiness, err = &Readiness{Status: "unavailable"}, nil
		members(problem.Extensions).take("checks", &readiness.Checks)
	}
	return readiness, err
}

// The methods below hide keys and secrets when fmt or log/slog prints a value. JSON includes them.

// String returns the service's address.
func (c *Client) String() string { return "client of " + c.base }

// Format formats like String for every verb.
func (c *Client) Format(f fmt.State, _ rune) { format(f, c) }

// String returns the service's address.
func (c Config) String() string { return "configuration of a client of " + withoutUser(c.URL) }

// Format formats like String for every verb.
func (c Config) Format(f fmt.State, _ rune) { format(f, c) }

// LogValue returns String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func format(f fmt.State, s fmt.Stringer) { _, _ = f.Write([]byte(s.String())) }

// withoutUser removes the user and password from a URL.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	u.User = nil
	return u.String()
}

// CreateClient creates a client in the service, and returns its id. A retry has the same idempotency key, so a lost response does not
// create a second client.
func (c *Client) CreateClient(ctx context.Context, options ...Option) (clientID string, err error) {
	created, err := fetch[CreatedClient](ctx, c, post(options, "clients").keyed())
	if err != nil {
		return "", err
	}
	return created.ClientID, nil
}

// String returns the id of the key, without the secret.
func (k Key) String() string { return "API key " + k.KeyID }

// Format formats like String for every verb.
func (k Key) Format(f fmt.State, _ rune) { format(f, k) }

// LogValue returns String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// CreateKey creates the first key of a client. If a key exists and `rotate` is false, it returns the existing key without its secret. If
// `rotate` is true, it always creates a key. The request is not retried, because only one response has the secret.
func (c *Client) CreateKey(ctx context.Context, clientID string, rotate bool, options ...Option) (*Key, error) {
	return fetch[Key](ctx, c, post(options, "clients", clientID, "keys").with(KeyRequest{Rotate: rotate}).once())
}

// RevokeKey ends a key immediately. Repeated calls do no harm.
func (c *Client) RevokeKey(ctx context.Context, clientID, keyID string, options ...Option) error {
	r := post(options, "clients", clientID, "keys", "revoke").with(map[string]string{"key_id": keyID})
	a, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	return r.confirmed(a, "revoked")
}
