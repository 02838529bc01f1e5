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
	lag            = 32
	maxFindings    = 20
	maxFlaky       = 3
	hangAfter      = 15 * time.Second // and four times as long as without faults, and the waits of the faults
	baselineTrials = 2                // at least, without faults
	firstTrialIn   = 5 * time.Minute
)

// MaxWorkers is the most runs at once.
const MaxWorkers = lag

// Config configures a search.
type Config struct {
	Seed    int64
	Workers int  // up to MaxWorkers
	Support int  // runs in which a schedule must break the client in the same way
	InRow   int  // faults in a row that a client must handle
	First   bool // stop at the first finding

	// Run runs the client once under rules, and ends it after the limit. Each of several at once has another worker, from 0. An error
	// ends the search.
	Run func(ctx context.Context, worker int, rules []fault.Rule, limit time.Duration) (*Trial, error)
	// Progress is called after each trial, by one goroutine at a time. It may be nil.
	Progress func(Progress)
}

// Progress is the progress of a search.
type Progress struct {
	Trials, Covered, Findings int
	Shrinking                 string // the rule of the group that is being shrunk; empty: none is
}

// String says it in a line.
func (p Progress) String() string {
	text := counted(p.Trials, "run") + ", " + counted(p.Covered, "combination") + " covered, " + counted(p.Findings, "finding")
	if p.Shrinking != "" {
		text += ", shrinking " + p.Shrinking
	}
	return text
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

// Report is the result of a search.
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

// search is a running search.
type search struct {
	Config
	free        chan int // workers
	began       time.Time
	base        base
	planner     *planner
	known       map[string]bool    // groups of findings
	flakyGroups map[string]int     // schedules that broke the client only sometimes, by groups
	shown       map[string][]Break // by schedules that were tried
	fresh       []Schedule         // of findings that the planner does not know yet
	report      Report

	mu        sync.Mutex // of what follows, report.Trials and Progress
	seen      map[Cell]bool
	tried     map[Cell]int // trials, by cells without a state
	shrinking string
	kept      int // findings
}

// Search searches until the context ends or nothing is left to try. The end of the context is not an error; the report has the
// results so far.
func Search(ctx context.Context, c Config) (*Report, error) {
	s := newSearch(c)
	if err := s.measure(ctx); err != nil {
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

// newSearch returns a search that has not begun.
func newSearch(c Config) *search {
	s := &search{
		Config: c, free: make(chan int, c.Workers), began: time.Now(), seen: map[Cell]bool{}, tried: map[Cell]int{}, known: map[string]bool{},
		flakyGroups: map[string]int{}, shown: map[string][]Break{},
		report: Report{Seed: c.Seed, Findings: []Finding{}, Flaky: []Finding{}},
	}
	for n := range c.Workers {
		s.free <- n
	}
	if s.Progress == nil {
		s.Progress = func(Progress) {}
	}
	return s
}

// limit is how long the client may take under a schedule.
func (s *search) limit(schedule Schedule) time.Duration {
	if s.base.took == 0 {
		return firstTrialIn
	}
	return hangAfter + 4*s.base.took + 2*schedule.waits()
}

// pending is a running trial.
type pending struct {
	schedule  Schedule
	done      chan struct{}
	trial     *Trial
	err       error
	processed bool
	found     []Schedule // findings that came of it
}

// explore tries schedules, and shrinks those that break the client, in the order of the trials. What a trial has shown counts for the
// plan from lag trials later on, whichever ends first. While it shrinks, no other trial begins.
func (s *search) explore(ctx context.Context) (failed error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running []*pending
	for failed == nil && !s.enough() {
		if len(running) >= lag {
			<-running[0].done
		}
		var worker int
		if worker, failed = s.worker(ctx); failed != nil {
			break
		}
		if p := ended(running); p != nil { // by now, or while there was no worker
			s.free <- worker
			failed = s.process(ctx, p)
			continue
		}
		if len(running) >= lag {
			s.applyResult(running[0])
			running = running[1:]
		}
		next, ok := s.planner.next()
		if !ok {
			s.free <- worker
			break
		}
		running = append(running, s.start(ctx, worker, next))
	}
	for _, p := range running {
		if failed != nil || s.enough() {
			cancel()
		}
		if <-p.done; p.processed {
			continue
		}
		if err := s.process(ctx, p); failed == nil && !s.enough() {
			failed = err
		}
	}
	return failed
}

// start runs the client by a worker, which is free then.
func (s *search) start(ctx context.Context, worker int, schedule Schedule) *pending {
	p := &pending{schedule: schedule, done: make(chan struct{})}
	go func() {
		p.trial, p.err = s.try(ctx, worker, schedule)
		close(p.done)
		s.free <- worker
	}()
	return p
}

// ended returns the first trial that was not processed, if it has ended.
func ended(running []*pending) *pending {
	for _, p := range running {
		if p.processed {
			continue
		}
		select {
		case <-p.done:
			return p
		default:
			return nil
		}
	}
	return nil
}

// learn has the planner know what a trial has shown.
func (s *search) applyResult(p *pending) {
	if len(p.schedule) == 1 && p.schedule.mayFail() && p.trial.Failed != "" {
		s.planner.ends[p.schedule[0].kind()] = true
	}
	s.planner.known = append(s.planner.known, p.found...)
}

// enough reports whether the search has found what it is to find.
func (s *search) enough() bool {
	return s.First && len(s.report.Findings) > 0 || len(s.report.Findings) >= maxFindings
}

// worker returns a free worker.
func (s *search) worker(ctx context.Context) (int, error) {
	select {
	case worker := <-s.free:
		return worker, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// try runs the client once by a worker.
func (s *search) try(ctx context.Context, worker int, schedule Schedule) (*Trial, error) {
	t, err := s.Run(ctx, worker, schedule.Rules(), s.limit(schedule))
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the client was interrupted
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Trials++
	for cell := range t.faults(true) {
		s.seen[cell] = true
	}
	for cell := range t.faults(false) {
		s.tried[cell]++
	}
	s.reportProgress()
	return t, nil
}

// follow pursues what is new of what a trial has shown.
func (s *search) process(ctx context.Context, p *pending) error {
	p.processed = true
	if p.err != nil {
		return p.err
	}
	breaks := s.base.breaks(p.schedule, p.trial)
	s.shown[p.schedule.key()] = breaks
	for _, b := range breaks {
		if s.explained(p.schedule, b) || s.enough() || ctx.Err() != nil {
			continue
		}
		s.reportShrinking(b.Rule)
		if err := s.pursue(ctx, p, b); err != nil {
			return err
		}
		s.reportShrinking("")
	}
	p.found, s.fresh = s.fresh, nil
	return nil
}

// explained reports whether a break has already been found.
func (s *search) explained(schedule Schedule, b Break) bool {
	return s.known[b.group()] || s.flakyGroups[b.group()] >= maxFlaky || slices.ContainsFunc(s.report.Findings, func(f Finding) bool {
		return schedule.contains(f.Schedule) && slices.ContainsFunc(f.Breaks, func(known Break) bool { return known.Rule == b.Rule })
	})
}

// tell tells how far the search is.
func (s *search) reportProgress() {
	s.Progress(Progress{Trials: s.report.Trials, Covered: len(s.seen), Findings: s.kept, Shrinking: s.shrinking})
}

func (s *search) reportShrinking(rule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shrinking, s.kept = rule, len(s.report.Findings)+len(s.report.Flaky)
	s.reportProgress()
}
