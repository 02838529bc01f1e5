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
	f, err := httpkit.Decoded(r, true, func(body []byte) (decode.Faults, error) { return decode.FaultRules(body, operations()) })
	if err != nil {
		return err
	}
	scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
	if err != nil {
		return err
	}
	return httpkit.Respond(r, fiber.StatusOK, faultViews)(s.Testbed.ReplaceFaults(r.Ctx, scope, f.Seed, f.Rules, f.Profile))
}

// inSession wraps a handler that needs the request's session. The header ForgeRun-Session has the session's label. A request without the
// header belongs to the session without a label.
func (s *API) inSession(handle func(r *httpkit.Request, scope testbed.Scope) error) httpkit.Handler {
	return func(r *httpkit.Request) error {
		scope, err := s.session(r.Ctx, visitOf(r), r.Caller.ClientID)
		if err != nil {
			return err
		}
		return handle(r, scope)
	}
}

func (s *API) listFaults(r *httpkit.Request, scope testbed.Scope) error {
	return httpkit.Respond(r, fiber.StatusOK, faultViews)(s.Testbed.Faults(r.Ctx, scope))
}

func (s *API) removeFaults(r *httpkit.Request, scope testbed.Scope) error {
	r.Status(fiber.StatusNoContent)
	return s.Testbed.RemoveFaults(r.Ctx, scope)
}

func (s *API) removeFault(r *httpkit.Request, scope testbed.Scope) error {
	r.Status(fiber.StatusNoContent)
	return s.Testbed.RemoveFault(r.Ctx, scope, r.PathID())
}

var operations = sync.OnceValue(func() (names []string) {
	for at, name := range docs.Operations() {
		if _, path, _ := strings.Cut(at, " "); strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/testbed/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

func operationOf(rt *httpkit.Route) string {
	return docs.Operations()[rt.Method+" "+strings.Join(rt.Segments(), "/")]
}

const headerFault = "ForgeRun-Fault"

// findFault sets v.fault. A fault that an earlier request left on the connection takes precedence over the ForgeRun-Fault header. The
// header takes precedence over the client's rules.
func (s *API) findFault(v *visit) error {
	own := strings.HasPrefix(v.Route.Path, "/v1/testbed/")
	if v.fault = v.pendingFault(own); v.fault != nil || v.Caller.ClientID.IsZero() || own {
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

// subjectOf identifies the request by its idempotency key or, without a key, by its body. A large body is not read, because the request
// may still be refused; subjectOf uses the Content-Length instead. It ignores errors in the body, which the handler reports.
func subjectOf(r *httpkit.Request) string {
	key, body := r.Request().Header.Peek("Idempotency-Key"), r.Request().Header.Peek(fiber.HeaderContentLength)
	if len(key) == 0 && r.Request().Header.ContentLength() <= httpkit.SmallBody {
		body, _ = r.ReadBody()
	}
	return fault.Subject(r.Method(), string(r.Request().URI().Path()), key, body)
}

func inHeader(name string, err error) error {
	if known, ok := errors.AsType[*job.Error](err); ok {
		wrong := *known
		wrong.Detail = "The header " + name + ": " + known.Detail
		return &wrong
	}
	return err
}

// Before applies the faults that delay the request or replace its handling. `done` reports whether the response is already complete.
func (s *API) Before(r *httpkit.Request) (done bool, err error) {
	v := visitOf(r)
	if err := s.findFault(v); err != nil || v.fault == nil {
		return false, err
	}
	e := v.fault
	r.Hides, r.Rewrite = e.Unfinished, e.Rewrites()
	v.deferFault()
	if e.Held() > 0 || e.SlowBytes > 0 {
		if err := s.slow(v, e.Wait()); err != nil {
			return false, err
		}
	}
	if e.Replaces() && r.Request().BodyStream() != nil {
		_, _ = r.ReadBody() // records the request body; ignore the error: the fault replaces the response anyway
	}
	switch {
	case e.Unanswered():
		return true, nil
	case e.Moved != 0:
		path := string(r.Request().URI().RequestURI())
		to := s.Links.At(path)
		if other := v.elsewhere(); other != "" {
			public, _ := url.Parse(s.PublicURL) // cannot fail: the URL was checked before
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

// slow takes a stream slot until the response is sent. It waits for d or until the client hangs up. Afterwards the time limit of the
// request restarts, and the API key is checked again.
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
	if _, err := r.ReadBody(); err != nil { // a hang-up is detected only after the whole body was read
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

// After records the request, and applies faults to the response.
func (s *API) After(r *httpkit.Request) {
	v := visitOf(r)
	if v.fault != nil && !r.Streams {
		if disturb.Rewrites(v.fault, r.Response()) {
			r.Response().Header.Del(fiber.HeaderETag) // the rewritten response is another representation
		}
		v.setRetryAfter()
	}
	later := s.record(v)
	if v.fault != nil && v.fault.Refuse > 0 {
		r.Response().Header.SetConnectionClose() // closes this request's connection after the response
		s.RefuseConnections(time.Duration(v.fault.Refuse))
	}
	if v.fault != nil && !r.Streams { // streams apply faults while writing
		disturb.Response(s.Waits.Context(), v.fault, r.Context(), later)
	}
	if v.slowFault == nil {
		return
	}
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.Streams || v.fault == nil || !sentLater(v.fault) {
		v.slowFault()
		return
	}
	c.OnClose.Store(&v.slowFault) // keep the stream slot until the slow response is sent and the connection closes
}

// sentLater reports whether the response is slow or stalled. Such a response is sent after the method After has returned.
func sentLater(e *fault.Effect) bool {
	return e.SlowBytes > 0 && e.Close == "" || e.Close == fault.CloseStall
}

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

// elsewhere returns another local origin to redirect to, or "". It never returns a foreign host, even if the client's Host header names
// one.
func (v *visit) elsewhere() string {
	other := wire.OtherName(string(v.Request.Request().Header.Host()))
	if other == "" || !v.fault.OtherHost {
		return ""
	}
	return "http://" + other
}

// showFault handles a hidden GET of a rule. The check of If-Match and If-None-Match calls it before a DELETE of the rule.
func (s *API) showFault(r *httpkit.Request, scope testbed.Scope) error {
	rules, err := s.Testbed.Faults(r.Ctx, scope)
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
