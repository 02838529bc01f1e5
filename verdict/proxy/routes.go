package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/report"
)

// Prefix is the prefix of the proxy's own routes. Below Prefix, the routes are the same as in ForgeRun's test bed.
const Prefix = "/-/forgerun/"

const maxRequest = 1 << 20

func (p *Proxy) routes() http.Handler {
	mux := http.NewServeMux()
	at := func(pattern string, handle func(w http.ResponseWriter, r *http.Request) (int, any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+Prefix+"v1/testbed/"+path, func(w http.ResponseWriter, r *http.Request) {
			status, body, err := handle(w, r)
			if err != nil {
				refuse(w, err)
				return
			}
			if body != nil {
				writeJSON(w, "application/json", status, body)
			} else if status != 0 {
				w.WriteHeader(status)
			}
		})
	}
	s := p.sessions
	at("POST sessions", p.startSession)
	at("GET sessions", func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		return http.StatusOK, listOf(s.list(r.URL.Query().Get("label"))), nil
	})
	at("GET sessions/{id}", func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		n, err := s.get(r.PathValue("id"))
		return http.StatusOK, n, err
	})
	at("POST sessions/{id}/end", func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		n, err := s.end(r.PathValue("id"))
		if err == nil && p.socket != nil {
			p.socket.Reopen() // a fault of the session may still refuse connections
		}
		return http.StatusOK, n, err
	})
	at("GET sessions/{id}/verdict", p.getVerdict)
	at("GET sessions/{id}/journal", func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		v, err := s.verdict(r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		w.Header().Set("Content-Type", report.JournalType)
		return 0, nil, report.Journal(w, &v)
	})
	at("PUT faults", p.replaceFaults)
	at("GET faults", func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		in, err := s.sessionFor(r.Header.Get(sessionHeader))
		return http.StatusOK, p.faultList(in), err
	})
	at("DELETE faults", func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		in, err := s.sessionFor(r.Header.Get(sessionHeader))
		if err != nil {
			return 0, nil, err
		}
		return http.StatusNoContent, nil, s.replaceFaults(in, nil, 0)
	})
	mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, "The proxy has no route "+r.URL.Path+". Its routes are "+Prefix+"v1/testbed/sessions and faults.")
	})
	return mux
}

// Own returns a handler that serves only the proxy's own routes. It is for a listener on loopback.
func (p *Proxy) Own() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.misdirected(w, r) {
			p.control(w, r)
		}
	})
}

func (p *Proxy) control(w http.ResponseWriter, r *http.Request) {
	if !foreign(w, r) && !notJSON(w, r) {
		p.own.ServeHTTP(w, r)
	}
}

type badRequest struct{ error }

func read[T any](w http.ResponseWriter, r *http.Request, v *T) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) { // a missing body counts as an empty object
		return badRequest{fmt.Errorf("invalid body: %w", err)}
	}
	return nil
}

func (p *Proxy) startSession(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var wanted struct {
		Label   *string       `json:"label"`
		Profile fault.Profile `json:"profile"`
		Seed    *int64        `json:"seed"`
		Rules   []string      `json:"rules"`
	}
	if err := read(w, r, &wanted); err != nil {
		return 0, nil, err
	}
	n := verdict.Session{Profile: wanted.Profile, Seed: 1, Rules: wanted.Rules}
	if wanted.Seed != nil {
		n.Seed = *wanted.Seed
	}
	if wanted.Label != nil {
		if n.Label = *wanted.Label; !verdict.ValidLabel(n.Label) {
			return 0, nil, badRequest{errLabel}
		}
	}
	if err := checkSession(n); err != nil {
		return 0, nil, badRequest{err}
	}
	began, err := p.sessions.start(n)
	if err == nil {
		w.Header().Set("Location", Prefix+"v1/testbed/sessions/"+began.ID)
	}
	return http.StatusCreated, began, err
}

func checkSession(n verdict.Session) error {
	if n.Profile != "" && !slices.Contains(fault.Profiles, n.Profile) {
		return fmt.Errorf("unknown profile %q; use one of %v", n.Profile, fault.Profiles)
	}
	for _, id := range n.Rules {
		if !slices.Contains(verdict.IDs(), id) {
			return fmt.Errorf("unknown rule %q; use some of %v", id, verdict.IDs())
		}
	}
	return nil
}

func (p *Proxy) getVerdict(w http.ResponseWriter, r *http.Request) (int, any, error) {
	v, err := p.sessions.verdict(r.PathValue("id"))
	accept := r.Header.Get("Accept")
	switch {
	case err != nil:
		return 0, nil, err
	case strings.Contains(accept, "text/html"):
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		return 0, nil, report.HTML(w, &v)
	case strings.Contains(accept, "application/xml"):
		w.Header().Set("Content-Type", "application/xml")
		return 0, nil, report.JUnit(w, &v)
	}
	return http.StatusOK, v, nil
}

// faultRules holds rules and a seed. The JSON form is an array of rules, or an object.
type faultRules struct {
	Seed  int64        `json:"seed"`
	Rules []fault.Rule `json:"rules"`
}

func (f *faultRules) UnmarshalJSON(body []byte) error {
	type object faultRules
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if bytes.HasPrefix(body, []byte("[")) {
		return d.Decode(&f.Rules)
	}
	return d.Decode((*object)(f))
}

func (p *Proxy) replaceFaults(w http.ResponseWriter, r *http.Request) (int, any, error) {
	wanted := faultRules{Seed: 1}
	if err := read(w, r, &wanted); err != nil {
		return 0, nil, err
	}
	if len(wanted.Rules) > fault.MaxRules {
		return 0, nil, badRequest{fmt.Errorf("at most %d rules are allowed", fault.MaxRules)}
	}
	for i := range wanted.Rules {
		if err := cmp.Or(wanted.Rules[i].Check(), p.lacks(&wanted.Rules[i].Effect)); err != nil {
			return 0, nil, badRequest{fmt.Errorf("/%d%w", i, err)}
		}
	}
	in, err := p.sessions.sessionFor(r.Header.Get(sessionHeader))
	if err != nil {
		return 0, nil, err
	}
	if err := p.sessions.replaceFaults(in, wanted.Rules, wanted.Seed); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, p.faultList(in), nil
}

func (p *Proxy) lacks(e *fault.Effect) error {
	switch {
	case e.Refuse > 0 && p.socket == nil:
		return &fault.Wrong{Pointer: "/effect/refuse", Detail: "a forward proxy cannot refuse connections, since it serves other hosts too"}
	case e.TLS != "" && p.tls == nil:
		return &fault.Wrong{Pointer: "/effect/tls", Detail: "this proxy listens without TLS: start it with forgerun proxy --tls"}
	}
	return nil
}

func (p *Proxy) faultList(in *session) any {
	items := []fault.View{}
	for _, c := range p.sessions.faults(in) {
		items = append(items, fault.ViewOf(c))
	}
	return listOf(items)
}

func listOf[T any](items []T) any {
	return map[string]any{"data": items, "page": map[string]any{"limit": len(items), "next_cursor": nil}}
}

func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNotFound):
		status = http.StatusNotFound
	case errors.Is(err, errLabel):
		status = http.StatusBadRequest
	case errors.Is(err, errOpen), errors.Is(err, errFull), errors.Is(err, errProfile):
		status = http.StatusConflict
	case errors.As(err, new(badRequest)):
		status = http.StatusBadRequest
	}
	writeProblem(w, status, err.Error())
}

func refuseLabel(w http.ResponseWriter, err error) {
	writeProblem(w, http.StatusBadRequest, "The header "+sessionHeader+" is invalid: "+err.Error()+".")
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, "application/problem+json", status, map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

func writeJSON(w http.ResponseWriter, kind string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // impossible: the proxy's documents can be encoded
		body, status = []byte("{}"), http.StatusInternalServerError
	}
	writeWhole(w, kind, status, append(body, '\n'))
}

// writeWhole writes a response with a Content-Length. The proxy then records the exchange before it sends the response. Otherwise, a client
// could end the session before the exchange is recorded.
func writeWhole(w http.ResponseWriter, kind string, status int, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}
