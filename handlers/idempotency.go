package handlers

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

// Idempotency does what requests with an idempotency key ask for, once for each
// key.
type Idempotency interface {
	// Once calls do, and commits what its use cases write with the context that
	// it is given together with its answer. A key that is known gets its first
	// answer, and do is not called; one that stands for another request is an
	// error. An error of do leaves the key free.
	Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (
		answer job.Answer, replayed bool, err error)
}

// The scopes of idempotency keys, by who sends them. Submissions of jobs, batches
// and webhooks have scopes of their own: their keys mean nothing elsewhere.
const (
	scopeClient    = "client"
	scopeOperator  = "operator"
	scopeAnonymous = "anonymous"
	scopeWebhooks  = "webhooks"
)

// minAnonymousKey is the least length of a key of a request without credentials.
// Such keys are everybody's: two clients must not have the same by chance, and
// nobody is to guess another's.
const minAnonymousKey = 32

// once makes a route honour Idempotency-Key: the answer, of the first request
// with the key, is stored with the request's effect. A repetition is the same
// path and the same body, but for its order of members and spacing.
func (s *Server) once(handle func(*call) error) func(*call) error {
	return func(r *call) error {
		key, err := r.headerKey()
		switch {
		case err != nil:
			return err
		case key == "":
			return handle(r)
		}
		body, err := r.body(true)
		if err != nil {
			return err
		}
		_, err = s.doOnce(r, r.requestKey(key, decode.Canonical(body)), handle)
		return err
	}
}

// doOnce handles a request whose key is new, and otherwise gives it its first
// answer.
func (s *Server) doOnce(r *call, key job.RequestKey, handle func(*call) error) (first job.Answer, err error) {
	outside := r.ctx
	first, replayed, err := s.deps.Idempotency.Once(outside, key, func(ctx context.Context) (job.Answer, error) {
		r.ctx = ctx
		defer func() { r.ctx = outside }()
		if err := handle(r); err != nil {
			return job.Answer{}, err
		}
		return r.answer(), nil
	})
	switch {
	case err != nil:
		r.Response().ResetBody()
		for _, name := range keptHeaders {
			r.Response().Header.Del(name) // of an answer that was not committed
		}
	case replayed:
		r.replay(first)
	}
	return first, err
}

// keptHeaders are those that belong to a stored answer. The others are of each
// request.
var keptHeaders = []string{
	fiber.HeaderContentType, fiber.HeaderContentLanguage, fiber.HeaderLocation, fiber.HeaderLink, fiber.HeaderETag, fiber.HeaderRetryAfter,
	fiber.HeaderVary,
}

// answer is what is kept of the response: nothing that is secret.
func (r *call) answer() job.Answer {
	a := job.Answer{Status: r.Response().StatusCode(), Header: map[string]string{}, Body: r.withoutSecret, Subject: r.made}
	if a.Body == nil {
		a.Body = bytes.Clone(r.Response().Body())
	}
	for _, name := range keptHeaders {
		if value := r.Response().Header.Peek(name); len(value) > 0 {
			a.Header[name] = string(value)
		}
	}
	return a
}

// replay answers with what the first request was answered.
func (r *call) replay(a job.Answer) {
	r.Set(headerReplayed, "true")
	if a.Status == 0 { // only what was made is known
		return
	}
	for name, value := range a.Header {
		if name == fiber.HeaderVary { // what this request's answer depends on stays
			r.Vary(strings.Split(value, ", ")...)
			continue
		}
		r.Set(name, value)
	}
	r.Status(a.Status)
	r.Response().SetBody(a.Body)
}

// secretJSON answers with v, which shows a secret. In its place hidden is kept
// for repetitions.
func (r *call) secretJSON(status int, v, hidden any) error {
	if err := r.json(status, hidden); err != nil {
		return err
	}
	r.withoutSecret = bytes.Clone(r.Response().Body())
	return r.json(status, v)
}

// headerReplayed says that the answer is that of an earlier request.
const headerReplayed = "Idempotency-Replayed"

// headerKey gives the Idempotency-Key header, "" if there is none.
func (r *call) headerKey() (string, error) {
	key, err := header.Key(r.lines("Idempotency-Key")...)
	if key != "" && r.caller.Anonymous() && len(key) < minAnonymousKey {
		return "", job.Errorf(job.CodeMalformed, "Without credentials the Idempotency-Key must have at least %d characters, since such keys "+
			"are everybody's; a random UUID has 36.", minAnonymousKey)
	}
	return key, err
}

// requestKey says what a request is recognised by: who sends it, and method,
// path and body.
func (r *call) requestKey(key string, body []byte) job.RequestKey {
	scope := scopeClient
	switch {
	case r.caller.Anonymous():
		scope = scopeAnonymous
	case r.caller.Admin:
		scope = scopeOperator
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", r.Method(), r.Path(), body))
	return job.RequestKey{ClientID: r.caller.ClientID, Scope: scope, Key: key, Hash: hash}
}
