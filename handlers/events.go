package handlers

import (
	"context"
	"encoding/binary"
	"net"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Events are the use cases of watching.
type Events interface {
	// JobEvents reads events of a job after the given seq: at most limit, and
	// fewer where they are large.
	JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error)
	// ClientEvents reads in the same way events of all of a client's jobs and
	// batches after the given position. Nothing will ever appear between the
	// position and what it answers with.
	ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error)
	// FeedEnd is the position after everything that ClientEvents can give now.
	FeedEnd(ctx context.Context) (job.Position, error)
	// Watch receives the notifications of one job, or with the zero id of all of a
	// client's jobs and batches, until stop is called. Some may be late and others
	// come twice; what is not received in time is merged. Progress comes of single
	// jobs only.
	Watch(client, id job.ID) (notifications <-chan job.Notification, stop func())
}

// jobEvents answers with the events of one job, as a list or a stream.
func (s *Server) jobEvents(r *call) error {
	from := &jobSource{server: s, client: r.caller.ClientID, job: r.jobID}
	if r.wantsStream() {
		return s.stream(r, from, &stream.Stream{Source: from, JobID: from.job, Job: from.current})
	}
	return s.listEvents(r, from, false)
}

// clientEvents answers with the events of all of the client's jobs and
// batches: as a list from the first one that is kept, as a stream from now on.
func (s *Server) clientEvents(r *call) error {
	from := &clientSource{server: s, client: r.caller.ClientID}
	if r.wantsStream() {
		return s.stream(r, from, &stream.Stream{Source: from})
	}
	return s.listEvents(r, from, true)
}

func (r *call) wantsStream() bool {
	r.Vary(fiber.HeaderAccept)
	return header.Prefers(r.list(fiber.HeaderAccept), mimeEventStream, fiber.MIMEApplicationJSON)
}

// listEvents answers with a page of events. A list that never ends has a next
// cursor on its last page too, so that the client can ask for what is new.
func (s *Server) listEvents(r *call, from source, endless bool) error {
	cursor := r.Query("cursor")
	if cursor != "" {
		if err := from.seek(r.ctx, cursor); err != nil {
			return err
		}
	}
	limit := r.queryLimit(query.MaxLimit)
	p, err := from.Read(r.ctx, limit)
	if err != nil {
		return err
	}
	list := query.ListOf(p.Events, limit, occurrenceViewOf)
	if p.More || endless && (len(p.Events) > 0 || cursor != "") {
		next, err := from.cursor(r.ctx)
		if err != nil {
			return err
		}
		list.Page.NextCursor = &next
	}
	return r.json(fiber.StatusOK, list)
}

// stream answers with an event stream. What can go wrong at its start is
// answered as anywhere else: the stream begins only once its first events have
// been read.
func (s *Server) stream(r *call, from source, st *stream.Stream) error {
	release, err := s.limiter.Acquire(r.caller.ClientID)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			release()
		}
	}()
	st.Client, st.KeyID, st.Release = r.caller.ClientID, r.caller.KeyID, release
	r.ctx = job.WithKey(r.ctx, st.KeyID)
	st.RequestID, st.Span, st.Action, st.Start = r.idText, r.span.SpanContext(), r.route.action, r.start
	if err := startAt(r, from, st); err != nil {
		return err
	}
	if st.First.Ended && len(st.First.Events) == 0 {
		r.Status(fiber.StatusNoContent) // tells the reader not to come back
		return nil
	}
	r.Set(fiber.HeaderContentType, mimeEventStream)
	r.Set(fiber.HeaderCacheControl, "no-store, no-transform")
	r.Set("X-Accel-Buffering", "no") // for nginx in front
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.Method() == fiber.MethodHead {
		return nil
	}
	kept = true
	s.hijack(r, c, st)
	return nil
}

// startAt goes to where the stream starts and reads what it writes first.
func startAt(r *call, from source, st *stream.Stream) (err error) {
	lastID, cursor := r.list("Last-Event-ID"), r.Query("cursor")
	if lastID == "" && cursor != "" {
		err = from.seek(r.ctx, cursor)
	} else {
		err = from.resume(r.ctx, lastID)
	}
	if err != nil {
		return err
	}
	var start string
	if st.JobID.IsZero() {
		if start, err = from.cursor(r.ctx); err != nil {
			return err
		}
	}
	st.First, err = from.Read(r.ctx, stream.PageSize)
	st.Head = stream.Start(start)
	return err
}

// hijack takes the connection from fasthttp: it sends no answer of its own, and
// forgets the connection and the request.
func (s *Server) hijack(r *call, c *conn.Conn, st *stream.Stream) {
	if e := r.fault; e != nil {
		if r.fault = e.OnStream(); e.ContentType != "" {
			r.Set(fiber.HeaderContentType, e.ContentType)
		}
		r.setRetryAfter()
	}
	r.Response().Header.SetConnectionClose()
	st.Head = append(append([]byte(nil), r.Response().Header.Header()...), st.Head...)
	for _, value := range r.Request().Header.PeekAll(fiber.HeaderAuthorization) {
		st.Authorization = append(st.Authorization, append([]byte(nil), value...))
	}
	st.Conn, st.Accepted, r.streams = c, c, true
	e, recorded := r.fault, s.recorded(r)
	if e != nil && !e.OfStreams() && !e.Rewrites() && e.SlowBytes == 0 {
		e = nil
	}
	if recorded || e != nil {
		st.Conn = s.disturbed(r, c, e, recorded)
	}
	c.OnClose.Store(&st.Release) // until the stream runs, the connection may fail in fasthttp's hands
	r.Context().HijackSetNoResponse(true)
	r.Context().Hijack(func(net.Conn) {
		c.OnClose.Store(nil)
		go s.streams.Run(st) // returning lets fasthttp's own buffers go
	})
}

// disturbed is a stream's connection, with the record of its beginning kept: a process that is killed tells nothing of the end.
func (s *Server) disturbed(r *call, c net.Conn, e *fault.Effect, recorded bool) net.Conn {
	resumed := r.list("Last-Event-ID") != ""
	if !recorded {
		return disturb.NewConn(c, e, resumed, nil, nil)
	}
	of, x := s.recordIn(r, r.caller.ClientID), r.exchange()
	begun := *x
	begun.Stream = &verdict.Part{Open: true}
	s.keep(of, &begun)
	return disturb.NewConn(c, e, resumed, x, func() {
		x.End = time.Now().UTC()
		s.keep(of, x)
	})
}

// source gives events from a position in it, which moves on as they are read. It
// begins before the first event.
type source interface {
	stream.Source
	// seek goes to the position of a cursor.
	seek(ctx context.Context, cursor string) error
	// resume goes to where the reader of a stream got the given id last, and
	// for "" to where a stream begins.
	resume(ctx context.Context, lastID string) error
	// cursor names the position, for seek.
	cursor(ctx context.Context) (string, error)
}

// jobSource gives the events of one job. Their ids on a stream are the plain
// seq; the cursors of its lists are signed as all others.
type jobSource struct {
	server *Server
	client job.ID
	job    job.ID
	after  int // seq
}

func (j *jobSource) scope() string { return "job-events:" + j.job.String() }

// seqBytes is the length of a seq in a cursor.
const seqBytes = 4

func (j *jobSource) seek(ctx context.Context, cursor string) error {
	position, err := j.server.deps.CursorKey.Open(ctx, j.client, j.scope(), cursor, seqBytes)
	if err != nil {
		return err
	}
	j.after = int(binary.BigEndian.Uint32(position))
	return nil
}

var errBadLastID = job.Errorf(job.CodeMalformed,
	"The Last-Event-ID is not the id of an event of this stream. Send the id of the last event received unchanged, or none to begin anew.")

func (j *jobSource) resume(_ context.Context, lastID string) error {
	if lastID == "" {
		return nil
	}
	seq, ok := query.Positive(lastID) // numbered alike, from 1
	if !ok {
		return errBadLastID
	}
	j.after = seq
	return nil
}

// Read reads the next events.
func (j *jobSource) Read(ctx context.Context, limit int) (stream.Page, error) {
	log, err := j.server.deps.Events.JobEvents(ctx, j.client, j.job, j.after, limit)
	if err != nil {
		return stream.Page{}, err
	}
	if j.after > log.Last {
		return stream.Page{}, errBadLastID
	}
	if n := len(log.Events); n > 0 {
		j.after = log.Events[n-1].Seq
	}
	return stream.Page{Events: log.Events, More: j.after < log.Last, Ended: log.Ended}, nil
}

func (j *jobSource) cursor(ctx context.Context) (string, error) {
	return j.server.deps.CursorKey.Seal(ctx, j.client, j.scope(), binary.BigEndian.AppendUint32(nil, uint32(j.after)))
}

// EventID gives an event's seq.
func (j *jobSource) EventID(_ context.Context, o *job.Occurrence) (string, error) {
	return strconv.Itoa(o.Seq), nil
}

// current reads the job, nil unless it is as of the last event read.
func (j *jobSource) current(ctx context.Context) *job.Job {
	now, err := j.server.deps.Reader.Job(ctx, j.client, j.job)
	if err != nil || now.EventSeq != j.after {
		return nil
	}
	return now
}

// clientSource gives the events of all of a client's jobs and batches. Ids on
// its stream and cursors of its list are the same.
type clientSource struct {
	server *Server
	client job.ID
	after  job.Position
}

const clientScope = "events"

// positionBytes is the length of a position in a cursor: transaction, id, seq.
const positionBytes = 8 + len(job.ID{}) + seqBytes

func (c *clientSource) seek(ctx context.Context, cursor string) error {
	position, err := c.server.deps.CursorKey.Open(ctx, c.client, clientScope, cursor, positionBytes)
	if err != nil {
		return err
	}
	c.after = positionOf(position)
	return nil
}

// positionOf reads what positionBytesOf wrote.
func positionOf(b []byte) job.Position {
	return job.Position{
		Tx: binary.BigEndian.Uint64(b), ID: job.ID(b[8 : positionBytes-seqBytes]), Seq: int(binary.BigEndian.Uint32(b[positionBytes-seqBytes:])),
	}
}

// positionBytesOf writes a position for a cursor.
func positionBytesOf(p job.Position) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, positionBytes), p.Tx)
	return binary.BigEndian.AppendUint32(append(b, p.ID[:]...), uint32(p.Seq))
}

func (c *clientSource) resume(ctx context.Context, lastID string) (err error) {
	if lastID == "" {
		c.after, err = c.server.deps.Events.FeedEnd(ctx)
		return err
	}
	if err = c.seek(ctx, lastID); job.CodeOf(err) == job.CodeMalformed {
		return errBadLastID
	}
	return err
}

// Read reads the next events.
func (c *clientSource) Read(ctx context.Context, limit int) (stream.Page, error) {
	feed, err := c.server.deps.Events.ClientEvents(ctx, c.client, c.after, limit)
	if err != nil {
		return stream.Page{}, err
	}
	if n := len(feed.Events); n > 0 {
		c.after = feed.Events[n-1].Position
	}
	return stream.Page{Events: feed.Events, More: feed.More, Held: feed.Held}, nil
}

func (c *clientSource) cursor(ctx context.Context) (string, error) { return c.seal(ctx, c.after) }

// EventID gives the cursor after an event.
func (c *clientSource) EventID(ctx context.Context, o *job.Occurrence) (string, error) {
	return c.seal(ctx, o.Position)
}

func (c *clientSource) seal(ctx context.Context, p job.Position) (string, error) {
	return c.server.deps.CursorKey.Seal(ctx, c.client, clientScope, positionBytesOf(p))
}
