// Package events handles requests for events, as pages of a list or as a stream (SSE).
package events

import (
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// API handles requests about events.
type API struct {
	*httpkit.Kit
	Events *events.Hub
	Jobs   *jobs.Service
	Engine *stream.Engine
}

// New returns the API with the engine that runs its streams.
func New(kit *httpkit.Kit, hub *events.Hub, jobs *jobs.Service) *API {
	s := &API{Kit: kit, Events: hub, Jobs: jobs}
	s.Engine = &stream.Engine{
		Heartbeat: kit.Heartbeat, StallTimeout: kit.StallTimeout, RequestTimeout: kit.RequestTimeout,
		Watch: hub.Watch, WatchKey: kit.Keys.WatchKey, Recheck: kit.StillValid, Render: s.frame, RenderProgress: progressOf,
		Limiter: kit.Waits, Metrics: stream.NewMetrics(telemetry.In(kit.Registry)), Logger: kit.Logger, Unauthorized: kit.Unauthorized,
	}
	return s
}

// Routes returns the routes of events.
func (s *API) Routes() []httpkit.Route {
	const get, client = httpkit.Get, httpkit.ClientKey
	as := append(slices.Clone(httpkit.AsJSON), httpkit.EventStream)
	return []httpkit.Route{
		httpkit.Row(get, "/v1/jobs/:id/events", client, "events", fiber.StatusOK, s.jobEvents, query.Page...).As(as...),
		httpkit.Row(get, "/v1/events", client, "client_events", fiber.StatusOK, s.clientEvents, query.Page...).As(as...),
	}
}

type progress struct {
	JobID    job.ID        `json:"job_id"`
	Attempt  int           `json:"attempt"`
	Progress *job.Progress `json:"progress"`
}

func progressOf(id job.ID, attempt int, p *job.Progress) any {
	return progress{id, attempt, p}
}

// frame returns the data of an event. The data of an attempt's or batch's last event is the outcome document (async-problem-details,
// section 5.4).
func (s *API) frame(o *job.Occurrence) any {
	switch {
	case o.Ended != nil:
		return s.Links.Document(o.Origin, *o.Ended)
	case o.Batch != nil:
		return s.Links.BatchDocument(o.Batch)
	}
	return views.Occurrence(*o)
}

func (s *API) jobEvents(r *httpkit.Request) error {
	from := &jobSource{api: s, client: r.Caller.ClientID, job: r.PathID()}
	if r.WantsStream() {
		return s.stream(r, &stream.Stream{Source: from, JobID: from.job, Job: from.current})
	}
	return s.listEvents(r, from, false)
}

// A list starts with the oldest stored event, but a stream starts with new events.
func (s *API) clientEvents(r *httpkit.Request) error {
	from := &clientSource{api: s, client: r.Caller.ClientID}
	if r.WantsStream() {
		return s.stream(r, &stream.Stream{Source: from})
	}
	return s.listEvents(r, from, true)
}

// If `endless` is true, the last page has a next cursor too, unless the list is empty. The client can then poll for new events.
func (s *API) listEvents(r *httpkit.Request, from source, endless bool) error {
	cursor := r.Query("cursor")
	if cursor != "" {
		if err := from.seek(r.Ctx, cursor); err != nil {
			return err
		}
	}
	limit := r.PageSize(query.MaxLimit)
	p, err := from.Read(r.Ctx, limit)
	if err != nil {
		return err
	}
	list := query.ListOf(p.Events, limit, views.Occurrence)
	if p.More || endless && (len(p.Events) > 0 || cursor != "") {
		next, err := from.cursor(r.Ctx)
		if err != nil {
			return err
		}
		list.Page.NextCursor = &next
	}
	return r.JSON(fiber.StatusOK, list)
}

// stream reads the first events before the event stream starts, so that errors get a normal response.
func (s *API) stream(r *httpkit.Request, st *stream.Stream) error {
	release, err := s.Waits.Acquire(r.Caller.ClientID)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			release()
		}
	}()
	st.Client, st.KeyID, st.Release = r.Caller.ClientID, r.Caller.KeyID, release
	r.Ctx = job.WithKey(r.Ctx, st.KeyID)
	st.RequestID, st.Span, st.Action, st.Start = r.ID, r.Span.SpanContext(), r.Route.Action, r.Start
	if err := startAt(r, st.Source.(source), st); err != nil {
		return err
	}
	if st.First.Ended && len(st.First.Events) == 0 {
		r.Status(fiber.StatusNoContent) // tells the client not to reconnect
		return nil
	}
	r.Set(fiber.HeaderContentType, httpkit.EventStream)
	r.Set(fiber.HeaderCacheControl, "no-store, no-transform")
	r.Set("X-Accel-Buffering", "no") // tells nginx in front of the service not to buffer
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok || r.Method() == fiber.MethodHead {
		return nil
	}
	kept = true
	s.hijack(r, c, st)
	return nil
}

func startAt(r *httpkit.Request, from source, st *stream.Stream) (err error) {
	lastID, cursor := r.List("Last-Event-ID"), r.Query("cursor")
	if lastID == "" && cursor != "" {
		err = from.seek(r.Ctx, cursor)
	} else {
		err = from.resume(r.Ctx, lastID)
	}
	if err != nil {
		return err
	}
	var start string
	if st.JobID.IsZero() {
		if start, err = from.cursor(r.Ctx); err != nil {
			return err
		}
	}
	st.First, err = from.Read(r.Ctx, stream.PageSize)
	st.Head = stream.Start(start)
	return err
}

func (s *API) hijack(r *httpkit.Request, c *conn.Conn, st *stream.Stream) {
	st.Conn, st.Accepted = c, c
	if s.Interceptor != nil {
		st.Conn = s.Interceptor.Stream(r, c)
	}
	for _, value := range r.Request().Header.PeekAll(fiber.HeaderAuthorization) {
		st.Authorization = append(st.Authorization, append([]byte(nil), value...))
	}
	r.Hijack(c, &st.Release, func(head []byte) {
		st.Head = append(head, st.Head...)
		s.Engine.Run(st)
	})
}
