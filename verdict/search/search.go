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
	// When a trial is planned, the results of the last `lag` trials are not used yet. So the search depends on the seed and not on the
	// number of workers.
	lag            = 32
	maxFindings    = 20
	maxFlaky       = 3
	hangAfter      = 15 * time.Second // minimum time limit of a trial (see the method limit)
	baselineTrials = 2                // minimum number of trials without faults
	firstTrialIn   = 5 * time.Minute
)

// MaxWorkers is the maximum number of parallel runs.
const MaxWorkers = lag

// Config configures a search.
type Config struct {
	Seed    int64
	Workers int  // number of parallel runs, at most MaxWorkers
	Support int  // how often a schedule is repeated; each run must break the client in the same way
	InRow   int  // number of consecutive faults that a client must handle
	First   bool // whether to stop after the first finding

	// Run runs the client once under rules, and ends it after the limit. Parallel calls have different values of `worker`, starting at 0. An
	// error ends the search.
	Run func(ctx context.Context, worker int, rules []fault.Rule, limit time.Duration) (*Trial, error)
	// Progress is called after each trial, by one goroutine at a time. It may be nil.
	Progress func(Progress)
}

// Progress is the progress of a search.
type Progress struct {
	Trials, Covered, Findings int
	Shrinking                 string // broken rule for which a schedule is being shrunk; empty if there is none
}

// String describes the progress in one line.
func (p Progress) String() string {
	text := counted(p.Trials, "run") + ", " + counted(p.Covered, "combination") + " covered, " + counted(p.Findings, "finding")
	if p.Shrinking != "" {
		text += ", shrinking " + p.Shrinking
	}
	return text
}

// ErrBroken means that the client breaks a rule or fails without faults, so a search makes no sense.
var ErrBroken = errors.New("the client breaks even without faults")

// ErrSilent means that the client sent no request.
var ErrSilent = errors.New("no request arrived")

// Finding is a schedule that broke the client. A finding is minimal unless Cut is set or the finding is flaky.
type Finding struct {
	Name     string        `json:"name"`
	Schedule Schedule      `json:"schedule"`
	Words    string        `json:"words"`
	Rules    []fault.Rule  `json:"rules"`  // rules that implement the schedule
	Breaks   []Break       `json:"breaks"` // problems that the schedule revealed; shrinking kept what reveals the first of them
	Hits     int           `json:"hits"`   // number of runs that had the first of Breaks
	Runs     int           `json:"runs"`
	Cut      bool          `json:"cut,omitempty"`  // shrinking was not complete when the search ended
	Once     bool          `json:"once,omitempty"` // the search ended before the schedule was repeated
	Took     time.Duration `json:"-"`              // time from the start of the search to the finding
}

// Flaky reports whether the schedule broke the client in only some of its runs, or ran only once.
func (f *Finding) Flaky() bool { return f.Once || f.Hits < f.Runs }

// Report is the result of a search.
type Report struct {
	Seed       int64       `json:"seed"`
	Operations []Operation `json:"operations"`
	Trials     int         `json:"trials"`
	Seconds    float64     `json:"seconds"`
	Covered    int         `json:"covered"` // number of combinations of fault, operation and state of the job
	Cells      []Tried     `json:"map"`
	Findings   []Finding   `json:"findings"`
	Flaky      []Finding   `json:"flaky"`
}

// Tried counts the trials in which a fault happened to an operation, and the findings with that fault.
type Tried struct {
	Operation string `json:"operation"`
	Fault     string `json:"fault"`
	Trials    int    `json:"trials"`
	Broke     int    `json:"broke"` // number of findings with the fault
}

type search struct {
	Config
	free        chan int // free workers
	began       time.Time
	base        base
	planner     *planner
	known       map[string]bool    // by Break.group: whether a finding has a break of this group
	flakyGroups map[string]int     // number of flaky schedules by group
	shown       map[string][]Break // by schedule key: the breaks that the trial showed
	fresh       []Schedule         // schedules of new findings, not yet given to the planner
	report      Report

	mu        sync.Mutex // guards the following fields, report.Trials and Progress
	seen      map[Cell]bool
	tried     map[Cell]int // number of trials by operation and fault; Cell.State is empty
	shrinking string
	kept      int
}

// Search searches until the context ends or nothing is left to try. If the context ends, the report contains the results so far, and there
// is no error.
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

func (s *search) limit(schedule Schedule) time.Duration {
	if s.base.took == 0 {
		return firstTrialIn
	}
	return hangAfter + 4*s.base.took + 2*schedule.waits()
}

type pending struct {
	schedule  Schedule
	done      chan struct{}
	trial     *Trial
	err       error
	processed bool
	found     []Schedule
}

// explore tries schedules and processes their results in the order of the trials. When a schedule breaks the client, explore shrinks it
// before it starts the next trial. The planner gets a result only when `lag` more trials have begun, so the order in which trials end
// does not matter.
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
		if p := ended(running); p != nil {
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

func (s *search) start(ctx context.Context, worker int, schedule Schedule) *pending {
	p := &pending{schedule: schedule, done: make(chan struct{})}
	go func() {
		p.trial, p.err = s.try(ctx, worker, schedule)
		close(p.done)
		s.free <- worker
	}()
	return p
}

// ended returns the first unprocessed trial if it has ended, and nil otherwise.
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

func (s *search) applyResult(p *pending) {
	if p.schedule.mayFail() && p.trial.Failed != "" {
		s.planner.allowedFailure(p.schedule)
	}
	s.planner.known = append(s.planner.known, p.found...)
}

func (s *search) enough() bool {
	return s.First && len(s.report.Findings) > 0 || len(s.report.Findings) >= maxFindings
}

func (s *search) worker(ctx context.Context) (int, error) {
	select {
	case worker := <-s.free:
		return worker, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

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

// explained reports whether a break needs no further runs. Either a finding has the same break, or the break was flaky too often.
func (s *search) explained(schedule Schedule, b Break) bool {
	return s.known[b.group()] || s.flakyGroups[b.group()] >= maxFlaky || slices.ContainsFunc(s.report.Findings, func(f Finding) bool {
		return schedule.contains(f.Schedule) && slices.ContainsFunc(f.Breaks, func(known Break) bool { return known.Rule == b.Rule })
	})
}

// The caller holds the lock.
func (s *search) reportProgress() {
	s.Progress(Progress{Trials: s.report.Trials, Covered: len(s.seen), Findings: s.kept, Shrinking: s.shrinking})
}

func (s *search) reportShrinking(rule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shrinking, s.kept = rule, len(s.report.Findings)+len(s.report.Flaky)
	s.reportProgress()
}
