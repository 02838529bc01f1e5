package handlers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
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
// All callers share such keys: two must not have the same by chance, and
// none must be guessable.
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

// preferences are those of the client (RFC 7240), and which of them were honoured.
type preferences struct {
	header.Preferences
	applied []string
}

func (r *call) preferences() *preferences {
	return &preferences{Preferences: header.ParsePrefer(r.list("Prefer"))}
}

// applyWait records that a wait was honoured, if the client asked for one. An
// answer that needs no wait honours it too.
func (prefs *preferences) applyWait() {
	if limit, ok := prefs.Wait(); ok {
		prefs.applied = append(prefs.applied, "wait="+strconv.Itoa(int(limit/time.Second)))
	}
}

// applyAsync records that an answer did not wait for the end of the work, if that
// is what the client asked for.
func (prefs *preferences) applyAsync() {
	if prefs.Has("respond-async") {
		prefs.applied = slices.Insert(prefs.applied, 0, "respond-async")
	}
}

// report names the honoured preferences in the answer.
func (prefs *preferences) report(r *call) {
	if len(prefs.applied) > 0 {
		r.Set("Preference-Applied", strings.Join(prefs.applied, ", "))
	}
}

// await reads the job again until done says so, for as long as the client is willing to wait and there, and its key is good; nil if it
// did not wait, or in vain. A wait counts as a stream does; where the limit is reached the preference is ignored. The request's time
// begins anew afterwards.
func (s *Server) await(r *call, prefs *preferences, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	limit, _ := prefs.Wait()
	if limit == 0 {
		prefs.applyWait()
		return nil, nil
	}
	release, err := s.limiter.Acquire(r.caller.ClientID)
	if err != nil {
		return nil, nil // the client asked for the job, not for a wait
	}
	defer release()
	r.leave()
	prefs.applyWait()
	ctx, cancel := context.WithTimeout(s.limiter.Context(), limit)
	defer cancel()
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(cancel)()
	}
	r.span.AddEvent("wait") // what follows is the client's wish
	began := time.Now()
	j, err := s.awaitGood(ctx, r, id, done)
	r.waited += time.Since(began)
	r.span.AddEvent("waited")
	s.startTime(r)
	if refused := s.stillGood(r.ctx, r.Request().Header.PeekAll(fiber.HeaderAuthorization), r.caller.ClientID); refused != nil {
		return nil, refused
	}
	if err != nil && ctx.Err() != nil {
		return nil, nil // the time was up before the job was read even once
	}
	return j, err
}

// awaitGood waits as Await does, but no longer than the key of the request is good.
func (s *Server) awaitGood(ctx context.Context, r *call, id job.ID, done func(*job.Job) bool) (j *job.Job, err error) {
	authorization := r.Request().Header.PeekAll(fiber.HeaderAuthorization)
	for again := true; again; {
		waiting, changed := context.WithCancel(ctx)
		stop := s.deps.Clients.WatchKey(r.caller.KeyID, changed)
		if again = s.stillGood(ctx, authorization, r.caller.ClientID) == nil; again { // asked after the watch began: no change is missed
			j, err = s.deps.Reader.Await(waiting, r.caller.ClientID, id, done)
			again = waiting.Err() != nil && ctx.Err() == nil
		}
		stop()
		changed()
	}
	return j, err
}

// onceEnded reads what is there once the job, or one of its attempts, has ended,
// as ended tells. A client that is willing to wait gets it then; the refusal of
// one that comes too early says when to look again.
func onceEnded[T any](s *Server, r *call, read func() (T, error), ended func(*job.Job) bool) (T, error) {
	prefs := r.preferences()
	v, err := read()
	if err == nil {
		prefs.applyWait()
	}
	var j *job.Job
	if tooEarly(err) != nil {
		var failed error
		if j, failed = s.await(r, prefs, r.jobID, ended); failed != nil {
			return v, failed
		}
		if j != nil {
			v, err = read()
		}
	}
	prefs.report(r)
	early := tooEarly(err)
	if early == nil {
		return v, err
	}
	if j == nil { // it did not wait
		if j, err = s.deps.Reader.Job(r.ctx, r.caller.ClientID, r.jobID); err != nil {
			return v, err
		}
	}
	early.RetryAfter = time.Duration(s.pollAfter(j)) * time.Second
	return v, early
}

// tooEarly gives a copy of the error that says that something has not ended, nil
// for others.
func tooEarly(err error) *job.Error {
	var known *job.Error
	if !errors.As(err, &known) || known.Code != job.CodeJobNotFinished {
		return nil
	}
	early := *known
	return &early
}

// stillGood says why a key with which something was begun a while ago is good
// no longer, and nil if it is. While that cannot be found out, it is.
func (s *Server) stillGood(ctx context.Context, authorization [][]byte, client job.ID) error {
	caller, err := s.identify(ctx, authorization)
	switch {
	case err != nil && job.CodeOf(err).Spec().Status < 500:
		return err
	case err == nil && caller.ClientID != client:
		return job.Errorf(job.CodeInvalidCredentials, "The key belongs to another client now.")
	}
	return nil
}
