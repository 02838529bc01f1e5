package handlers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
	// AllowItems counts the items of a request that was allowed, all or none.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

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

// limit counts the request of a client; the operator is not limited.
func (s *Server) limit(r *call) error {
	if r.caller.ClientID.IsZero() {
		return nil
	}
	return r.allowed(s.deps.Limiter.Allow(r.ctx, r.caller.ClientID), "")
}

// limitItems counts a request as so many, which more says to who has not as many left.
func (s *Server) limitItems(r *call, items int, more string) error {
	return r.allowed(s.deps.Limiter.AllowItems(r.ctx, r.caller.ClientID, items), fmt.Sprintf(more, items))
}

// allowed tells the client about its limit; the error for a refusal ends in more.
func (r *call) allowed(a job.Allowance, more string) error {
	if a.Limit > 0 {
		r.setLimit("RateLimit-Policy", a.Policy, ";q=", a.Limit, ";w=", window(a.Policy))
		r.setLimit("RateLimit", a.Policy, ";r=", max(0, a.Remaining), ";t=", problem.Seconds(a.Reset))
	}
	if !a.OK {
		err := job.Errorf(job.CodeRateLimited, "This client may send %d requests per %s.%s", a.Limit, a.Policy, more)
		err.RetryAfter = a.RetryAfter
		return err
	}
	return nil
}

// setLimit sets a header that names a policy and two numbers of it.
func (r *call) setLimit(header, policy, first string, n int, second string, m int) {
	value := strconv.AppendQuote(make([]byte, 0, 64), policy)
	value = strconv.AppendInt(append(value, first...), int64(n), 10)
	value = strconv.AppendInt(append(value, second...), int64(m), 10)
	r.Response().Header.SetBytesV(header, value)
}

// window is the length of a rate limit's window in seconds.
func window(policy string) int {
	if policy == "day" {
		return 86_400
	}
	return 60
}
