package proxy

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
)

// What a request for a session may be refused for.
var (
	errNotFound = errors.New("there is no session with this id")
	errOpen     = errors.New("a session has not ended: end it first")
	errProfile  = errors.New("the rules are those of the profile under which a session runs: end that first")
)

// sessions are the sessions of a proxy, of which one is open at most, and the rules by which it disturbs. They are in memory.
type sessions struct {
	api   *api.API
	probe func(address *url.URL, as http.Header) (status int, h http.Header, document any)

	mu    sync.Mutex
	all   []*session // the latest last
	rules []fault.Counted
	began map[string]time.Time // when a rule applied first, by its id
}

// session is what was recorded in a session.
type session struct {
	verdict.Session
	log       *verdict.Log
	bytes     int
	attempts  []verdict.Attempt   // of deliveries
	tries     map[string]int      // by the id of a delivery
	jobs      map[string]*jobSeen // by what names them: an id, or an address
	results   map[string]string   // addresses of results, with their jobs
	submitted map[string]bool     // methods and paths that were answered with a job
}

// jobSeen is a job that the target has told of.
type jobSeen struct {
	verdict.Run
	address *url.URL
	as      http.Header // credentials of its submission
	waited  bool        // it was answered with 202
}

func newSessions(a *api.API) *sessions { return &sessions{api: a} }

// open is the session that runs; nil if there is none. The caller has the lock.
func (s *sessions) open() *session {
	if n := len(s.all); n > 0 && s.all[n-1].EndedAt == nil {
		return s.all[n-1]
	}
	return nil
}

func (s *sessions) start(n verdict.Session) (verdict.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open() != nil {
		return verdict.Session{}, errOpen
	}
	n.ID, n.CreatedAt = uuid.Must(uuid.NewV7()).String(), fault.Time(time.Now())
	if len(n.Rules) == 0 {
		n.Rules = s.api.RuleIDs()
	}
	if n.Profile != "" {
		s.replace(n.Profile.Rules(api.Faults, n.Seed), n.Seed)
	}
	s.all = append(s.all, &session{
		Session: n, log: &verdict.Log{}, jobs: map[string]*jobSeen{}, tries: map[string]int{}, results: map[string]string{},
		submitted: map[string]bool{},
	})
	if len(s.all) > verdict.MaxSessions {
		s.all = s.all[1:]
	}
	return n, nil
}

func (s *sessions) list() []verdict.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []verdict.Session{}
	for _, n := range slices.Backward(s.all) {
		list = append(list, n.Session)
	}
	return list
}

// find gives the session with an id. The caller has the lock.
func (s *sessions) find(id string) (*session, error) {
	for _, n := range s.all {
		if n.ID == id {
			return n, nil
		}
	}
	return nil, errNotFound
}

func (s *sessions) get(id string) (verdict.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(id)
	if err != nil {
		return verdict.Session{}, err
	}
	return n.Session, nil
}

// end ends a session, and the disturbances of its profile. One that has ended stays as it is.
func (s *sessions) end(id string) (verdict.Session, error) {
	s.mu.Lock()
	n, err := s.find(id)
	if err != nil {
		s.mu.Unlock()
		return verdict.Session{}, err
	}
	if n.EndedAt != nil {
		defer s.mu.Unlock()
		return n.Session, nil
	}
	if n.Profile != "" {
		s.rules = nil
	}
	asked := n.unfinished()
	s.mu.Unlock()
	if slices.Contains(n.Rules, "outcome-learned") {
		s.ask(n, asked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range n.jobs {
		j.as = nil
	}
	if n.EndedAt == nil {
		n.EndedAt = new(fault.Time(time.Now()))
	}
	return n.Session, nil
}

// unfinished are the jobs that nobody saw final.
func (n *session) unfinished() map[string]jobSeen {
	list := map[string]jobSeen{}
	for name, j := range n.jobs {
		if j.Finished.IsZero() && j.address != nil && j.as != nil {
			list[name] = *j
		}
	}
	return list
}

// ask reads jobs that nobody saw final, as their clients would: whether those should have learned more is not known otherwise.
func (s *sessions) ask(n *session, jobs map[string]jobSeen) {
	for name, j := range jobs {
		status, h, document := s.probe(j.address, j.as)
		if status >= http.StatusOK && status < http.StatusBadRequest {
			s.mu.Lock()
			n.saw(s.api, name, status, h, document, time.Now())
			s.mu.Unlock()
		}
	}
}

// verdict judges a session so far.
func (s *sessions) verdict(id string) (verdict.Verdict, error) {
	s.mu.Lock()
	n, err := s.find(id)
	if err != nil {
		s.mu.Unlock()
		return verdict.Verdict{}, err
	}
	r := verdict.Record{
		Session: n.Session, API: api.Faults, Now: time.Now(), Standards: true,
		Log: n.log.Copy(), Attempts: slices.Clone(n.attempts),
	}
	for _, j := range n.jobs {
		r.Runs = append(r.Runs, j.Run)
	}
	if submitted := maps.Clone(n.submitted); !s.api.Described(verdict.Submit) { // what a request was to do is known by an answer to one
		r.Submits = func(method, path string) bool { return submitted[method+" "+path] }
	}
	s.mu.Unlock()
	slices.SortFunc(r.Runs, func(x, y verdict.Run) int { return x.Finished.Compare(y.Finished) })
	return verdict.Of(&r), nil
}

// replaceFaults gives the proxy other rules.
func (s *sessions) replaceFaults(rules []fault.Rule, seed int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.open(); n != nil && n.Profile != "" {
		return errProfile
	}
	s.replace(rules, seed)
	return nil
}

func (s *sessions) replace(rules []fault.Rule, seed int64) {
	s.began = map[string]time.Time{}
	s.rules = make([]fault.Counted, len(rules))
	for i, r := range rules {
		s.rules[i] = fault.Counted{Rule: r, ID: uuid.Must(uuid.NewV7()).String(), Position: i + 1, Seed: seed}
	}
}

func (s *sessions) faults() []fault.Counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rules)
}

// fault counts a request, or without one a delivery, and gives what is to be done to it, nil for nothing.
func (s *sessions) fault(operation string, r *http.Request) (effect *fault.Effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range s.rules {
		c := &s.rules[i]
		if !about(&c.Match, operation, r, now) {
			continue
		}
		c.Seen++
		if began, ok := s.began[c.ID]; ok {
			c.Age = new(now.Sub(began))
		}
		if effect != nil || !c.Applies() {
			continue
		}
		if c.Applied++; c.Applied == 1 {
			s.began[c.ID] = now
		}
		effect = &c.Effect
	}
	return effect
}

func about(m *fault.Match, operation string, r *http.Request, now time.Time) bool {
	return (m.Operation == "" && r != nil || m.Operation == operation || r != nil && api.Is(r, m.Operation)) &&
		(m.From == nil || !now.Before(time.Time(*m.From))) && (m.Until == nil || now.Before(time.Time(*m.Until)))
}
