// Package judge says whether a run of the simulator saw anything that must never
// happen: Judge compares all facts of each job with the invariants. Package
// collect adds what the API, the rows, the queue and the metrics say at the end.
//
// It knows the service by its contract alone: states, transitions and the
// catalogue of work kinds are its own copies, so that a mistake of the service is
// not taken over. What could not be read is reported as not checked; it never
// passes silently.
package judge

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Invariant is one thing that must hold after anything.
type Invariant struct {
	Key, Title string
	sources    []Source // that it needs at the end: without one, it is checked in part or not at all
}

// Keys of the invariants.
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

// Invariants are all that Judge checks.
var Invariants = []Invariant{
	{accepted, "Every 202 has its job, and no job is without its request", []Source{Lists, Rows}},
	{ended, "Every attempt ends once, with outcome, report and terminal event, or waits for its time", []Source{Lists, Reports, Rows}},
	{logged, "Each log is numbered from 1, a chain of allowed transitions, and never runs backwards", []Source{Reports, Rows}},
	{early, "Nothing starts before its execution_at", []Source{Reports, Rows}},
	{fenced, "Every claim has its fence, and nothing of a stale worker is visible", []Source{Rows}},
	{keyed, "One idempotency key, one job", []Source{Lists, Rows}},
	{foreign, "Nothing of another client, and nothing forged, in any answer, stream or delivery", []Source{Lists, Rows}},
	{delivered, "Each event has its one delivery to each subscriber, and DELIVERED means answered with 2xx", []Source{Reports, Rows}},
	{measured, "Metrics agree with the rows", []Source{Rows, Metrics}},
	{tasked, "At rest no task is queued without its job", []Source{Rows, Queue}},
	{answered, "Each answer shows what was so at its time", []Source{Lists, Reports, Rows}},
	{streamed, "Each event is on its client's stream exactly once, in the order of its job", []Source{Rows}},
	{received, "What receivers get is a known event, unchanged from try to try", []Source{Rows}},
	{timed, "Durations are what lies between start and end, and as long as the work", []Source{Reports, Rows}},
	{expected, "Each work kind ends as the catalogue says", []Source{Reports, Rows}},
	{scheduled, "Each due time of a schedule has one job, none early, and no other time has one", []Source{Lists, Rows}},
}

// Reader gives facts as history.Reader does.
type Reader interface {
	Jobs(bucket int) (map[string][]history.Fact, error)
	Each(bucket int, fn func(history.Fact) error) error
}

// Judge checks the history against all invariants, bucket by bucket, so that its
// memory grows by one byte a ticket. Its error is the reader's or the context's.
func Judge(ctx context.Context, r Reader, run RunContext) (*Verdict, error) {
	run.latestSeen = run.moves().Latest(moveLag)
	run.across = &across{tickets: make([]byte, max(run.Tickets, 0)+1), schedules: map[string]*scheduleRuns{}}
	b := newVerdictBuilder(&run)
	if err := r.Each(history.Loose, b.checkLoose); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // each holds a bucket
	for bucket := range history.Buckets {
		group.Go(func() error {
			if working.Err() != nil {
				return context.Cause(working)
			}
			jobs, err := r.Jobs(bucket)
			if err != nil {
				return fmt.Errorf("bucket %d of the history: %w", bucket, err)
			}
			b.checkJobs(jobs)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	b.check(&jobFacts{}, (*checker).checkSchedules, (*checker).checkMetrics)
	if run.complete(Queue) && run.complete(Rows) {
		b.verdict.Checked[tasked]++ // an empty queue counts as checked
	}
	return b.finish(), nil
}

// check holds facts against rules.
func (b *verdictBuilder) check(j *jobFacts, rules ...func(*checker)) {
	c := &checker{jobFacts: j, run: b.run, looked: map[string]int64{}}
	for _, rule := range rules {
		rule(c)
	}
	b.add(c.violations, c.looked, j.facts)
}

// checkLoose checks one of the facts without a subject. They are not held in
// memory: there are as many as the run has refused submissions.
func (b *verdictBuilder) checkLoose(f history.Fact) error {
	b.verdict.Facts++
	if f.Submission != nil {
		b.run.across.sent(&f)
	}
	if f.Schedule != nil {
		b.run.across.schedules[f.Schedule.ID] = &scheduleRuns{Schedule: *f.Schedule, tenant: f.Tenant, jobs: map[int64]int{}}
	}
	b.check(&jobFacts{facts: []history.Fact{f}, ticket: f.Ticket}, func(c *checker) {
		switch {
		case f.Submission != nil: // ended without a job
			c.checkRefusals(f.Submission)
		case f.Kind == history.Forbidden:
			c.forbidden(&f)
		case f.Kind == history.QueuedTask:
			c.look(tasked)
			c.must(f.Note == "", tasked, "task %s: %s", f.Task.ID, f.Note)
		}
	})
	return nil
}

// checkJobs checks some jobs, and events of no job.
func (b *verdictBuilder) checkJobs(jobs map[string][]history.Fact) {
	for _, subject := range slices.Sorted(maps.Keys(jobs)) {
		facts := jobs[subject]
		j := newJobFacts(facts[0].Job, facts, b.run)
		b.check(j, (*checker).checkOwners, (*checker).checkOutsiders)
		switch {
		case j.isJob():
			b.check(j, rules...)
		case j.id == "":
			b.check(j, (*checker).checkClientEvent)
		}
		b.mu.Lock()
		b.verdict.Facts += int64(len(facts))
		b.verdict.Jobs += int64(count(j.job != nil))
		b.mu.Unlock()
	}
}

// checker checks one job, or what else is looked at together.
type checker struct {
	*jobFacts
	run *RunContext

	looked     map[string]int64 // how often each invariant was checked
	violations []Violation
}

// rules are the checks of a job that is the run's.
var rules = []func(*checker){
	(*checker).checkTicket, (*checker).checkExistence, (*checker).checkKey, (*checker).checkLog, (*checker).checkEnd, (*checker).checkReports,
	(*checker).checkAPIReports, (*checker).checkRetries, (*checker).checkEarly, (*checker).checkFence, (*checker).checkDurations,
	(*checker).checkCatalogue, (*checker).checkLimit, (*checker).checkAnswers, (*checker).checkLists, (*checker).checkStreams,
	(*checker).checkDeliveries, (*checker).checkReceived, (*checker).checkDeliveryLogs, (*checker).checkTasks,
}

// isJob reports whether the facts are about a job: a batch's may be kept under its id.
func (j *jobFacts) isJob() bool {
	return len(j.byKind[history.Submitted]) > 0 || j.job != nil || len(j.log) > 0 || len(j.byKind[history.StoredReport]) > 0 ||
		len(j.byKind[history.QueuedTask]) > 0
}

// look counts that an invariant was checked.
func (c *checker) look(invariant string) { c.looked[invariant]++ }

// must notes a violation unless ok. The text begins with what is wrong.
func (c *checker) must(ok bool, invariant, format string, args ...any) {
	if !ok {
		c.violations = append(c.violations, Violation{Invariant: invariant, Job: c.id, Ticket: c.ticket, What: fmt.Sprintf(format, args...)})
	}
}
