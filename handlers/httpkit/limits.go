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
	// AllowItems counts the items of a request that was allowed, all or none.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

// StorageSlots bound how many requests use storage at once, and divide that among
// clients: whatever one of them asks for, and however often, the others get
// theirs. Submissions have an admission of their own.
type StorageSlots struct {
	Lists, Reads, Writes *fair.Semaphore[job.ID]
}

// newStorageSlots divides n connections to storage so that all kinds together leave
// some to submissions.
func newStorageSlots(n int) StorageSlots {
	return StorageSlots{
		Lists:  fair.New[job.ID](max(2, n/5)),
		Reads:  fair.New[job.ID](max(2, 2*n/5)),
		Writes: fair.New[job.ID](max(2, n/5)),
	}
}

// of returns the slots for requests of a route, nil where they need none.
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

// Enter waits until the client may use storage. The slot is given back by
// Leave, at the end of the request at the latest.
func (r *Request) Enter() error {
	p := r.Kit.Slots.of(r.Route)
	if p == nil || r.slot != nil {
		return nil
	}
	if p.TryAcquire(r.Caller.ClientID) {
		r.slot = p
		return nil
	}
	// Half of the time is left to what the slot is for.
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

// Leave gives the slot back, if the request has one.
func (r *Request) Leave() {
	if r.slot != nil {
		r.slot.Release(r.Caller.ClientID)
		r.slot = nil
	}
}

// limit counts the request of a client; the operator is not limited.
func (s *Kit) limit(r *Request) error {
	if r.Caller.ClientID.IsZero() {
		return nil
	}
	return r.allowed(s.Limiter.Allow(r.Ctx, r.Caller.ClientID), "")
}

// LimitItems counts a request as so many, which more says to who has not as many left.
func (r *Request) LimitItems(items int, more string) error {
	return r.allowed(r.Kit.Limiter.AllowItems(r.Ctx, r.Caller.ClientID, items), fmt.Sprintf(more, items))
}

// allowed tells the client about its limit; the error for a refusal ends in more.
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

// setLimit sets a header that names a policy and two numbers of it.
func (r *Request) setLimit(name, policy, first string, n int, second string, m int) {
	value := strconv.AppendQuote(make([]byte, 0, 64), policy)
	value = strconv.AppendInt(append(value, first...), int64(n), 10)
	value = strconv.AppendInt(append(value, second...), int64(m), 10)
	r.Response().Header.SetBytesV(name, value)
}

// window is the length of a rate limit's window in seconds.
func window(policy string) int {
	if policy == "day" {
		return 86_400
	}
	return 60
}

// Admitted reads a submission and has it accepted. It is refused first if too many
// wait; the client is authenticated by then, so that others do not learn the load.
// While its body arrives it does not count as one that waits.
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
	defer r.DropBody() // the client may wait for the job
	if a != nil {
		if err := a.Enter(); err != nil {
			r.refused = overloaded
			return err
		}
		defer func() { a.Leave(err == nil) }()
	}
	return accept(body, key)
}

// pieceBytes of a body count as one request for the rate limit: storage and
// its log take large submissions as long as many small ones.
const pieceBytes = 16 << 10

// Pieces is the number of them that a body has begun.
func Pieces(body []byte) int { return (len(body) + pieceBytes - 1) / pieceBytes }

// FilteredCost is as how many requests a list counts whose filter may have to
// look at 20,000 jobs.
const FilteredCost = 10

// DecodeLimits are what the bodies of submissions are read by.
func (c *Config) DecodeLimits() decode.Limits {
	return decode.Limits{MaxPayload: c.MaxPayloadBytes, TestBed: c.TestBed}
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
