package testbed

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

var labelQuery = []query.Parameter{{Name: "label", Valid: verdict.ValidLabel, Want: "the label of a session"}}

const headerSession = "ForgeRun-Session"

// session returns the session that a request and its new jobs belong to. The header has the label of the session. Without the header,
// session returns the session without a label.
func (s *API) session(ctx context.Context, v *visit, client job.ID) (testbed.Scope, error) {
	if !v.Has(headerSession) {
		return testbed.Scope{Client: client}, nil
	}
	if v.session.Client == client {
		return v.session, nil
	}
	label, err := decode.Label(v.List(headerSession))
	if err != nil {
		return testbed.Scope{}, inHeader(headerSession, err)
	}
	request := ""
	if v.Route.Method == httpkit.Post {
		request = v.ID
	}
	scope, err := s.Testbed.Enter(ctx, client, label, request)
	switch {
	case job.CodeOf(err) == job.CodeValidationFailed:
		return testbed.Scope{}, inHeader(headerSession, err)
	case err != nil:
		return testbed.Scope{}, err
	}
	v.session = scope
	return scope, nil
}

func (s *API) startSession(r *httpkit.Request) error {
	n, err := httpkit.Decoded(r, true, func(body []byte) (verdict.Session, error) { return decode.Session(body, verdict.IDs()) })
	if err != nil {
		return err
	}
	began, err := s.Testbed.StartSession(r.Ctx, r.Caller.ClientID, n)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderLocation, s.Links.At(sessionsPath+"/"+began.ID))
	return r.JSON(fiber.StatusCreated, began)
}

func (s *API) listSessions(r *httpkit.Request) error {
	var label *string
	if text := r.Query("label"); text != "" {
		label = &text
	}
	return httpkit.Respond(r, fiber.StatusOK, func(all []verdict.Session) query.List[verdict.Session] {
		return query.ListOf(all, verdict.MaxSessions, httpkit.As[verdict.Session])
	})(s.Testbed.Sessions(r.Ctx, r.Caller.ClientID, label))
}

var asVerdict = []string{fiber.MIMEApplicationJSON, httpkit.ProblemMedia, fiber.MIMEApplicationXML, fiber.MIMETextHTML}

// getVerdict responds in the format that the client prefers: JSON, JUnit XML or HTML.
func (s *API) getVerdict(r *httpkit.Request) error {
	v, err := s.Testbed.Verdict(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	accept := r.List(fiber.HeaderAccept)
	r.Response().ResetBody()
	switch {
	case header.Prefers(accept, fiber.MIMETextHTML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMETextHTML) // no charset: the page declares its encoding
		return report.HTML(r.Response().BodyWriter(), &v)
	case header.Prefers(accept, fiber.MIMEApplicationXML, fiber.MIMEApplicationJSON):
		r.Set(fiber.HeaderContentType, fiber.MIMEApplicationXML)
		return report.JUnit(r.Response().BodyWriter(), &v)
	}
	return r.JSON(fiber.StatusOK, v)
}

// journalsAtOnce limits how many journals a process sends at the same time. While a journal is sent, all records of its session are in
// memory.
const journalsAtOnce = 2

// getJournal streams the records on which the verdict is based.
func (s *API) getJournal(r *httpkit.Request) error {
	who := r.Caller.ClientID
	if !s.journals.Acquire(who, r.Ctx.Done()) {
		return job.Errorf(job.CodeTimeout, "The server is reading too many other journals. Try again.")
	}
	v, err := s.Testbed.Verdict(r.Ctx, who, r.PathID())
	if err != nil {
		s.journals.Release(who)
		return err
	}
	conn := r.Context().Conn()
	r.Set(fiber.HeaderContentType, report.JournalType)
	r.Response().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer s.journals.Release(who)
		_ = report.Journal(patient{w, conn, s.StallTimeout}, &v) // an error means that the client has hung up
	})
	return nil
}

// patient is a writer that restarts the write deadline for each piece.
type patient struct {
	io.Writer
	conn  net.Conn
	stall time.Duration
}

func (p patient) Write(piece []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(p.stall)) // if this fails, Write fails too
	return p.Writer.Write(piece)
}
