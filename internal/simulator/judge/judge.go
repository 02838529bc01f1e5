// Package judge finds violations of the service's contract in a run of the simulator. For each job it compares the responses during the
// run with the state that package collect read at the end.
//
// The package knows the service only from its contract. It has its own copies of the states, transitions and work kinds, so that it does
// not repeat mistakes of the service. If the database or another source was not read, the invariants that
// need it are reported as not checked.
package judge

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Invariant is something that must always hold.
type Invariant struct {
	Key     string   `json:"key"`
	Title   string   `json:"title"`
	sources []Source // sources that the check needs; if one was not read, the check is incomplete or skipped
}

// Keys of the invariants. Package invariants uses the same keys.
const (
	accepted  = "accepted"
	ended     = "final"
	logged    = "log"
	early     = "early"
	fenced    = "fence"
	keyed     = "key"
	foreign   = "foreign"
	delivered = "delivery"
	measured  = "metrics"
	tasked    = "queue"
	answered  = "answers"
	streamed  = "stream"
	received  = "received"
	timed     = "duration"
	expected  = "catalogue"
	scheduled = "schedule"
)

// Invariants are all invariants that Judge checks.
var Invariants = []Invariant{
	{accepted, "Every 202 response has a job, and every job has a request", []Source{Lists, Rows}},
	{ended, "Every attempt ends exactly once, with outcome, report and terminal event, or still waits for its start time",
		[]Source{Lists, Reports, Rows}},
	{logged, "Each event log is numbered from 1, has only allowed transitions, and never goes back in time", []Source{Reports, Rows}},
	{early, "No job starts before its execution_at", []Source{Reports, Rows}},
	{fenced, "Every claim has its own fence number, and no change by a worker without a valid claim is visible", []Source{Rows}},
	{keyed, "One idempotency key creates one job", []Source{Lists, Rows}},
	{foreign, "No response, stream or delivery contains data of another client or forged data", []Source{Lists, Rows}},
	{delivered, "Each event has one delivery to each subscriber, and DELIVERED means that the receiver returned 2xx", []Source{Reports, Rows}},
	{measured, "Metrics agree with the database rows", []Source{Rows, Metrics}},
	{tasked, "At the end of the run, every task in the Redis queue belongs to a job that waits for it", []Source{Rows, Queue}},
	{answered, "Each response shows a state that the job had at that time", []Source{Lists, Reports, Rows}},
	{streamed, "Each event is on its client's stream exactly once, in the order of the job's events", []Source{Rows}},
	{received, "Receivers get only events that exist, and each attempt of a delivery sends the same bytes", []Source{Rows}},
	{timed, "Each duration matches the start and end of its attempt, and is long enough for its work kind", []Source{Reports, Rows}},
	{expected, "Each job ends as defined for its work kind", []Source{Reports, Rows}},
	{scheduled, "Each due time of a schedule has one job, created at that time or later, and no other time has a job", []Source{Lists, Rows}},
}

// Reader reads facts. history.Store implements it.
type Reader interface {
	Jobs(bucket int) (map[string][]history.Fact, error)
	Each(bucket int, fn func(history.Fact) error) error
}

// Judge checks all invariants. It needs memory for at most four buckets of the history, and one byte for each ticket. It returns an error
// only if reading fails or the context ends.
func Judge(ctx context.Context, r Reader, run RunContext) (*Verdict, error) {
	run.latestSeen = run.moves().Latest(moveLag)
	run.across = &across{tickets: make([]byte, max(run.Tickets, 0)+1), schedules: map[string]*scheduleRuns{}}
	b := newVerdictBuilder(&run)
	if err := r.Each(history.Loose, b.checkLoose); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // each goroutine holds a bucket in memory
	for bucket := range history.Buckets {
		group.Go(func() error {
			if working.Err() != nil {
				return context.Cause(working)
			}
			jobs, err := r.Jobs(bucket)
			if err != nil {
				return fmt.Errorf("bucket %d of the history: %w", bucket, err)
			}
			for _, subject := range slices.Sorted(maps.Keys(jobs)) {
				b.checkSubject(jobs[subject])
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	b.check(&jobFacts{}, (*checker).checkSchedules, (*checker).checkMetrics)
	return b.finish(), nil
}

func (b *verdictBuilder) check(j *jobFacts, rules ...func(*checker)) {
	c := &checker{jobFacts: j, run: b.run, looked: map[string]int64{}}
	for _, rule := range rules {
		rule(c)
	}
	b.add(c.violations, c.looked, j.facts)
}

// checkLoose checks a fact without a subject, such as a refused submission. It does not keep these facts in memory, because a run may have
// very many.
func (b *verdictBuilder) checkLoose(f history.Fact) error {
	b.verdict.Facts++
	if f.Submission != nil {
		b.run.across.sent(&f)
	}
	if f.Schedule != nil {
		b.run.across.schedules[f.Schedule.ID] = &scheduleRuns{Schedule: *f.Schedule, tenant: f.Tenant, jobs: map[int64]int{}}
	}
	j := &jobFacts{facts: []history.Fact{f}, ticket: f.Ticket, byKind: map[history.Kind][]*history.Fact{f.Kind: {&f}}}
	b.check(j, (*checker).checkFindings, func(c *checker) {
		if f.Submission != nil { // the submission was refused
			c.checkRefusals(f.Submission)
		}
		if f.Kind == history.QueuedTask {
			c.must(f.Note == "", tasked, "task %s: %s", f.Task.ID, f.Note)
		}
	})
	return nil
}

func (b *verdictBuilder) checkSubject(facts []history.Fact) {
	j := newJobFacts(facts[0].Job, facts, b.run)
	b.check(j, (*checker).checkFindings, (*checker).checkOwners, (*checker).checkOutsiders)
	switch {
	case len(j.byKind[history.Submitted]) > 0 || j.job != nil || len(j.byKind[history.QueuedTask]) > 0:
		b.check(j, rules...)
	case j.id == "":
		b.check(j, (*checker).checkClientEvent)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict.Facts += int64(len(facts))
	b.verdict.Jobs += int64(count(j.job != nil))
}

type checker struct {
	*jobFacts
	run *RunContext

	looked     map[string]int64
	violations []Violation
}

var rules = []func(*checker){
	(*checker).checkTicket, (*checker).checkExistence, (*checker).checkKey, (*checker).checkEnd, (*checker).checkAPIReports,
	(*checker).checkRetries, (*checker).checkEarly, (*checker).checkDurations, (*checker).checkCatalogue, (*checker).checkLimit,
	(*checker).checkTries, (*checker).checkPolls, (*checker).checkActions, (*checker).checkOrder, (*checker).checkLists,
	(*checker).checkStream, (*checker).checkDeliveries, (*checker).checkReceived, (*checker).checkDeliveryLogs, (*checker).checkTasks,
}

func (c *checker) must(ok bool, invariant, format string, args ...any) {
	c.looked[invariant]++
	if !ok {
		c.violations = append(c.violations, Violation{Invariant: invariant, Job: c.id, Ticket: c.ticket, What: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) checkFindings() {
	for _, f := range c.byKind[history.Contradiction] {
		invariant, what, _ := strings.Cut(f.Note, ": ")
		c.must(false, invariant, "%s", what)
	}
	for _, f := range c.byKind[history.Forbidden] {
		c.must(false, foreign, "tenant %d saw data that no client may see: %s", f.Tenant, f.Note)
	}
}

// checkMetrics compares metrics with rows. It also counts the checks by SQL queries and by package collect. Such a check leaves a fact
// only if it finds a violation.
func (c *checker) checkMetrics() {
	for _, m := range c.run.Collected.Measured {
		if !m.Counter || c.run.Counters {
			c.must(m.Metric == m.Rows, measured, "metric %s is %v, but the database rows give %v", m.Name, m.Metric, m.Rows)
		}
	}
	if c.run.complete(Rows) {
		for _, invariant := range c.run.Collected.Rules {
			c.looked[invariant]++
		}
		c.looked[tasked] += int64(count(c.run.complete(Queue)))
	}
}

func count(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
