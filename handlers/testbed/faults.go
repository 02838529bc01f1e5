package testbed

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

func faultViews(rules []fault.Counted) query.List[fault.View] {
	return query.ListOf(rules, fault.MaxRules, fault.ViewOf)
}

func (s *API) replaceFaults(r *httpkit.Request) error {
	body, err := r.JSONBody(true)
	if err != nil {
		return err
	}
	f, err := decode.FaultRules(body, operations())
	if err != nil {
		return err
	}
	scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
	if err != nil {
		return err
	}
	return httpkit.Respond(r, fiber.StatusOK, faultViews)(s.Testbed.ReplaceFaults(r.Ctx, scope, f.Seed, f.Rules, f.Profile))
}

func (s *API) listFaults(r *httpkit.Request) error {
	return httpkit.Respond(r, fiber.StatusOK, faultViews)(s.faults(r))
}

// faults are the rules of the session that the header names, or of the one without a label.
func (s *API) faults(r *httpkit.Request) ([]fault.Counted, error) {
	scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
	if err != nil {
		return nil, err
	}
	return s.Testbed.Faults(r.Ctx, scope)
}

func (s *API) removeFaults(r *httpkit.Request) error {
	r.Status(fiber.StatusNoContent)
	scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
	if err != nil {
		return err
	}
	return s.Testbed.RemoveFaults(r.Ctx, scope)
}

func (s *API) removeFault(r *httpkit.Request) error {
	r.Status(fiber.StatusNoContent)
	scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
	if err != nil {
		return err
	}
	return s.Testbed.RemoveFault(r.Ctx, scope, r.PathID())
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

// operationOf returns the operationId of the request in the OpenAPI document.
func operationOf(rt *httpkit.Route) string {
	return docs.Operations()[rt.Method+" "+strings.Join(rt.Segments(), "/")]
}

// headerFault asks for an effect on the one request that carries it.
const headerFault = "ForgeRun-Fault"

// findFault notes what a test bed is to do to the request: what its header says, or else the client's rules.
func (s *API) findFault(v *visit) error {
	own := strings.HasPrefix(v.Route.Path, "/v1/testbed/")
	if v.fault = v.leftFault(own); v.fault != nil || v.Caller.ClientID.IsZero() || own {
		return nil
	}
	scope, err := s.session(v.Ctx, v, v.Caller.ClientID)
	if err != nil {
		return err
	}
	if text := v.Request.Request().Header.Peek(headerFault); len(text) > 0 {
		e, err := decode.Fault(text)
		if err != nil {
			return inHeader(headerFault, err)
		}
		v.fault = &e
		return nil
	}
	v.fault, err = s.Testbed.Fault(v.Ctx, scope, operationOf(v.Route), subjectOf(v.Request))
	return err
}

// subjectOf names what the request is about. Without a key it reads the body, unless that is announced as a large one, which may be
// refused unread: then its length stands for it. The handler reports what is wrong with the body.
func subjectOf(r *httpkit.Request) string {
	key, body := r.Request().Header.Peek("Idempotency-Key"), r.Request().Header.Peek(fiber.HeaderContentLength)
	if len(key) == 0 && r.Request().Header.ContentLength() <= httpkit.SmallBody {
		body, _ = r.ReadBody()
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

// Before does what comes before the work, or instead of it; done says that the request has its answer.
func (s *API) Before(r *httpkit.Request) (done bool, err error) {
	v := visitOf(r)
	if err := s.findFault(v); err != nil || v.fault == nil {
		return false, err
	}
	e := v.fault
	r.Hides, r.Rewrite = e.Unfinished, e.Rewrites()
	v.leaveFault()
	if e.Held() > 0 || e.SlowBytes > 0 {
		if err := s.slow(v, e.Wait()); err != nil {
			return false, err
		}
	}
	if e.Replaces() && r.Request().BodyStream() != nil {
		_, _ = r.ReadBody() // for the record; that it is wrong is not what the client wanted to hear
	}
	switch {
	case e.Unanswered():
		return true, nil
	case e.Moved != 0:
		path := string(r.Request().URI().RequestURI())
		to := s.Links.At(path)
		if other := v.elsewhere(); other != "" {
			public, _ := url.Parse(s.PublicURL) // which is one
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
		return true, httpkit.Wanted{Code: testbed.ErrorOf(e)}
	}
	return false, nil
}

// slow takes a place among what the client holds open, until the answer is sent, and keeps the client waiting for so long, or until it
// hangs up. The request's time begins anew afterwards, and its key must still be good.
func (s *API) slow(v *visit, d time.Duration) error {
	r := v.Request
	release, err := s.Waits.Acquire(r.Caller.ClientID)
	if err != nil {
		v.fault = nil
		return err
	}
	v.slowFault = release
	if d == 0 {
		return nil
	}
	if _, err := r.ReadBody(); err != nil { // what is read to its end shows that the client hangs up
		return err
	}
	gone := make(chan struct{})
	if c, ok := r.Context().Conn().(*conn.Conn); ok {
		defer c.WhenGone(func() { close(gone) })()
	}
	select {
	case <-time.After(d):
	case <-gone:
		v.hungUp = true
	case <-s.Waits.Context().Done():
	}
	return r.Resume()
}

// After records the request, and does what its fault wants after the work.
func (s *API) After(r *httpkit.Request) {
	v := visitOf(r)
	if v.fault != nil && !r.Streams {
		if disturb.Rewrites(v.fault, r.Response()) {
			r.Response().Header.Del(fiber.HeaderETag) // it is another representation
		}
		v.setRetryAfter()
	}
	later := s.record(v)
	if v.fault != nil && v.fault.Refuse > 0 {
		r.Response().Header.SetConnectionClose() // of this request, after its answer
		s.RefuseConnections(time.Duration(v.fault.Refuse))
	}
	if v.fault != nil && !r.Streams { // those have theirs disturbed on their way
		disturb.Answer(s.Waits.Context(), v.fault, r.Context(), later)
	}
	if v.slowFault == nil {
		return
	}
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.Streams || v.fault == nil || !sentLater(v.fault) {
		v.slowFault()
		return
	}
	c.OnClose.Store(&v.slowFault) // the connection ends with the slow answer
}

// sentLater reports whether the client waits for the end of an answer that has begun.
func sentLater(e *fault.Effect) bool {
	return e.SlowBytes > 0 && e.Close == "" || e.Close == fault.CloseStall
}

// setRetryAfter sets the Retry-After that the fault asks for, if any.
func (v *visit) setRetryAfter() {
	lines, set := v.fault.RetryAfterLines(time.Now())
	if !set {
		return
	}
	v.Response().Header.Del(fiber.HeaderRetryAfter)
	for _, line := range lines {
		v.Response().Header.Add(fiber.HeaderRetryAfter, line)
	}
}

// elsewhere returns the origin to which a fault moves the request: another name of this machine than that by which the client came. It
// is "" for any other name, which is the client's own word.
func (v *visit) elsewhere() string {
	other := wire.OtherName(string(v.Request.Request().Header.Host()))
	if other == "" || !v.fault.OtherHost {
		return ""
	}
	return "http://" + other
}

// showFault answers as GET of one rule would, which there is not.
func (s *API) showFault(r *httpkit.Request) error {
	rules, err := s.faults(r)
	if err != nil {
		return err
	}
	id := r.PathID().String()
	for _, rule := range rules {
		if rule.ID == id {
			return nil
		}
	}
	return job.Errorf(job.CodeRequestNotFound, "No rule with this id was found.")
}
