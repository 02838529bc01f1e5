package handlers

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// wishes are how the client would like to be answered (RFC 7240), and which of
// its preferences were honoured.
type wishes struct {
	preferences
	applied []string
}

func (r *call) wishes() *wishes {
	return &wishes{preferences: parsePrefer(r.list("Prefer"))}
}

// applyWait notes that a wait was honoured, if the client asked for one. An
// answer that needs no wait honours it too.
func (w *wishes) applyWait() {
	if limit, ok := w.wait(); ok {
		w.applied = append(w.applied, "wait="+strconv.Itoa(int(limit/time.Second)))
	}
}

// applyAsync notes that an answer did not wait for the end of the work, if that
// is what the client asked for.
func (w *wishes) applyAsync() {
	if w.has("respond-async") {
		w.applied = slices.Insert(w.applied, 0, "respond-async")
	}
}

// tell names the honoured preferences in the answer.
func (w *wishes) tell(r *call) {
	if len(w.applied) > 0 {
		r.Set("Preference-Applied", strings.Join(w.applied, ", "))
	}
}

// await reads the job again until done says so, for as long as the client is
// willing to wait and there; nil if it did not wait, or in vain. A wait takes a
// seat as a stream does; where none is free the preference is ignored. The
// request's time begins anew afterwards, and its key must still be good.
func (s *Server) await(r *call, w *wishes, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	limit, _ := w.wait()
	if limit == 0 {
		w.applyWait()
		return nil, nil
	}
	release, err := s.seats.take(r.caller.ClientID)
	if err != nil {
		return nil, nil // the client did not ask for a seat, but for the job
	}
	defer release()
	w.applyWait()
	ctx, cancel := context.WithTimeout(s.seats.ctx, limit)
	defer cancel()
	if c, ok := r.Context().Conn().(*conn); ok {
		defer c.whenGone(cancel)()
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
