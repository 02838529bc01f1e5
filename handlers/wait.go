package handlers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

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

// await reads the job again until done says so, for as long as the client is
// willing to wait and there; nil if it did not wait, or in vain. A wait counts as
// a stream does; where the limit is reached the preference is ignored. The
// request's time begins anew afterwards, and its key must still be good.
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
	j, err := s.deps.Reader.Await(ctx, r.caller.ClientID, id, done)
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
