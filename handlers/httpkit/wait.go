package httpkit

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/header"
)

// Preferences are those of the client (RFC 7240).
func (r *Request) Preferences() *header.Preferences { return header.ParsePrefer(r.List("Prefer")) }

// Honored names the preferences that were honored in the answer.
func (r *Request) Honored(prefs *header.Preferences) {
	if applied := prefs.Applied(); applied != "" {
		r.Set("Preference-Applied", applied)
	}
}

// Wait calls wait with a context that lasts for as long as the client is willing to wait and there, and its key is good. What it returns is
// the zero value if the client did not wait, or in vain. A wait counts as a stream does; where the limit is reached the preference is
// ignored. The request's time begins anew afterwards.
func Wait[T any](r *Request, prefs *header.Preferences, wait func(context.Context) (T, error)) (v T, err error) {
	limit, _ := prefs.Wait()
	if limit == 0 {
		prefs.ApplyWait()
		return v, nil
	}
	release, err := r.Kit.Waits.Acquire(r.Caller.ClientID)
	if err != nil {
		return v, nil // the client asked for the job, not for a wait
	}
	defer release()
	r.Leave()
	prefs.ApplyWait()
	ctx, cancel := context.WithTimeout(r.Kit.Waits.Context(), limit)
	defer cancel()
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(cancel)()
	}
	r.Span.AddEvent("wait") // what follows is the client's wish
	began := time.Now()
	authorization := r.Request().Header.PeekAll(fiber.HeaderAuthorization)
	for again := true; again; { // no longer than the key is good
		waiting, changed := context.WithCancel(ctx)
		stop := r.Kit.Keys.WatchKey(r.Caller.KeyID, changed)
		// Asked after the watch began: no change is missed.
		if again = r.Kit.StillGood(ctx, authorization, r.Caller.ClientID) == nil; again {
			v, err = wait(waiting)
			again = waiting.Err() != nil && ctx.Err() == nil
		}
		stop()
		changed()
	}
	r.Waited += time.Since(began)
	r.Span.AddEvent("waited")
	r.startTime()
	var none T
	if refused := r.Kit.StillGood(r.Ctx, authorization, r.Caller.ClientID); refused != nil {
		return none, refused
	}
	if err != nil && ctx.Err() != nil {
		return none, nil // the time was up before the job was read even once
	}
	return v, err
}
