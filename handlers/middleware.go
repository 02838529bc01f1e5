package handlers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// serve handles a request: it gives it an id and a time limit, checks who asks,
// calls the route's handler, and counts, logs and traces the answer.
func (s *Server) serve(c *fiber.Ctx, rt *route, handle func(*call) error) {
	r := &call{Ctx: c, server: s, route: rt, idText: requestID(c.Get("X-Request-Id")).String(), start: time.Now(), span: noop.Span{}}
	r.base = telemetry.WithRequest(s.base, r.idText)
	r.Set("X-Request-Id", r.idText)
	r.Set("X-Content-Type-Options", "nosniff")
	r.Set("Cache-Control", "no-store")
	s.share(r)
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	if err := s.run(r, handle); err != nil {
		s.sendProblem(r, err)
	}
	r.endBody()
	took := time.Since(r.start)
	r.endSpan()
	s.metrics.observe(r, took-r.waited)
	s.logAccess(r, took)
	s.finish(r)
}

// requestID takes the client's own id if it is a UUID, and makes one
// otherwise: it is also the instance of problem documents.
func requestID(own string) job.ID {
	if id, err := job.ParseID(own); err == nil {
		return id
	}
	return job.ID(uuid.Must(uuid.NewV7()))
}

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (s *Server) run(r *call, handle func(*call) error) (err error) {
	s.startTime(r)
	defer func() { r.stop() }()
	defer r.leave()
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v, debug.Stack()}
		}
	}()
	if err := cmp.Or(s.checkHost(r), s.checkPage(r)); err != nil {
		return err
	}
	if err := s.admit(r); err != nil {
		return err
	}
	r.noteSubject()
	if done, err := s.disturb(r); done || err != nil {
		return err
	}
	stream := slices.Contains(r.route.produces, mimeEventStream) && r.wantsStream() // those have a limit of their own
	if r.route.method == fiber.MethodGet && !stream {                               // others once their body is there
		if err := r.enter(); err != nil {
			return err
		}
	}
	r.requireKey()
	if r.route.method == fiber.MethodGet {
		return s.read(r, handle)
	}
	if err := s.checkConditions(r); err != nil {
		return err
	}
	return handle(r)
}

// requireKey has storage refuse what a client's request changes when its key has ended by then. Changes of keys are checked by their
// use cases, under the lock of the client. A request that moves the clock of a test bed may move it beyond the end of its key.
func (r *call) requireKey() {
	if r.route.method != get && r.route.access == client && r.route.action != "move_clock" && !r.caller.Expired {
		r.base, r.ctx = job.WithKey(r.base, r.caller.KeyID), job.WithKey(r.ctx, r.caller.KeyID)
	}
}

// checkHost refuses requests for other hosts than the server's. Of a target in
// absolute form its own host counts (RFC 9112, section 3.2.2).
func (s *Server) checkHost(r *call) error {
	if s.cfg.Hosts == nil || r.route == unreadableRoute {
		return nil
	}
	for _, host := range []string{string(r.Request().Header.Host()), string(r.Request().URI().Host())} {
		if !s.cfg.Hosts(host) {
			return problem.WithStatus(fiber.StatusMisdirectedRequest, "This server is for the machine that it runs on, and the request is for "+
				"the host "+header.Clip(host)+". Call it as localhost, or set FORGERUN_PUBLIC_URL to an address with that host.")
		}
	}
	return nil
}

// checkPage refuses a change without a key that a page of a foreign origin sent: browsers send such requests without asking
// first. With a key the browser has asked (CORS).
func (s *Server) checkPage(r *call) error {
	origin := r.Get(fiber.HeaderOrigin)
	own := s.cfg.Origins.Allows(origin) || origin != "" && strings.HasPrefix(s.cfg.PublicURL+"/", origin+"/")
	safe := slices.Contains([]string{fiber.MethodGet, fiber.MethodHead, fiber.MethodOptions}, r.Method())
	if own || safe || len(r.Request().Header.Peek(fiber.HeaderAuthorization)) > 0 ||
		!localhosts.FromOtherPage(r.Method(), string(r.Request().Header.Host()), func(name string) string { return r.Get(name) }) {
		return nil
	}
	return job.Errorf(job.CodeForbidden, "A page of another origin sent this request without a key. Set FORGERUN_CORS_ORIGINS to allow it.")
}

// startTime gives the request its whole time, a second time after it has waited
// at its own wish.
func (s *Server) startTime(r *call) {
	if r.stop != nil {
		r.stop()
	}
	r.ctx, r.stop = context.WithTimeout(r.base, s.cfg.RequestTimeout)
}

// admit is what a request must pass before its route sees it.
func (s *Server) admit(r *call) error {
	if r.route.access == public {
		return nil
	}
	err := s.authenticate(r)
	s.startSpan(r)
	if err != nil {
		return err
	}
	if err := s.limitRegistrations(r); err != nil {
		return err
	}
	if err := s.limit(r); err != nil {
		return err
	}
	if err := r.checkAccept(r.route.produces...); err != nil {
		return err
	}
	return r.checkQuery()
}

func (s *Server) logAccess(r *call, took time.Duration) {
	if r.refused || r.unlogged || !s.log.Enabled(r.ctx, slog.LevelInfo) { // Admission and logRefusal log those together
		return
	}
	attrs := make([]slog.Attr, 0, 15)
	attrs = append(attrs,
		slog.String("request_id", r.idText), slog.String("client_id", idOrEmpty(r.caller.ClientID)),
		slog.String("action", r.route.action), slog.String("method", r.Method()),
		slog.String("route", r.route.path), slog.Int("status", r.Response().StatusCode()),
		slog.Duration("duration", took))
	if !r.Response().IsBodyStream() { // which would be read to its end
		attrs = append(attrs, slog.Int("bytes", len(r.Response().Body())))
	}
	attrs = r.appendSubjects(attrs)
	if r.caller.Admin {
		attrs = append(attrs, slog.Bool("admin", true), slog.String("operator", r.caller.Operator))
	}
	if r.failed != nil {
		attrs = append(attrs, slog.String("error_code", string(r.failed.Code)), slog.String("error_message", header.Clip(r.failed.Detail)))
	}
	telemetry.LogInfo(r.ctx, s.log, "request", attrs)
}

func idOrEmpty(id job.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// Limiter counts a client's requests.
type Limiter interface {
	Allow(ctx context.Context, client job.ID) job.Allowance
	// AllowItems counts the items of a request that was allowed, all or none.
	AllowItems(ctx context.Context, client job.ID, items int) job.Allowance
}

// storageSlots bound how many requests use storage at once, and divide that among
// clients: whatever one of them asks for, and however often, the others get
// theirs. Submissions have an admission of their own.
type storageSlots struct {
	lists, reads, writes *fair.Semaphore[job.ID]
}

// newStorageSlots divides n connections to storage so that all kinds together leave
// some to submissions.
func newStorageSlots(n int) storageSlots {
	return storageSlots{
		lists:  fair.New[job.ID](max(2, n/5)),
		reads:  fair.New[job.ID](max(2, 2*n/5)),
		writes: fair.New[job.ID](max(2, n/5)),
	}
}

// of gives the slots for requests of a route, nil where they need none.
func (p storageSlots) of(rt *route) *fair.Semaphore[job.ID] {
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

// enter waits until the client may use storage. The slot is given back by
// leave, at the end of the request at the latest.
func (r *call) enter() error {
	p := r.server.slots.of(r.route)
	if p == nil || r.slot != nil {
		return nil
	}
	if p.TryAcquire(r.caller.ClientID) {
		r.slot = p
		return nil
	}
	// Half of the time is left to what the slot is for.
	ctx, cancel := context.WithTimeout(r.ctx, r.server.cfg.RequestTimeout/2)
	defer cancel()
	if !p.Acquire(r.caller.ClientID, ctx.Done()) {
		r.noSlot = true
		err := job.Errorf(job.CodeQueueFull, "Too many requests of this client or of others are under way. Send fewer at once.")
		err.RetryAfter = time.Second
		return err
	}
	r.slot = p
	return nil
}

func (r *call) leave() {
	if r.slot != nil {
		r.slot.Release(r.caller.ClientID)
		r.slot = nil
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
