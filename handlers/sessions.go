package handlers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/report"
)

const sessionsPath = "/v1/testbed/sessions"

// sessionRoutes are those by which clients have their traffic judged.
func (s *Server) sessionRoutes() []route {
	return []route{
		{fiber.MethodPost, sessionsPath, client, "start_session", nil, asJSON, fiber.StatusCreated, s.once(s.startSession)},
		{get, sessionsPath, client, "list_sessions", labelQuery, asJSON, fiber.StatusOK, s.listSessions},
		{get, sessionsPath + "/:id", client, "get_session", nil, asJSON, fiber.StatusOK, answering(s.deps.Testbed.Session, as[verdict.Session])},
		{fiber.MethodPost, sessionsPath + "/:id/end", client, "end_session", nil, asJSON, fiber.StatusOK,
			s.once(noBody(answering(s.deps.Testbed.EndSession, as[verdict.Session])))},
		{get, sessionsPath + "/:id/verdict", client, "get_verdict", nil, asVerdict, fiber.StatusOK, s.getVerdict},
		{get, sessionsPath + "/:id/journal", client, "get_journal", nil, []string{report.JournalType, mimeProblem}, fiber.StatusOK, s.getJournal},
	}
}

// labelQuery chooses the sessions with a label.
var labelQuery = []query.Parameter{{Name: "label", Valid: verdict.ValidLabel, Want: "the label of a session"}}

// headerSession names the label of the session to which a request belongs.
const headerSession = "ForgeRun-Session"

// session finds the session to which a request of a client belongs, and the jobs that it makes: the one that its header names, or the
// one without a label.
func (s *Server) session(ctx context.Context, r *call, client job.ID) (testbed.Scope, error) {
	if !r.has(headerSession) {
		return testbed.Scope{Client: client}, nil
	}
	if r.session.Client == client {
		return r.session, nil
	}
	label, err := decode.Label(r.list(headerSession))
	if err != nil {
		return testbed.Scope{}, inHeader(headerSession, err)
	}
	request := ""
	if r.route.method == post {
		request = r.idText
	}
	of, err := s.deps.Testbed.Enter(ctx, client, label, request)
	switch {
	case job.CodeOf(err) == job.CodeValidationFailed:
		return testbed.Scope{}, inHeader(headerSession, err)
	case err != nil:
		return testbed.Scope{}, err
	}
	r.session = of
	return of, nil
}

func (s *Server) startSession(r *call) error {
	n, err := decoded(r, true, func(body []byte) (verdict.Session, error) { return decode.Session(body, verdict.IDs()) })
	if err != nil {
		return err
	}
	began, err := s.deps.Testbed.StartSession(r.ctx, r.caller.ClientID, n)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderLocation, s.links.At(sessionsPath+"/"+began.ID))
	return r.json(fiber.StatusCreated, began)
}

func (s *Server) listSessions(r *call) error {
	var label *string
	if text := r.Query("label"); text != "" {
		label = &text
	}
	return respond(r, fiber.StatusOK, func(all []verdict.Session) query.List[verdict.Session] {
		return query.ListOf(all, verdict.MaxSessions, as[verdict.Session])
	})(s.deps.Testbed.Sessions(r.ctx, r.caller.ClientID, label))
}

// asVerdict are the forms of a verdict.
var asVerdict = []string{fiber.MIMEApplicationJSON, mimeProblem, fiber.MIMEApplicationXML, fiber.MIMETextHTML}

// getVerdict answers in the form that the client prefers: JSON, JUnit XML, or a page.
func (s *Server) getVerdict(r *call) error {
	v, err := s.deps.Testbed.Verdict(r.ctx, r.caller.ClientID, r.pathID())
	if err != nil {
		return err
	}
	accept := r.list(fiber.HeaderAccept)
	r.Response().ResetBody()
	switch {
	case header.Prefers(accept, fiber.MIMETextHTML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMETextHTML) // the page names its encoding
		return report.HTML(r.Response().BodyWriter(), &v)
	case header.Prefers(accept, fiber.MIMEApplicationXML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMEApplicationXML)
		return report.JUnit(r.Response().BodyWriter(), &v)
	}
	return r.json(fiber.StatusOK, v)
}

// journalsAtOnce is how many journals a process sends at a time: each holds what its session has recorded.
const journalsAtOnce = 2

// getJournal answers with what the verdict is about, as fast as the client takes it.
func (s *Server) getJournal(r *call) error {
	who := r.caller.ClientID
	if !s.journals.Acquire(who, r.ctx.Done()) {
		return job.Errorf(job.CodeTimeout, "Other journals were read all the time. Try again.")
	}
	v, err := s.deps.Testbed.Verdict(r.ctx, who, r.pathID())
	if err != nil {
		s.journals.Release(who)
		return err
	}
	conn := r.Context().Conn()
	r.Set(fiber.HeaderContentType, report.JournalType)
	r.Response().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer s.journals.Release(who)
		_ = report.Journal(patient{w, conn, s.cfg.StallTimeout}, &v) // the client has gone
	})
	return nil
}

// patient gives the reader of a connection the same time for each piece.
type patient struct {
	io.Writer
	conn  net.Conn
	stall time.Duration
}

func (p patient) Write(piece []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(p.stall)) // the write tells
	return p.Writer.Write(piece)
}

// keyPrefix begins every API key.
const keyPrefix = "frk_"

// sum names a text without keeping it, "" for none.
func sum(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:8])
}

// noteBody keeps what a record says of the body, which is gone by then.
func (r *call) noteBody(body []byte) {
	if r.server.deps.Testbed == nil {
		return
	}
	var named struct {
		Key         string `json:"idempotency_key"`
		Correlation string `json:"correlation_id"`
	}
	_ = json.Unmarshal(body, &named) // what is no JSON names nothing
	r.bodyKey, r.bodyCorrelation = named.Key, named.Correlation
	if len(body) > 0 {
		same := jsontext.Value(body).Clone()
		_ = same.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // what is no JSON stays as it is
		r.bodySum = sum(same)
	}
}

// record records the request in its client's session, if that has one: before the answer is sent, so that who has it finds the record.
// Of an answer that is sent slowly it returns how to do so, once it is known whether the client has waited.
func (s *Server) record(r *call) (later func(hungUp bool)) {
	if r.streams || !s.recorded(r) {
		return func(bool) {}
	}
	x := r.exchange()
	who := cmp.Or(r.caller, r.claimed)
	if x.KeyInURL && who.ClientID.IsZero() { // who is not known by the Authorization header
		for _, value := range r.Context().QueryArgs().All() {
			if bytes.HasPrefix(value, []byte(keyPrefix)) { // the first alone: strangers may send many
				who, _ = s.tryKey(s.base, r, string(value)) // whose it is not is nobody's
				break
			}
		}
	}
	of := s.recordIn(r, who.ClientID)
	if r.fault != nil && sentLater(r.fault) {
		return func(hungUp bool) {
			if x.HungUp = x.HungUp || hungUp; r.fault.Close == fault.CloseStall {
				x.End = time.Now().UTC()
			}
			s.keep(of, x)
		}
	}
	s.keep(of, x)
	return func(bool) {}
}

// recorded reports whether the traffic of a route is recorded. Of the test bed's own that is a reset alone: it begins anew.
func (s *Server) recorded(r *call) bool {
	return s.deps.Testbed != nil && r.route.access != public &&
		(!strings.HasPrefix(r.route.path, "/v1/testbed/") || r.route.path == resetPath)
}

// recordIn is the session in which a request of a client is recorded, zero if that cannot be found. A header that is wrong has its
// answer, and no other effect.
func (s *Server) recordIn(r *call, client job.ID) testbed.Scope {
	if client.IsZero() {
		return testbed.Scope{}
	}
	ctx, cancel := s.recordTime()
	defer cancel()
	of, err := s.session(ctx, r, client)
	if job.CodeOf(err) == job.CodeValidationFailed {
		return testbed.Scope{Client: client}
	}
	s.logUnrecorded(ctx, client, err)
	return of
}

// keep stores a record, if it is of a session. That it cannot be is no error of the request.
func (s *Server) keep(of testbed.Scope, x *verdict.Exchange) {
	if of.Client.IsZero() {
		return
	}
	ctx, cancel := s.recordTime()
	defer cancel()
	s.logUnrecorded(ctx, of.Client, s.deps.Testbed.Record(ctx, of, x))
}

// recordTime is for what is done once a request has its answer.
func (s *Server) recordTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.base), s.cfg.RequestTimeout)
}

func (s *Server) logUnrecorded(ctx context.Context, client job.ID, err error) {
	if err != nil {
		s.log.WarnContext(ctx, "a request was not recorded for its client's session", "action", "record_exchange",
			"client_id", client.String(), "error", err.Error())
	}
}

// kept is text as a record has it: without secrets, bounded, and such that a database can hold it.
func kept(keep func(string) string, text string) string { return header.Clip(keep(text)) }

// exchange tells of the request and its answer, without what is secret in them.
func (r *call) exchange() *verdict.Exchange {
	request, answer, operation := r.Request(), r.Response(), r.route.operation()
	x := &verdict.Exchange{
		Start: r.start.UTC(), End: time.Now().UTC(), Method: r.Method(),
		Host: kept(redact.Keep, string(request.Header.Host())), Path: kept(redact.KeepURL, string(request.URI().Path())),
		Operation: operation, Role: testbed.RoleOf(operation), Body: r.bodySum,
		Correlation: kept(redact.Keep, cmp.Or(r.list("X-Correlation-ID"), r.bodyCorrelation)),
		Prefer:      kept(redact.Keep, r.list("Prefer")),
		Key:         sum([]byte(cmp.Or(r.list("Idempotency-Key"), r.bodyKey))), ContentType: kept(redact.Keep, r.Get(fiber.HeaderContentType)),
		Accept: kept(redact.Keep, r.list(fiber.HeaderAccept)), IfNoneMatch: kept(redact.Keep, r.list(fiber.HeaderIfNoneMatch)),
		LastEventID: kept(redact.Keep, r.list("Last-Event-ID")), KeyID: cmp.Or(r.caller, r.claimed).KeyID,
		Closes: r.Request().ConnectionClose(), Agent: kept(redact.Keep, r.Get(fiber.HeaderUserAgent)),
		Connection: r.Context().ConnID(), Reused: r.Context().ConnRequestNum() > 1,
		Status: answer.StatusCode(), ETag: string(answer.Header.Peek(fiber.HeaderETag)),
		RetryAfter: r.toldToWait(), Fault: r.fault, HungUp: r.hungUp,
	}
	if _, span := r.traceparent(); span.IsValid() {
		x.Trace = span.TraceID().String()
	}
	query := string(request.URI().QueryString())
	if plain, err := url.QueryUnescape(query); strings.Contains(query, keyPrefix) || err == nil && strings.Contains(plain, keyPrefix) ||
		bytes.Contains(request.URI().Path(), []byte(keyPrefix)) {
		x.KeyInURL = true
	} else {
		x.Query = kept(redact.KeepQuery, query)
	}
	if known(r.jobID) {
		x.Job = r.jobID.String()
	} else if id := cmp.Or(r.batchID, r.bulkID); known(id) {
		x.Job = id.String()
	}
	if r.failed != nil {
		x.Code, x.Expired = string(r.failed.Code), r.failed.Code == job.CodeTokenExpired && r.fault == nil
	}
	if r.fault != nil && r.fault.Moved != 0 && x.Status == r.fault.Moved {
		x.Location = strings.TrimSuffix(r.elsewhere()+x.Path+"?"+x.Query, "?")
	}
	r.shown(x)
	return x
}
