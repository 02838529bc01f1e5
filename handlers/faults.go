package handlers

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

func faultViews(rules []fault.Counted) query.List[fault.View] {
	return query.ListOf(rules, fault.MaxRules, fault.ViewOf)
}

func (s *Server) replaceFaults(r *call) error {
	body, err := r.body(true)
	if err != nil {
		return err
	}
	f, err := decode.FaultRules(body, operations())
	if err != nil {
		return err
	}
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return respond(r, fiber.StatusOK, faultViews)(s.deps.Testbed.ReplaceFaults(r.ctx, of, f.Seed, f.Rules, f.Profile))
}

func (s *Server) listFaults(r *call) error {
	return respond(r, fiber.StatusOK, faultViews)(s.faults(r))
}

// faults are the rules of the session that the header names, or of the one without a label.
func (s *Server) faults(r *call) ([]fault.Counted, error) {
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return nil, err
	}
	return s.deps.Testbed.Faults(r.ctx, of)
}

func (s *Server) removeFaults(r *call) error {
	r.Status(fiber.StatusNoContent)
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return s.deps.Testbed.RemoveFaults(r.ctx, of)
}

func (s *Server) removeFault(r *call) error {
	r.Status(fiber.StatusNoContent)
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	return s.deps.Testbed.RemoveFault(r.ctx, of, r.pathID())
}

// operations are those that a rule may name.
var operations = sync.OnceValue(func() (names []string) {
	for at, name := range docs.Operations() {
		if _, path, _ := strings.Cut(at, " "); strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/testbed/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// operation is the operationId of the request in the OpenAPI document.
func (rt *route) operation() string {
	return docs.Operations()[rt.method+" "+strings.Join(rt.segments(), "/")]
}

// headerFault asks for an effect on the one request that carries it.
const headerFault = "ForgeRun-Fault"

// injected is the error of a request that a client wanted to fail so.
type injected struct{ wanted *job.Error }

func (e injected) Error() string { return e.wanted.Error() }

// findFault notes what a test bed is to do to the request: what its header says, or else the client's rules.
func (s *Server) findFault(r *call) error {
	own := strings.HasPrefix(r.route.path, "/v1/testbed/")
	if r.fault = r.leftFault(own); r.fault != nil || s.deps.Testbed == nil || r.caller.ClientID.IsZero() || own {
		return nil
	}
	of, err := s.session(r.ctx, r, r.caller.ClientID)
	if err != nil {
		return err
	}
	if text := r.Request().Header.Peek(headerFault); len(text) > 0 {
		e, err := decode.Fault(text)
		if err != nil {
			return inHeader(headerFault, err)
		}
		r.fault = &e
		return nil
	}
	r.fault, err = s.deps.Testbed.Fault(r.ctx, of, r.route.operation(), r.subject())
	return err
}

// subject names what the request is about. Without a key it reads the body, unless that is announced as a large one, which may be
// refused unread: then its length stands for it. The handler reports what is wrong with the body.
func (r *call) subject() string {
	key, body := r.Request().Header.Peek("Idempotency-Key"), r.Request().Header.Peek(fiber.HeaderContentLength)
	if len(key) == 0 && r.Request().Header.ContentLength() <= smallBody {
		body, _ = r.readBody()
	}
	return fault.Subject(r.Method(), string(r.Request().URI().Path()), key, body)
}

// inHeader says that it is the header which is wrong.
func inHeader(name string, err error) error {
	if known, ok := errors.AsType[*job.Error](err); ok {
		wrong := *known
		wrong.Detail = "The header " + name + ": " + known.Detail
		return &wrong
	}
	return err
}

// disturb does what comes before the work, or instead of it; done says that the request has its answer.
func (s *Server) disturb(r *call) (done bool, err error) {
	if err := s.findFault(r); err != nil || r.fault == nil {
		return false, err
	}
	e := r.fault
	r.leaveFault()
	if e.Held() > 0 || e.SlowBytes > 0 {
		if err := s.slow(r, e.Wait()); err != nil {
			return false, err
		}
	}
	if e.Replaces() && r.Request().BodyStream() != nil {
		_, _ = r.readBody() // for the record; that it is wrong is not what the client wanted to hear
	}
	switch {
	case e.Unanswered():
		return true, nil
	case e.Moved != 0:
		path := string(r.Request().URI().RequestURI())
		to := s.links.At(path)
		if other := r.elsewhere(); other != "" {
			public, _ := url.Parse(s.cfg.PublicURL) // which is one
			to = other + public.EscapedPath() + path
		}
		r.Set(fiber.HeaderLocation, to)
		r.Status(e.Moved)
		return true, nil
	case e.HTML:
		r.Set(fiber.HeaderContentType, fiber.MIMETextHTML)
		status := cmp.Or(e.Status, fiber.StatusBadGateway)
		return true, r.Status(status).Send(wire.Page(status))
	case e.Replaces():
		return true, injected{&job.Error{Code: testbed.ErrorOf(e)}}
	}
	return false, nil
}

// slow takes a place among what the client holds open, until the answer is sent, and keeps the client waiting for so long, or until it
// hangs up. The request's time begins anew afterwards, and its key must still be good.
func (s *Server) slow(r *call, d time.Duration) error {
	release, err := s.limiter.Acquire(r.caller.ClientID)
	if err != nil {
		r.fault = nil
		return err
	}
	r.slowFault = release
	if d == 0 {
		return nil
	}
	if _, err := r.readBody(); err != nil { // what is read to its end shows that the client hangs up
		return err
	}
	gone := make(chan struct{})
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(func() { close(gone) })()
	}
	select {
	case <-time.After(d):
	case <-gone:
		r.hungUp = true
	case <-s.limiter.Context().Done():
	}
	s.startTime(r)
	return s.authenticateAgain(r)
}

// finish records the request, and does what its fault wants after the work.
func (s *Server) finish(r *call) {
	if r.fault != nil && !r.streams {
		if disturb.Rewrites(r.fault, r.Response()) {
			r.Response().Header.Del(fiber.HeaderETag) // it is another representation
		}
		r.setRetryAfter()
	}
	later := s.record(r)
	if r.fault != nil && r.fault.Refuse > 0 {
		s.refuseConnections(r)
	}
	if r.fault != nil && !r.streams { // those have theirs disturbed on their way
		disturb.Answer(s.limiter.Context(), r.fault, r.Context(), later)
	}
	if r.slowFault == nil {
		return
	}
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.streams || r.fault == nil || !sentLater(r.fault) {
		r.slowFault()
		return
	}
	c.OnClose.Store(&r.slowFault) // the connection ends with the slow answer
}

// unfinished reports whether the answer hides that a job has ended.
func (r *call) unfinished() bool { return r.fault != nil && r.fault.Unfinished }

// sentLater reports whether the client waits for the end of an answer that has begun.
func sentLater(e *fault.Effect) bool {
	return e.SlowBytes > 0 && e.Close == "" || e.Close == fault.CloseStall
}

// setRetryAfter sets the Retry-After that the fault asks for, if any.
func (r *call) setRetryAfter() {
	lines, set := r.fault.RetryAfterLines(time.Now())
	if !set {
		return
	}
	r.Response().Header.Del(fiber.HeaderRetryAfter)
	for _, line := range lines {
		r.Response().Header.Add(fiber.HeaderRetryAfter, line)
	}
}

// toldToWait returns the seconds of the answer's Retry-After as a right client understands it; nil if there is none that is valid.
func (r *call) toldToWait() *int {
	lines := r.Response().Header.PeekAll(fiber.HeaderRetryAfter)
	if len(lines) != 1 {
		return nil
	}
	if n, err := strconv.ParseUint(string(lines[0]), 10, 31); err == nil {
		return new(int(n))
	}
	if at, err := fasthttp.ParseHTTPDate(lines[0]); err == nil {
		return new(max(0, int(time.Until(at).Seconds())))
	}
	return nil
}

// elsewhere returns the origin to which a fault moves the request: another name of this machine than that by which the client came. It
// is "" for any other name, which is the client's own word.
func (r *call) elsewhere() string {
	if !r.fault.OtherHost {
		return ""
	}
	host := string(r.Request().Header.Host())
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return ""
	} else {
		port = ":" + port
	}
	switch strings.ToLower(name) {
	case "localhost":
		return "http://127.0.0.1" + port
	case "127.0.0.1", "::1":
		return "http://localhost" + port
	}
	return ""
}
