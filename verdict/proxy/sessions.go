package proxy

import (
	"errors"
	"fmt"
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

var (
	errNotFound = errors.New("there is no session with this id")
	errOpen     = errors.New("is already open: end it first")
	errFull     = fmt.Errorf("%d sessions are open: end some first", verdict.MaxSessions)
	errLabel    = fmt.Errorf("a label must have 1 to %d printable ASCII characters, without leading or trailing spaces", verdict.MaxLabel)
	errProfile  = errors.New("the fault rules come from the profile of an open session: end the session first")
)

// sessions holds the sessions of a proxy and its rules in memory. At most one session is open for each label, and at most one without a
// label. The parameter "in" of methods is a labeled session, or nil for the session without a label.
type sessions struct {
	api     *api.API
	base    string          // path of the target without a trailing slash
	further map[string]bool // origins of all targets except the first
	probe   func(address *url.URL, as http.Header) (status int, h http.Header, document any)

	mu      sync.Mutex
	all     []*session          // sorted by start
	main    *session            // open session without a label; may be nil
	labeled map[string]*session // open sessions with a label
	rules   rules               // rules for requests without a label
}

type session struct {
	verdict.Session
	log       *verdict.Log
	faults    rules               // rules of a session with a label
	bytes     int                 // approximate size of the session
	attempts  []verdict.Attempt   // delivery attempts
	tries     map[string]int      // number of attempts by delivery id
	jobs      map[string]*jobSeen // jobs by id or address
	results   map[string]string   // job, by the address of the job's result
	keys      keys
	submitted map[string]bool // methods and paths of requests that created a job
	guesses   guesses
	ends      map[string]string // job by last segment of its address; "" if several jobs share the segment
	passing   []string          // latest states of unfinished jobs, the newest last
}

// jobSeen is a job that a response of the target showed.
type jobSeen struct {
	verdict.Run
	address *url.URL
	as      http.Header // credentials of the submission
	waited  bool        // whether a read got 202
	pending *pending    // last 202 response to a read, unless it was large
	shown   time.Time   // time when a list or an event first showed the end; zero if none did
}

func newSessions(a *api.API) *sessions { return &sessions{api: a, labeled: map[string]*session{}} }

// open returns a session if it is open, and nil otherwise. The caller holds the lock.
func (s *sessions) open(in *session) *session {
	switch {
	case in == nil:
		return s.main
	case in.EndedAt != nil:
		return nil
	}
	return in
}

// within holds the lock and calls `do` with the session. If the session is not open, within does not call `do`.
func (s *sessions) within(in *session, do func(n *session)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.open(in); n != nil {
		do(n)
	}
}

func (s *sessions) start(n verdict.Session) (verdict.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Label == "" && s.main != nil || s.labeled[n.Label] != nil {
		with := "without a label"
		if n.Label != "" {
			with = "with this label"
		}
		return verdict.Session{}, fmt.Errorf("a session %s %w", with, errOpen)
	}
	if len(n.Rules) == 0 {
		n.Rules = s.api.RuleIDs()
	}
	began, err := s.begin(n)
	switch {
	case err != nil:
		return verdict.Session{}, err
	case n.Label != "":
		began.faults = newRules(n.Profile.Rules(api.Faults, n.Seed), n.Seed)
	case n.Profile != "":
		s.rules = newRules(n.Profile.Rules(api.Faults, n.Seed), n.Seed)
	}
	return began.Session, nil
}

// begin opens a session. It removes the oldest ended sessions if there are too many. The caller holds the lock.
func (s *sessions) begin(n verdict.Session) (*session, error) {
	if s.openOnes() >= verdict.MaxSessions {
		return nil, errFull
	}
	n.ID, n.CreatedAt = uuid.Must(uuid.NewV7()).String(), fault.Time(time.Now())
	began := &session{
		Session: n, log: &verdict.Log{}, jobs: map[string]*jobSeen{}, tries: map[string]int{}, results: map[string]string{},
		submitted: map[string]bool{}, ends: map[string]string{},
	}
	s.all = append(s.all, began)
	if n.Label == "" {
		s.main = began
	} else {
		s.labeled[n.Label] = began
	}
	kept, bytes := s.openOnes(), 0
	for i, old := range slices.Backward(s.all) {
		if old.EndedAt == nil {
			continue
		}
		if kept, bytes = kept+1, bytes+old.bytes; kept > verdict.MaxSessions || bytes > verdict.MaxAllBytes {
			s.all = slices.Delete(s.all, i, i+1)
		}
	}
	return began, nil
}

// The caller holds the lock.
func (s *sessions) openOnes() int {
	if s.main == nil {
		return len(s.labeled)
	}
	return len(s.labeled) + 1
}

// sessionFor returns the open session with the label. If there is none, it opens one with the settings of the open session without a label.
// If neither session is open, or `label` is empty, it returns nil.
func (s *sessions) sessionFor(label string) (*session, error) {
	if label == "" {
		return nil, nil
	}
	if !verdict.ValidLabel(label) {
		return nil, errLabel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.labeled[label]; n != nil || s.main == nil {
		return n, nil
	}
	like := s.main.Session
	n, err := s.begin(verdict.Session{Label: label, Profile: like.Profile, Seed: like.Seed, Rules: like.Rules})
	if err == nil {
		n.faults = s.rules.again()
	}
	return n, err
}

// list returns the sessions with the given label, latest first. If `label` is empty, it returns all sessions.
func (s *sessions) list(label string) []verdict.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []verdict.Session{}
	for _, n := range slices.Backward(s.all) {
		if label == "" || n.Label == label {
			list = append(list, n.Session)
		}
	}
	return list
}

// The caller holds the lock.
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

// end ends a session and the faults of its profile. The end of the session without a label also ends all labeled sessions. For a session
// that has ended, end does nothing.
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
		*s.rulesOf(orMain(n)) = rules{}
	}
	asked := map[*session]map[string]jobSeen{}
	for _, ending := range s.endingWith(n) {
		if slices.Contains(ending.Rules, "outcome-learned") {
			asked[ending] = ending.unfinished()
		}
	}
	s.mu.Unlock()
	for ending, jobs := range asked {
		s.readUnfinished(ending, jobs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ending := range s.endingWith(n) {
		ending.EndedAt = new(fault.Time(time.Now()))
		for _, j := range ending.jobs {
			j.as = nil
		}
		if delete(s.labeled, ending.Label); ending == s.main {
			s.main = nil
		}
	}
	return n.Session, nil
}

// orMain returns n, or nil if n has no label. Methods take nil for the session without a label.
func orMain(n *session) *session {
	if n.Label == "" {
		return nil
	}
	return n
}

// endingWith returns the open sessions that end with n: n itself and, if n has no label, all labeled sessions. The caller holds the lock.
func (s *sessions) endingWith(n *session) []*session {
	var all []*session
	for _, other := range s.all {
		if other.EndedAt == nil && (other == n || n == s.main) {
			all = append(all, other)
		}
	}
	return all
}

// unfinished returns the jobs that the proxy can read and that have no known end.
func (n *session) unfinished() map[string]jobSeen {
	list := map[string]jobSeen{}
	for name, j := range n.jobs {
		if j.Finished.IsZero() && j.address != nil && j.as != nil {
			list[name] = *j
		}
	}
	return list
}

// readUnfinished reads jobs without a known end, with the credentials of the client, to find ends that the client missed.
func (s *sessions) readUnfinished(n *session, jobs map[string]jobSeen) {
	for name, j := range jobs {
		status, h, document := s.probe(j.address, j.as)
		if status >= http.StatusOK && status < http.StatusBadRequest {
			s.mu.Lock()
			n.noteState(s.api, name, status, h, document, time.Now())
			s.mu.Unlock()
		}
	}
}

func (s *sessions) verdict(id string) (verdict.Verdict, error) {
	s.mu.Lock()
	n, err := s.find(id)
	if err != nil {
		s.mu.Unlock()
		return verdict.Verdict{}, err
	}
	r := verdict.Record{
		Session: n.Session, API: api.Faults, Now: time.Now(), Standards: true,
		Log: n.log.Copy(), Attempts: slices.Clone(n.attempts), Guess: n.guesses.guess(), States: slices.Clone(n.passing),
	}
	for _, j := range n.jobs {
		r.Runs = append(r.Runs, j.Run)
	}
	// If the description has no submissions, use the requests that created jobs.
	if submitted := maps.Clone(n.submitted); !s.api.Described(verdict.Submit) {
		r.Submits = func(method, path string) bool { return submitted[method+" "+path] }
	}
	s.mu.Unlock()
	slices.SortFunc(r.Runs, func(x, y verdict.Run) int { return x.Finished.Compare(y.Finished) })
	return verdict.Of(&r), nil
}
