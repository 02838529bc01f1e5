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
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Reader gives facts as history.Reader does.
type Reader interface {
	Jobs(bucket int, fn func(jobs map[string][]history.Fact) error) error
	Each(bucket int, fn func(history.Fact) error) error
}

// Judge checks the history against all invariants, bucket by bucket, so that its
// memory grows by one byte a ticket. Its error is the reader's or the context's.
func Judge(ctx context.Context, r Reader, run RunContext) (*Verdict, error) {
	run.latestSeen = run.moves().Latest(moveLag)
	run.schedules = map[string]*scheduleRuns{}
	b := newVerdictBuilder(&run)
	if err := r.Each(history.Loose, b.checkUnattributed); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // each holds a bucket
	for bucket := range history.Buckets {
		group.Go(func() error {
			if working.Err() != nil {
				return context.Cause(working)
			}
			if err := r.Jobs(bucket, b.checkJobs); err != nil {
				return fmt.Errorf("bucket %d of the history: %w", bucket, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := b.checkTickets(ctx, r); err != nil {
		return nil, err
	}
	b.checkUnattributedDeliveries()
	b.checkSchedules()
	b.checkMetrics()
	if run.complete(Queue) && run.complete(Rows) {
		b.verdict.Checked[tasked]++ // an empty queue counts as checked
	}
	return b.finish(), nil
}

// checkJobs checks some jobs, and removes each from the map when it is done.
func (b *verdictBuilder) checkJobs(jobs map[string][]history.Fact) error {
	for id, facts := range jobs {
		j := newJobFacts(id, facts, b.run)
		c := checkJob(j, b.run)
		for i := range facts {
			if f := &facts[i]; f.Delivery != nil && ofNoJob(f.Delivery.EventName) {
				b.addUnattributed(*f)
			}
		}
		b.add(c.violations, c.looked, facts)
		b.count(j)
		delete(jobs, id)
	}
	return nil
}

// count counts the job and its facts, and marks its ticket.
func (b *verdictBuilder) count(j *jobFacts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict.Facts += int64(len(j.facts))
	for _, f := range j.byKind[history.Submitted] {
		if f.Submission != nil {
			b.tickets.mark(f.Ticket, flagsOf(f.Submission))
		}
	}
	if j.job != nil {
		b.verdict.Jobs++
		b.run.schedules[j.job.Schedule].add(j.job.ScheduledFor)
		if ticket, ok := TicketOf(b.run.Run, j.job.Correlation); ok {
			b.tickets.mark(ticket, ticketHasJob)
		}
	}
}

// checker checks one job.
type checker struct {
	*jobFacts
	run *RunContext

	looked     map[string]int64 // how often each invariant was checked
	violations []Violation
}

// rules are the checks of a job that is the run's.
var rules = []func(*checker){
	(*checker).checkExistence, (*checker).checkKey, (*checker).checkLog, (*checker).checkEnd, (*checker).checkReports,
	(*checker).checkToldReports, (*checker).checkRetries, (*checker).checkEarly, (*checker).checkFence, (*checker).checkDurations,
	(*checker).checkCatalogue, (*checker).checkLimit, (*checker).checkAnswers, (*checker).checkLists, (*checker).checkStreams,
	(*checker).checkDeliveries, (*checker).checkReceived, (*checker).checkDeliveryLogs, (*checker).checkTasks,
}

// checkJob checks all facts of one job against all invariants.
func checkJob(j *jobFacts, run *RunContext) *checker {
	c := &checker{jobFacts: j, run: run, looked: map[string]int64{}}
	c.checkOwners()
	c.checkOutsiders()
	if c.isJob() {
		for _, rule := range rules {
			rule(c)
		}
	}
	return c
}

// isJob reports whether the facts are about a job: a batch's may be kept under its id.
func (c *checker) isJob() bool {
	return len(c.byKind[history.Submitted]) > 0 || c.job != nil || len(c.log) > 0 || len(c.byKind[history.StoredReport]) > 0 ||
		len(c.byKind[history.QueuedTask]) > 0
}

// look counts that an invariant was checked.
func (c *checker) look(invariant string) { c.looked[invariant]++ }

// must notes a violation unless ok. The text begins with what is wrong.
func (c *checker) must(ok bool, invariant, format string, args ...any) {
	if !ok {
		c.violations = append(c.violations, Violation{Invariant: invariant, Job: c.id, Ticket: c.ticket, What: fmt.Sprintf(format, args...)})
	}
}
