package proxy

import (
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
)

type rules struct {
	list  []fault.Counted
	began map[string]time.Time // time when each rule first applied, by id
}

func newRules(list []fault.Rule, seed int64) rules {
	made := rules{make([]fault.Counted, len(list)), map[string]time.Time{}}
	for i, r := range list {
		made.list[i] = fault.Counted{Rule: r, ID: uuid.Must(uuid.NewV7()).String(), Position: i + 1, Seed: seed}
	}
	return made
}

// again returns a copy of the rules with counts of zero.
func (r *rules) again() rules {
	same := rules{slices.Clone(r.list), map[string]time.Time{}}
	for i := range same.list {
		c := &same.list[i]
		c.Seen, c.Applied, c.Subject, c.Age = 0, 0, "", nil
	}
	return same
}

// needSubject reports whether a request matches a rule with Match.Same. Only such a rule needs the subject of the request. For a delivery,
// `request` is nil.
func (r *rules) needSubject(operation string, request *http.Request) bool {
	return slices.ContainsFunc(r.list, func(c fault.Counted) bool {
		return c.Match.Same && about(&c.Match, operation, request, time.Now())
	})
}

// count adds a request to the counts of all rules that match the request. It returns the effect of the first rule that applies, or nil.
// For a delivery, `request` is nil.
func (r *rules) count(operation string, request *http.Request, subject string) (effect *fault.Effect) {
	now := time.Now()
	for i := range r.list {
		c := &r.list[i]
		if !about(&c.Match, operation, request, now) || c.Match.Same && c.Applied > 0 && c.Subject != subject {
			continue
		}
		c.Seen++
		if began, ok := r.began[c.ID]; ok {
			c.Age = new(now.Sub(began))
		}
		if effect != nil || !c.Applies() {
			continue
		}
		if c.Applied++; c.Applied == 1 {
			r.began[c.ID], c.Subject = now, subject
		}
		effect = &c.Effect
	}
	return effect
}

func about(m *fault.Match, operation string, r *http.Request, now time.Time) bool {
	return (m.Operation == "" && r != nil || m.Operation == operation || r != nil && api.Is(r, m.Operation)) &&
		(m.From == nil || !now.Before(time.Time(*m.From))) && (m.Until == nil || now.Before(time.Time(*m.Until)))
}

// rulesOf returns the rules of a labeled session. If `in` is nil, it returns the rules for requests without a label. An ended session
// has no rules. The caller holds the lock.
func (s *sessions) rulesOf(in *session) *rules {
	switch {
	case in == nil:
		return &s.rules
	case in.EndedAt != nil:
		return &rules{}
	}
	return &in.faults
}

func (s *sessions) replaceFaults(in *session, list []fault.Rule, seed int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.open(in); n != nil && n.Profile != "" {
		return errProfile
	}
	*s.rulesOf(in) = newRules(list, seed)
	return nil
}

func (s *sessions) faults(in *session) []fault.Counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rulesOf(in).list)
}

// fault counts a request and returns the effect on it, or nil. For a delivery, `r` is nil. The function `subject` may read the body, so
// fault calls it only for rules with Match.Same.
func (s *sessions) fault(in *session, operation string, r *http.Request, subject func() string) *fault.Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	about := ""
	if s.rulesOf(in).needSubject(operation, r) {
		s.mu.Unlock()
		about = subject()
		s.mu.Lock()
	}
	return s.rulesOf(in).count(operation, r, about)
}

// subject returns a text that is equal for a request and its repetitions (see fault.Subject). It reads the body only if no header or
// query parameter contains an idempotency key.
func (p *Proxy) subject(r *http.Request, b *requestBody) string {
	path, m := r.URL.EscapedPath(), &api.Message{URL: r.URL, Header: r.Header}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		path = r.URL.RequestURI()
	}
	var body []byte
	key := p.api.KeyOf(m)
	if key == "" && b.noted != nil {
		b.fetch(true)
		body = b.ahead
		m.Body = api.Decode(body)
		key = p.api.KeyOf(m)
	}
	return fault.Subject(r.Method, path, []byte(key), body)
}
