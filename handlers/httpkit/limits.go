package httpkit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
	// AllowItems counts the items of an admitted request. If the items exceed the limit, it counts none of them.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

// StorageSlots limit how many requests use storage at the same time. Each client gets a fair share. Submissions are limited by
// jobs.Backlog instead.
type StorageSlots struct {
	Lists, Reads, Writes *fair.Semaphore[job.ID]
}

// newStorageSlots divides n storage connections and leaves some for submissions.
func newStorageSlots(n int) StorageSlots {
	return StorageSlots{
		Lists:  fair.New[job.ID](max(2, n/5)),
		Reads:  fair.New[job.ID](max(2, 2*n/5)),
		Writes: fair.New[job.ID](max(2, n/5)),
	}
}

func (p StorageSlots) of(rt *Route) *fair.Semaphore[job.ID] {
	switch {
	case rt.Access == Public || rt.Action == "submit" || rt.Action == "submit_batch":
		return nil
	case rt.Method != fiber.MethodGet:
		return p.Writes
	case slices.ContainsFunc(rt.Query, func(q query.Parameter) bool { return q.Name == "limit" }):
		return p.Lists
	default:
		return p.Reads
	}
}

// Enter waits for a storage slot. The slot is released by Leave, or at the end of the request.
func (r *Request) Enter() error {
	p := r.Kit.Slots.of(r.Route)
	if p == nil || r.slot != nil {
		return nil
	}
	if p.TryAcquire(r.Caller.ClientID) {
		r.slot = p
		return nil
	}
	// Wait at most half of the request's time limit, to leave the other half for the work.
	ctx, cancel := context.WithTimeout(r.Ctx, r.Kit.RequestTimeout/2)
	defer cancel()
	if !p.Acquire(r.Caller.ClientID, ctx.Done()) {
		r.refused = noSlot
		err := job.Errorf(job.CodeQueueFull, "This client or others have too many requests in progress. Send fewer at once.")
		err.RetryAfter = time.Second
		return err
	}
	r.slot = p
	return nil
}

// Leave releases the slot, if the request has one.
func (r *Request) Leave() {
	if r.slot != nil {
		r.slot.Release(r.Caller.ClientID)
		r.slot = nil
	}
}

// limit counts a client's request, and refuses it above the rate limit. Operators are not limited.
func (s *Kit) limit(r *Request) error {
	if r.Caller.ClientID.IsZero() {
		return nil
	}
	return r.allowed(s.Limiter.Allow(r.Ctx, r.Caller.ClientID), "")
}

// LimitItems makes a request count as `items` requests, and refuses it above the rate limit. `more` is appended to the error's text, and
// must have a %d for the number of items.
func (r *Request) LimitItems(items int, more string) error {
	return r.allowed(r.Kit.Limiter.AllowItems(r.Ctx, r.Caller.ClientID, items), fmt.Sprintf(more, items))
}

// allowed sends the rate limit headers, and returns an error if the limit is exceeded.
func (r *Request) allowed(a job.Allowance, more string) error {
	if a.Limit > 0 {
		r.setLimit("RateLimit-Policy", a.Policy, ";q=", a.Limit, ";w=", window(a.Policy))
		r.setLimit("RateLimit", a.Policy, ";r=", max(0, a.Remaining), ";t=", problem.Seconds(a.Reset))
	}
	if !a.OK {
		err := job.Errorf(job.CodeRateLimited, "This client can send %d requests per %s.%s", a.Limit, a.Policy, more)
		err.RetryAfter = a.RetryAfter
		return err
	}
	return nil
}

func (r *Request) setLimit(name, policy, first string, n int, second string, m int) {
	value := strconv.AppendQuote(make([]byte, 0, 64), policy)
	value = strconv.AppendInt(append(value, first...), int64(n), 10)
	value = strconv.AppendInt(append(value, second...), int64(m), 10)
	r.Response().Header.SetBytesV(name, value)
}

func window(policy string) int {
	if policy == "day" {
		return 86_400
	}
	return 60
}

// Admitted reads a submission and calls `accept`. If too many submissions are waiting, it refuses the submission instead. Only
// authenticated callers get this refusal, so strangers cannot measure the load. A submission does not count as waiting before its body has
// arrived.
func Admitted(r *Request, a *jobs.Backlog, accept func(body []byte, key string) error) (err error) {
	if a != nil {
		if err := a.Full(); err != nil {
			r.refused = overloaded
			return err
		}
	}
	body, key, err := r.KeyedBody()
	if err != nil {
		return err
	}
	defer r.DropBody() // free the memory before the client waits for the job
	if a != nil {
		if err := a.Enter(); err != nil {
			r.refused = overloaded
			return err
		}
		defer func() { a.Leave(err == nil) }()
	}
	return accept(body, key)
}

// The rate limit counts each pieceBytes of a body as one request. Storing one large submission takes as long as storing many small ones.
const pieceBytes = 16 << 10

// Pieces returns the number of pieces in a body, rounded up.
func Pieces(body []byte) int { return (len(body) + pieceBytes - 1) / pieceBytes }

// FilteredCost is how many requests the rate limit counts for one request with a filter. A filter may scan up to 20,000 jobs.
const FilteredCost = 10

// DecodeLimits returns the limits for decoding submissions.
func (c *Config) DecodeLimits() decode.Limits {
	return decode.Limits{MaxPayload: c.MaxPayloadBytes, TestBed: c.TestBed}
}

// Wait calls `wait` if the client asked to wait for a change. The context of `wait` ends when the client's waiting time is over, the
// client hangs up, or the key becomes invalid. Wait returns the zero value if the client did not ask to wait, or if nothing happened in
// time. A wait counts towards the limit of streams. At the limit, the request continues without a wait. After a wait, the request's time
// limit restarts.
func Wait[T any](r *Request, prefs *header.Preferences, wait func(context.Context) (T, error)) (v T, err error) {
	limit, _ := prefs.Wait()
	if limit == 0 {
		prefs.ApplyWait()
		return v, nil
	}
	release, err := r.Kit.Waits.Acquire(r.Caller.ClientID)
	if err != nil {
		return v, nil // not an error: the request continues without the wait
	}
	defer release()
	r.Leave()
	prefs.ApplyWait()
	ctx, cancel := context.WithTimeout(r.Kit.Waits.Context(), limit)
	defer cancel()
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(cancel)()
	}
	r.Span.AddEvent("wait")
	began := time.Now()
	authorization := r.Request().Header.PeekAll(fiber.HeaderAuthorization)
	for again := true; again; { // `wait` also returns when the key changes; call it again while the key is valid
		waiting, changed := context.WithCancel(ctx)
		stop := r.Kit.Keys.WatchKey(r.Caller.KeyID, changed)
		// Check the key after WatchKey has started, so that no change is missed.
		if again = r.Kit.StillValid(ctx, authorization, r.Caller.ClientID) == nil; again {
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
	if refused := r.Kit.StillValid(r.Ctx, authorization, r.Caller.ClientID); refused != nil {
		return none, refused
	}
	if err != nil && ctx.Err() != nil {
		return none, nil // not an error: the client's wait ended first
	}
	return v, err
}
