package handlers

import (
	"github.com/gofiber/fiber/v2"
)

// jobEvents answers with the events of one job, as a list or a stream.
func (s *Server) jobEvents(r *call) error {
	from := &jobSource{server: s, client: r.caller.ClientID, job: r.pathJob()}
	if r.wantsStream() {
		return s.stream(r, &stream{source: from, job: from, progress: &shownProgress{pending: true}})
	}
	return s.listEvents(r, from, false)
}

// clientEvents answers with the events of all of the client's jobs and
// batches: as a list from the first one that is kept, as a stream from now on.
func (s *Server) clientEvents(r *call) error {
	from := &clientSource{server: s, client: r.caller.ClientID}
	if r.wantsStream() {
		return s.stream(r, &stream{source: from})
	}
	return s.listEvents(r, from, true)
}

func (r *call) wantsStream() bool {
	r.Vary(fiber.HeaderAccept)
	return prefersMedia(r.list(fiber.HeaderAccept), mimeEventStream, fiber.MIMEApplicationJSON)
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
	limit := r.queryLimit(maxLimit)
	p, err := from.read(r.ctx, limit)
	if err != nil {
		return err
	}
	list := listView[eventView]{Data: make([]eventView, len(p.events)), Page: pageView{Limit: limit}}
	for i, o := range p.events {
		list.Data[i] = occurrenceViewOf(o)
	}
	if p.more || endless && (len(p.events) > 0 || cursor != "") {
		next, err := from.cursor(r.ctx)
		if err != nil {
			return err
		}
		list.Page.NextCursor = &next
	}
	return r.json(fiber.StatusOK, list)
}
