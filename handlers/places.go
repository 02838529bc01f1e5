package handlers

import (
	"context"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// places bound how many requests use storage at once, and divide that among
// clients: whatever one of them asks for, and however often, the others get
// theirs. Submissions have an admission of their own.
type places struct {
	lists, reads, writes *fair.Semaphore[job.ID]
}

// newPlaces divides n connections to storage so that all kinds together leave
// some to submissions.
func newPlaces(n int) places {
	return places{
		lists:  fair.New[job.ID](max(2, n/5)),
		reads:  fair.New[job.ID](max(2, 2*n/5)),
		writes: fair.New[job.ID](max(2, n/5)),
	}
}

// of gives the places for requests of a route, nil where they need none.
func (p places) of(rt *route) *fair.Semaphore[job.ID] {
	switch {
	case rt.access == public || rt.action == "submit" || rt.action == "submit_batch":
		return nil
	case rt.method != fiber.MethodGet:
		return p.writes
	case slices.ContainsFunc(rt.query, func(q query.Parameter) bool { return q.Name == "limit" }):
		return p.lists
	default:
		return p.reads
	}
}

// enter waits until the client may use storage. The place is given back by
// leave, at the end of the request at the latest.
func (r *call) enter() error {
	p := r.server.places.of(r.route)
	if p == nil || r.place != nil {
		return nil
	}
	if p.TryAcquire(r.caller.ClientID) {
		r.place = p
		return nil
	}
	// Half of the time is left to what the place is for.
	ctx, cancel := context.WithTimeout(r.ctx, r.server.cfg.RequestTimeout/2)
	defer cancel()
	if !p.Acquire(r.caller.ClientID, ctx.Done()) {
		r.noPlace = true
		err := job.Errorf(job.CodeQueueFull, "Too many requests of this client or of others are under way. Send fewer at once.")
		err.RetryAfter = time.Second
		return err
	}
	r.place = p
	return nil
}

func (r *call) leave() {
	if r.place != nil {
		r.place.Release(r.caller.ClientID)
		r.place = nil
	}
}
