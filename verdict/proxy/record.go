package proxy

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	perJob     = 400      // approximate memory of a job without its name, in bytes
	perText    = 100      // approximate memory of a map entry, in bytes
	perAttempt = 250      // approximate memory of a delivery attempt, in bytes
	minID      = 8        // minimum length of the last segment of an address, to identify a job in lists and events
	maxProbe   = 16 << 10 // maximum size of the address and credentials for reading a job at the end of a session
)

// at returns the recorded form of a path. For a further target, the form includes the host.
func (s *sessions) at(u *url.URL, path string) string {
	if len(s.further) > 0 && s.further[origin(u)] {
		path = "//" + u.Host + path
	}
	return redact.KeepURL(path)
}

func (s *sessions) exchange(r *http.Request) *verdict.Exchange {
	h := r.Header
	x := &verdict.Exchange{
		Start: time.Now().UTC(), Method: redact.Keep(r.Method), Host: redact.Keep(r.Host), Path: s.at(r.URL, r.URL.EscapedPath()),
		Query:  redact.KeepQuery(r.URL.RawQuery),
		Prefer: redact.Keep(values(h, "Prefer")), ContentType: redact.Keep(h.Get("Content-Type")), Accept: redact.Keep(values(h, "Accept")),
		IfNoneMatch: redact.Keep(values(h, "If-None-Match")), LastEventID: redact.Keep(h.Get("Last-Event-ID")),
		KeyID: wire.Sum([]byte(cmp.Or(h.Get("Authorization"), h.Get("X-Api-Key"), h.Get("Api-Key")))), Trace: traceID(h.Get("Traceparent")),
		Agent: redact.Keep(r.UserAgent()), Closes: r.Close && r.ProtoMajor == 1,
	}
	if c := connectionOf(r); c != nil {
		x.Connection, x.Reused = c.number, c.requests.Add(1) > 1
	}
	return x
}

func traceID(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) >= 4 && len(parts[1]) == 32 {
		return strings.Clone(parts[1])
	}
	return ""
}

func values(h http.Header, name string) string { return strings.Join(h.Values(name), ", ") }

// operation returns the role and the job of a request, as far as they are known before the response. The role and the job come from the
// description, the known jobs, or the method and the Accept header.
func (s *sessions) operation(in *session, r *http.Request) (role verdict.Role, job string, described bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, here := s.open(in), s.at(r.URL, r.URL.RequestURI())
	if n == nil {
		n = &session{}
	}
	if role, id, ok := s.api.Match(r); ok {
		plain, _ := url.PathUnescape(id) // responses contain the id unescaped
		if id = redact.KeepURL(id); n.jobs[id] == nil && n.jobs[redact.KeepURL(plain)] != nil {
			id = redact.KeepURL(plain)
		}
		switch {
		case n.jobs[id] != nil:
			return role, id, true
		case role == verdict.Read && strings.Contains(id, "/"): // an id with a slash may be the path of any resource
			return "", "", false
		case role == verdict.Read:
			return role, here, true
		}
		return role, "", true
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reads && strings.Contains(r.Header.Get("Accept"), eventStream):
		return verdict.Stream, n.jobOfPath(s.at(r.URL, r.URL.EscapedPath())), false
	case reads && n.jobs[here] != nil:
		return verdict.Read, here, false
	case reads && n.results[here] != "":
		return verdict.Outcome, n.results[here], false
	case n.jobs[here] != nil, s.api.Described(verdict.Submit):
		return "", "", false
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		return verdict.Submit, "", false // the request may be a submission; the verdict decides
	}
	return "", "", false
}

// jobOfPath returns the job with an address that is a prefix of the path, or "".
func (n *session) jobOfPath(path string) string {
	for name := range n.jobs {
		if strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/") {
			return name
		}
	}
	return ""
}

func (s *sessions) record(in *session, x *verdict.Exchange) {
	s.within(in, func(n *session) {
		n.Recorded++
		if n.log.Len() < verdict.MaxExchanges && n.spare() {
			n.bytes += n.log.Add(x)
		}
	})
}

func (n *session) spare() bool {
	if n.Label != "" {
		return n.bytes < verdict.MaxLabeled
	}
	return n.bytes < verdict.MaxBytes
}

// job returns the entry of a job. It adds a missing entry, or returns nil if the session is full.
func (n *session) job(name string) *jobSeen {
	if n.jobs[name] == nil {
		if len(n.jobs) >= verdict.MaxExchanges || !n.spare() {
			return nil
		}
		n.jobs[name] = &jobSeen{Run: verdict.Run{ID: name}}
		n.bytes += perJob + len(name)
		path, _, _ := strings.Cut(name, "?")
		if end := path[strings.LastIndexByte(path, '/')+1:]; end != name && len(end) >= minID {
			_, several := n.ends[end]
			if n.ends[end] = name; several {
				n.ends[end] = ""
			}
			n.bytes += perText
		}
	}
	return n.jobs[name]
}

// noteResponse adds the jobs in a response of the target to the session and to the exchange. It is also called for a response that the
// client does not get.
func (s *sessions) noteResponse(in *session, r *http.Request, x *verdict.Exchange, described bool, h http.Header, body []byte) {
	document := api.Decode(body)
	x.Location = s.location(r, x.Status, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.open(in)
	if n == nil {
		return
	}
	m := &api.Message{URL: r.URL, Header: h, Body: document}
	if x.Unreached == "" && (x.Fault == nil || !x.Fault.Replaces()) {
		n.guesses.see(r, x, h, document)
	}
	if x.Role == verdict.Submit {
		n.made(s, r, x, m, described)
	}
	switch {
	case x.Role == verdict.Read && x.Job != "":
		if final, known := n.noteState(s.api, x.Job, x.Status, h, document, time.Now()); known {
			wire.Show(x, x.Job, final)
		}
		n.keepPending(x, h, body)
		if address := m.Result(x.Status); address != nil && len(n.results) < verdict.MaxExchanges && n.spare() {
			result := s.at(address, address.RequestURI())
			if n.results[result] == "" {
				n.bytes += perText + len(result)
			}
			n.results[result] = x.Job
		}
	case x.Role == verdict.Outcome && x.Job != "" && x.Status < http.StatusMultipleChoices:
		wire.Show(x, x.Job, true)
	case x.Status < http.StatusMultipleChoices && document != nil:
		s.show(n, document, x)
		n.noteEnds(x.Final)
	}
}

func (n *session) made(s *sessions, r *http.Request, x *verdict.Exchange, m *api.Message, described bool) {
	address, id := s.api.Made(m, x.Status, described)
	if address != nil {
		id = s.at(address, address.RequestURI())
	} else {
		if path := s.api.ReadPath(r.URL.EscapedPath(), id); path != "" {
			address, _ = r.URL.Parse(s.base + path) // on an error, the proxy does not read the job at the end
		}
		id = redact.KeepURL(id)
	}
	if id == "" {
		return
	}
	fresh := n.jobs[id] == nil
	j := n.job(id)
	if j == nil {
		return
	}
	if submission := x.Method + " " + x.Path; !n.submitted[submission] {
		n.submitted[submission] = true
		n.bytes += perText + len(submission)
	}
	x.Made, x.Job = j.ID, j.ID
	if fresh && address != nil {
		j.keepAddress(address, r.Header, &n.bytes)
	}
	if state := s.api.StateOf(m.Body); state.Known {
		n.noteOpenState(state)
		j.setState(state, time.Now())
		wire.Show(x, j.ID, state.Final)
	} else {
		wire.Show(x, j.ID, false)
	}
}

// noteState notes the state in which a response shows a job. The state is in the document or follows from the status. 303 leads to the
// result of an ended job. 202 means unfinished, and 200 after 202 means ended.
func (n *session) noteState(a *api.API, name string, status int, h http.Header, document any, at time.Time) (final, known bool) {
	j := n.job(name)
	if j == nil {
		return false, false
	}
	state := a.StateOf(document)
	n.noteOpenState(state)
	switch {
	case status == http.StatusSeeOther:
		state = api.State{Known: true, Final: true, Name: "done"}
	case status == http.StatusAccepted:
		j.waited = true
		state = api.State{Known: true, Name: cmp.Or(state.Name, "accepted")}
	case status < 200 || status > 299:
		return false, false
	case !state.Known && j.waited && h.Get("Retry-After") == "":
		state = api.State{Known: true, Final: true, Name: "done"}
	}
	j.setState(state, at)
	return state.Final, state.Known
}

// noteOpenState remembers a state that is not known to be final, for the verdict and for faults that show an ended job as unfinished.
func (n *session) noteOpenState(s api.State) {
	if !s.Known || s.Final {
		return
	}
	name := redact.Keep(s.Name)
	n.passing = append(slices.DeleteFunc(n.passing, func(other string) bool { return other == name }), name)
	n.passing = n.passing[max(0, len(n.passing)-verdict.MaxStates):]
}

// setState sets the state of a job, unless the job has ended.
func (j *jobSeen) setState(s api.State, at time.Time) {
	if !s.Known || !j.Finished.IsZero() {
		return
	}
	if j.State = redact.Keep(s.Name); s.Final {
		j.Finished, j.Permanent = at, s.Permanent
		if !j.shown.IsZero() {
			j.Finished = j.shown
		}
	}
}

// noteEnds notes the time at which a list or an event first showed that jobs ended. The proxy reads the details at the end of the session.
func (n *session) noteEnds(ended []string) {
	for _, name := range ended {
		if j := n.jobs[name]; j != nil && j.shown.IsZero() {
			j.shown = time.Now()
		}
	}
}

// keepAddress stores how to read a job at the end of the session, unless that takes too much memory. It adds the size to *bytes.
func (j *jobSeen) keepAddress(address *url.URL, h http.Header, bytes *int) {
	text, as, size := address.String(), credentials(h), 0
	for name, all := range as {
		size += perText + len(name) + len(strings.Join(all, ""))
	}
	if size += len(text); size > maxProbe {
		return
	}
	if own, err := url.Parse(strings.Clone(text)); err == nil { // a copy, because the original would keep the header in memory
		j.address, j.as = own, as
		*bytes += size
	}
}

// credentials returns the headers that a read by the proxy needs: credentials and API versions.
func credentials(h http.Header) http.Header {
	as := http.Header{}
	for name, all := range h {
		lower := strings.ToLower(name)
		if lower == "cookie" || strings.Contains(lower, "auth") || strings.Contains(lower, "key") && lower != "idempotency-key" ||
			strings.Contains(lower, "version") || strings.Contains(lower, "token") {
			as[name] = all
		}
	}
	return as
}

// location returns the value for verdict.Exchange.Location.
func (s *sessions) location(r *http.Request, status int, h http.Header) string {
	if status < 301 || status > 308 || h.Get("Location") == "" {
		return ""
	}
	to, err := r.URL.Parse(h.Get("Location"))
	switch {
	case err != nil:
		return ""
	case to.Host != "" && to.Host != r.Host && to.Host != r.URL.Host:
		return redact.KeepURL(to.String())
	}
	return s.at(to, to.EscapedPath()) + "?" + redact.KeepQuery(to.RawQuery)
}
