package proxy

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

// noteEvent adds the jobs in an event to x, with the states that the client sees. `data` is the event before the effect rewrites it.
func (s *sessions) noteEvent(in *session, x *verdict.Exchange, e *fault.Effect, data []byte) {
	document := api.Decode(data)
	if document == nil {
		return
	}
	shown := verdict.Exchange{Job: x.Job}
	s.noteEventJobs(in, document, &shown)
	if e != nil && e.Rewrites() {
		s.recordRewritten(in, &shown, e, s.shape(in).Rewrite(e, data))
	}
	for _, job := range shown.Final {
		wire.Show(x, job, true)
	}
	for _, job := range shown.Shown {
		wire.Show(x, job, false)
	}
	for _, job := range shown.MaybeFinal {
		wire.ShowMaybeFinal(x, job)
	}
	x.More = x.More || shown.More
}

// noteEventJobs adds the jobs in an event of the target to x. The session notes which of the jobs have ended. In the stream of one job,
// the state in each event belongs to that job.
func (s *sessions) noteEventJobs(in *session, document any, x *verdict.Exchange) {
	s.within(in, func(n *session) {
		s.show(n, document, x)
		if state := s.api.StateOf(document); x.Job != "" && state.Known {
			wire.Show(x, x.Job, state.Final)
		}
		n.noteEnds(x.Final)
		for _, job := range x.Final {
			if j := n.jobs[job]; j != nil {
				j.setState(api.State{Known: true, Final: true, Name: "final"}, time.Now())
			}
		}
	})
}

// shape describes how documents show the jobs of a session. The caller must not hold the lock.
func (s *sessions) shape(in *session) *wire.Shape {
	passing := ""
	s.within(in, func(n *session) {
		if len(n.passing) > 0 {
			passing = n.passing[len(n.passing)-1]
		}
	})
	shape := s.api.Shape(passing, func(id string) (job string, ok bool) {
		s.within(in, func(n *session) { job, ok = n.known(id) })
		return job, ok
	})
	return &shape
}

// recordRewritten corrects x after the effect has rewritten the document. A job that has ended may now appear unfinished to the client. If
// the effect sets an unknown state without Unfinished, other members may still show the end. The job is then also in MaybeFinal.
func (s *sessions) recordRewritten(in *session, x *verdict.Exchange, e *fault.Effect, rewritten []byte) {
	var seen verdict.Exchange
	document := api.Decode(rewritten)
	s.shape(in).Walk(document, &seen)
	if state := s.api.StateOf(document); x.Job != "" && state.Known {
		wire.Show(&seen, x.Job, state.Final)
	}
	ended := x.Final
	x.Final = nil
	for _, job := range ended {
		open := !slices.Contains(seen.Final, job) && slices.Contains(seen.Shown, job)
		if wire.Show(x, job, !open); open && e.JobStatus != "" && !e.Unfinished {
			wire.ShowMaybeFinal(x, job)
		}
	}
}

func (s *sessions) show(n *session, document any, x *verdict.Exchange) {
	shape := s.api.Shape("", n.known)
	shape.Walk(document, x)
}

// known returns the job with an id, or with an address that ends in the id.
func (n *session) known(id string) (job string, ok bool) {
	if n.jobs[id] == nil {
		id = redact.KeepURL(id)
	}
	if n.jobs[id] == nil {
		id = n.ends[id]
	}
	if j := n.jobs[id]; j != nil {
		return j.ID, true
	}
	return "", false
}

// pending is a stored 202 response. Its status says that the job is unfinished.
type pending struct {
	status int
	header http.Header
	body   []byte
}

// keepPending stores a 202 response to a read, unless it is large. The caller holds the lock.
func (n *session) keepPending(x *verdict.Exchange, h http.Header, body []byte) {
	j := n.jobs[x.Job]
	if j == nil || x.Status != http.StatusAccepted || len(body) > maxProbe || !n.spare() {
		return
	}
	if j.pending != nil {
		n.bytes -= len(j.pending.body)
	}
	j.pending = &pending{x.Status, http.Header{}, bytes.Clone(body)}
	n.bytes += len(body)
	for _, name := range append([]string{"Content-Type", "Retry-After"}, addressHeaders...) {
		if all, set := h[name]; set {
			j.pending.header[name] = all
		}
	}
	if x.Fault != nil && (x.Fault.RetryAfter != nil || x.Fault.RetryAfterAs != "") { // drop the Retry-After of the fault
		j.pending.header.Del("Retry-After")
	}
}

// earlierResponse returns a stored 202 response to send in place of this response, or nil. A stored response is sent if the effect hides
// the end of jobs, and the status of this response may show the end.
func (a *response) earlierResponse() (p *pending) {
	x := a.exchange
	ends := a.status == http.StatusSeeOther || a.status >= 200 && a.status < 300 && a.status != http.StatusAccepted
	if a.effect == nil || !a.effect.Unfinished || a.own || x.Role != verdict.Read || x.Method != http.MethodGet || !ends {
		return nil
	}
	a.proxy.sessions.within(a.in, func(n *session) {
		if j := n.jobs[x.Job]; j != nil {
			p = j.pending
		}
	})
	return p
}

// sendEarlier prepares an earlier response, with the Retry-After of the effect. The method finish sends this response.
func (a *response) sendEarlier(p *pending) {
	a.earlier = &pending{p.status, p.header.Clone(), p.body}
	a.retryAfter(a.earlier.header)
	a.status, a.held, a.rest, a.isJSON = p.status, a.earlier.header, -1, false
}
