package handlers

import (
	"context"
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
	prefs.applyWait()
	ctx, cancel := context.WithTimeout(s.limiter.Context(), limit)
	defer cancel()
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(cancel)()
	}
	r.span.AddEvent("wait") // what follows is the client's wish
	began := time.Now()
	j, err := s.deps.Reader.Await(ctx, r.caller.ClientID, id, done)
	r.waited = time.Since(began)
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
