package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"
)

// connect makes c usable: with a key it finds out whether the service takes
// it, without one it registers a client of its own. Every error is one
// sentence that says what to change.
func (c *client) connect(ctx context.Context) error {
	if c.key == "" {
		return c.register(ctx)
	}
	path := "/v1/jobs/" + uuid.NewString() // no such job: what counts is which error comes
	a, err := c.once(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return c.away(err)
	}
	p, ok := a.problem()
	switch {
	case ok && p.Code == codeJobNotFound:
		return nil
	case ok && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden):
		return fmt.Errorf("the service at %s refuses the key: %s", c.base, a)
	case ok && a.status != http.StatusNotFound:
		return fmt.Errorf("the service at %s is not usable now: %w", c.base, a.unexpected("expected 404 "+codeJobNotFound))
	default:
		return c.foreign(a)
	}
}

// register makes a client and its first key, which needs no credentials while
// open registration is on.
func (c *client) register(ctx context.Context) error {
	var made clientView
	if err := c.create(ctx, "/v1/clients", nil, &made); err != nil {
		return err
	}
	var key keyView
	if err := c.create(ctx, "/v1/clients/"+url.PathEscape(made.ClientID)+"/keys", struct{}{}, &key); err != nil {
		return err
	}
	if made.ClientID == "" || key.APIKey == "" {
		return fmt.Errorf("the service at %s answered the registration without a client id or key", c.base)
	}
	c.key = key.APIKey
	return nil
}

func (c *client) create(ctx context.Context, path string, body, into any) error {
	a, err := c.once(ctx, http.MethodPost, path, body, nil)
	if err != nil {
		return c.away(err)
	}
	_, isProblem := a.problem()
	switch {
	case a.status == http.StatusCreated && a.decode(http.StatusCreated, into) == nil:
		return nil
	case isProblem && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden):
		return fmt.Errorf("the service at %s does not let strangers register (%s): pass a key with --key", c.base, a)
	case isProblem && a.status != http.StatusNotFound:
		return fmt.Errorf("registration at %s failed: %w", c.base, a.unexpected("expected 201"))
	default:
		return c.foreign(a)
	}
}

// away keeps an interruption as it is and explains anything else.
func (c *client) away(err error) error {
	if !errors.Is(err, errAway) {
		return err
	}
	cause := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		cause = u.Err // without the request line
	}
	return fmt.Errorf("nothing answers at %s (%w): is the service running, and is --url right?", c.base, cause)
}

func (c *client) foreign(a *answer) error {
	return fmt.Errorf("something answers at %s, but not as ForgeRun does (%s: %s): is --url right?", c.base, a.request, a)
}
