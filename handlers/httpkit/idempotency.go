package httpkit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

// Scopes of idempotency keys. The same key can be used in several scopes without a conflict. Submissions of jobs and batches have further
// scopes.
const (
	scopeClient    = "client"
	scopeOperator  = "operator"
	scopeAnonymous = "anonymous"
	ScopeWebhooks  = "webhooks"
)

// minAnonymousKey is the minimum length of an idempotency key in a request without credentials. All anonymous callers share one scope,
// so keys must not collide or be guessable.
const minAnonymousKey = 32

// Once makes a route honor Idempotency-Key. It stores the response to the first request with a key in the same transaction as the
// request's effect. A later request with the same key, method, path and body gets the stored response. The order of members and white
// space in the body do not matter.
func Once(handle Handler) Handler {
	return func(r *Request) error {
		key, err := r.IdempotencyKey()
		switch {
		case err != nil:
			return err
		case key == "":
			return handle(r)
		}
		body, err := r.JSONBody(true)
		if err != nil {
			return err
		}
		_, err = r.Once(r.RequestKey(key, decode.Canonical(body)), handle)
		return err
	}
}

// Once calls `handle` and stores the response if the key is new. Otherwise, it sends the stored response.
func (r *Request) Once(key job.RequestKey, handle Handler) (first job.Answer, err error) {
	outside := r.Ctx
	first, replayed, err := r.Kit.Idempotency.Once(outside, key, func(ctx context.Context) (job.Answer, error) {
		r.Ctx = ctx
		defer func() { r.Ctx = outside }()
		if err := handle(r); err != nil {
			return job.Answer{}, err
		}
		return r.answer(), nil
	})
	switch {
	case err != nil:
		r.Response().ResetBody()
		for _, name := range KeptHeaders {
			r.Response().Header.Del(name) // set for a response that was not committed
		}
	case replayed:
		r.replay(first)
	}
	return first, err
}

// KeptHeaders are stored with a response. Other headers are set anew for each request.
var KeptHeaders = []string{
	fiber.HeaderContentType, fiber.HeaderContentLanguage, fiber.HeaderLocation, fiber.HeaderLink, fiber.HeaderETag, fiber.HeaderRetryAfter,
	fiber.HeaderVary,
}

func (r *Request) answer() job.Answer {
	a := job.Answer{Status: r.Response().StatusCode(), Header: map[string]string{}, Body: r.withoutSecret, Subject: r.Made}
	if a.Body == nil {
		a.Body = bytes.Clone(r.Response().Body())
	}
	for _, name := range KeptHeaders {
		if value := r.Response().Header.Peek(name); len(value) > 0 {
			a.Header[name] = string(value)
		}
	}
	return a
}

func (r *Request) replay(a job.Answer) {
	r.Set(ReplayedHeader, "true")
	if a.Status == 0 { // only the id of the resource is stored, not the response
		return
	}
	for name, value := range a.Header {
		if name == fiber.HeaderVary { // keep the names that Vary already has in this response
			r.Vary(strings.Split(value, ", ")...)
			continue
		}
		r.Set(name, value)
	}
	r.Status(a.Status)
	r.Response().SetBody(a.Body)
}

// SecretJSON sends v, which contains a secret. `hidden` is v without the secret. The response to a repeated request contains `hidden`.
func (r *Request) SecretJSON(status int, v, hidden any) error {
	if err := r.JSON(status, hidden); err != nil {
		return err
	}
	r.withoutSecret = bytes.Clone(r.Response().Body())
	return r.JSON(status, v)
}

// ReplayedHeader marks replayed responses.
const ReplayedHeader = "Idempotency-Replayed"

// IdempotencyKey returns the Idempotency-Key header, or "".
func (r *Request) IdempotencyKey() (string, error) {
	key, err := header.Key(r.Lines("Idempotency-Key")...)
	if key != "" && r.Caller.Anonymous() && len(key) < minAnonymousKey {
		return "", job.Errorf(job.CodeMalformed, "Without credentials the Idempotency-Key must have at least %d characters, because all "+
			"callers share these keys; a random UUID has 36.", minAnonymousKey)
	}
	return key, err
}

// RequestKey identifies a request for idempotency, by sender, method, path and body.
func (r *Request) RequestKey(key string, body []byte) job.RequestKey {
	scope := scopeClient
	switch {
	case r.Caller.Anonymous():
		scope = scopeAnonymous
	case r.Caller.Admin:
		scope = scopeOperator
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", r.Method(), r.Path(), body))
	return job.RequestKey{ClientID: r.Caller.ClientID, Scope: scope, Key: key, Hash: hash}
}
