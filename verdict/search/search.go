package search

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	// lag is how many trials may run ahead of what plans the next one. It does not depend on the number of workers, so that the search
	// does not either.
	lag          = 32
	maxFindings  = 20
	maxStrays    = 3
	hangAfter    = 15 * time.Second // and four times as long as without faults, and the waits of the faults
	gaugeTrials  = 2                // at least, without faults
	firstTrialIn = 5 * time.Minute
)

// MaxWorkers is the most runs at once.
const MaxWorkers = lag

// Config says what to search for.
type Config struct {
	Seed    int64
	Workers int  // up to MaxWorkers
	Support int  // runs in which a schedule must break the client in the same way
	InRow   int  // faults in a row that a request must get over
	First   bool // end with the first finding

	// Run runs the client once under rules, and ends it after the limit. Each of several at once has another worker, from 0. An error
	// ends the search.
	Run func(ctx context.Context, worker int, rules []fault.Rule, limit time.Duration) (*Trial, error)
	// Progress is called after each trial, by one goroutine at a time.
	Progress func(Progress)
}

// Progress is how far a search is.
type Progress struct {
	Trials, Covered, Findings int
	Shrinking                 string // the rule of the group that is being shrunk; empty: none is
}

// ErrBroken is why a client is not searched that is broken without faults.
var ErrBroken = errors.New("the client is broken without any fault")

// Finding is a schedule that breaks the client, and that nothing can be left out of.
type Finding struct {
	Name     string        `json:"name"` // of its file
	Schedule Schedule      `json:"schedule"`
	Words    string        `json:"words"`
	Rules    []fault.Rule  `json:"rules"`  // that bring it about
	Breaks   []Break       `json:"breaks"` // the first one is what was shrunk
	Hits     int           `json:"hits"`   // runs that broke in this way, of all Runs of the schedule
	Runs     int           `json:"runs"`
	Cut      bool          `json:"cut,omitempty"`  // the search ended before it was as small as it can be
	Once     bool          `json:"once,omitempty"` // the search ended before it was repeated
	Took     time.Duration `json:"-"`              // of the search, until it was found
}

// Flaky reports whether the schedule broke the client only sometimes, or only once so far.
func (f *Finding) Flaky() bool { return f.Once || f.Hits < f.Runs }

// Report is what a search has shown.
type Report struct {
	Seed       int64       `json:"seed"`
	Operations []Operation `json:"operations"`
	Trials     int         `json:"trials"`
	Seconds    float64     `json:"seconds"`
	Covered    int         `json:"covered"` // different faults by operation and state of the job
	Cells      []Tried     `json:"map"`
	Findings   []Finding   `json:"findings"`
	Flaky      []Finding   `json:"flaky"`
}

// Tried is how often a fault happened to an operation, and how often it was part of what broke the client.
type Tried struct {
	Operation string `json:"operation"`
	Fault     string `json:"fault"`
	Trials    int    `json:"trials"`
	Broke     int    `json:"broke"` // findings that have it
}

// search is a search that runs.
type search struct {
	Config
	free    chan int // workers
	began   time.Time
	base    base
	planner *planner
	seen    coverage
	tried   map[Cell]int       // trials, by cells without a state
	known   map[string]bool    // groups of findings
	strays  map[string]int     // schedules that broke the client only sometimes, by groups
	shown   map[string][]Break // by schedules that were tried
	report  Report

	mu sync.Mutex // of report.Trials and Progress
}

// Search searches until the context ends, or nothing is left to try. Its end is no error: the report has what there is until then.
func Search(ctx context.Context, c Config) (*Report, error) {
	s := newSearch(c)
	if err := s.gauge(ctx); err != nil {
		return nil, err
	}
	s.planner = newPlanner(s.report.Operations, c.InRow, c.Seed)
	err := s.explore(ctx)
	s.conclude()
	if ctx.Err() != nil {
		err = nil
	}
	return &s.report, err
}

// newSearch is a search that has not begun.
func newSearch(c Config) *search {
	s := &search{
		Config: c, free: make(chan int, c.Workers), began: time.Now(), seen: coverage{}, tried: map[Cell]int{}, known: map[string]bool{},
		strays: map[string]int{},
		shown:  map[string][]Break{}, report: Report{Seed: c.Seed, Findings: []Finding{}, Flaky: []Finding{}},
	}
	for n := range c.Workers {
		s.free <- n
	}
	return s
}

// limit is how long the client may take under a schedule.
func (s *search) limit(schedule Schedule) time.Duration {
	return hangAfter + 4*s.base.took + 2*schedule.waits()
}

// pending is a trial that runs.
type pending struct {
	schedule Schedule
	done     chan struct{}
	trial    *Trial
	err      error
}

// explore tries schedules, and shrinks those that break the client. What a trial has shown counts from lag trials later on, whichever
// ends first. While it shrinks, no other trial begins.
func (s *search) explore(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running []*pending
	absorb := func() error {
		p := running[0]
		running = running[1:]
		<-p.done
		if p.err != nil {
			return p.err
		}
		return s.absorb(ctx, p.schedule, p.trial)
	}
	var failed error
	for failed == nil && !s.enough() {
		if len(running) >= lag {
			failed = absorb()
			continue
		}
		worker, err := s.worker(ctx)
		if err != nil {
			failed = err
			break
		}
		next, ok := s.planner.next(s.seen)
		if !ok {
			s.free <- worker
			break
		}
		p := &pending{schedule: next, done: make(chan struct{})}
		running = append(running, p)
		go func() {
			defer close(p.done)
			p.trial, p.err = s.tryBy(ctx, worker, p.schedule, 0)
		}()
	}
	for len(running) > 0 {
		if failed != nil || s.enough() {
			cancel()
		}
		if err := absorb(); failed == nil && !s.enough() {
			failed = err
		}
	}
	return failed
}

// enough reports whether the search has found what it is to find.
func (s *search) enough() bool {
	return s.First && len(s.report.Findings) > 0 || len(s.report.Findings) >= maxFindings
}

// worker returns one that is free.
func (s *search) worker(ctx context.Context) (int, error) {
	select {
	case worker := <-s.free:
		return worker, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// try runs the client once, when a worker is free.
func (s *search) try(ctx context.Context, schedule Schedule, limit time.Duration) (*Trial, error) {
	worker, err := s.worker(ctx)
	if err != nil {
		return nil, err
	}
	return s.tryBy(ctx, worker, schedule, limit)
}

// tryBy runs the client once by a worker, which is free then.
func (s *search) tryBy(ctx context.Context, worker int, schedule Schedule, limit time.Duration) (*Trial, error) {
	defer func() { s.free <- worker }()
	if limit == 0 {
		limit = s.limit(schedule)
	}
	t, err := s.Run(ctx, worker, schedule.Rules(), limit)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the client was interrupted
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Trials++
	return t, nil
}

// absorb takes into account what a trial has shown.
func (s *search) absorb(ctx context.Context, schedule Schedule, t *Trial) error {
	s.seen.add(t)
	met, own := map[Cell]bool{}, coverage{}
	own.add(t)
	for cell := range own {
		met[Cell{Operation: cell.Operation, Fault: cell.Fault}] = true
	}
	for cell := range met {
		s.tried[cell]++
	}
	s.tell("")
	breaks := s.base.breaks(schedule, t)
	s.shown[schedule.key()] = breaks
	if len(schedule) == 1 && schedule[0].Times == 1 && schedule.mayFail() && t.Failed != "" {
		s.planner.ends[schedule[0].kind()] = true
	}
	for _, b := range breaks {
		if s.explained(schedule, b) || s.enough() || ctx.Err() != nil {
			continue
		}
		s.tell(b.Rule)
		if err := s.pursue(ctx, schedule, b); err != nil {
			return err
		}
		s.tell("")
	}
	return nil
}

// explained reports whether a break is one that has been found.
func (s *search) explained(schedule Schedule, b Break) bool {
	return s.known[b.group()] || s.strays[b.group()] >= maxStrays || slices.ContainsFunc(s.report.Findings, func(f Finding) bool {
		return schedule.contains(f.Schedule) && slices.ContainsFunc(f.Breaks, func(known Break) bool { return known.Rule == b.Rule })
	})
}

// tell tells how far the search is.
func (s *search) tell(shrinking string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Progress(Progress{
		Trials: s.report.Trials, Covered: len(s.seen), Findings: len(s.report.Findings) + len(s.report.Flaky), Shrinking: shrinking,
	})
}
