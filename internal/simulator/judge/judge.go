package judge

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Judge holds the history against all invariants. It reads the history one bucket
// after the other, so that its memory does not grow with the number of jobs, but
// for a byte a ticket. Its error is one of the disk, or the context's.
func Judge(ctx context.Context, r *history.Reader, run RunContext) (*Verdict, error) {
	return judge(ctx, r, run)
}

// reader gives facts as history.Reader does.
type reader interface {
	Jobs(bucket int, fn func(jobs map[string][]history.Fact) error) error
	Each(bucket int, fn func(history.Fact) error) error
}

func judge(ctx context.Context, r reader, run RunContext) (*Verdict, error) {
	b := newVerdictBuilder(&run)
	if err := b.checkUnattributed(r, &run); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // each holds a bucket
	for bucket := range history.Buckets {
		group.Go(func() error {
			if working.Err() != nil {
				return context.Cause(working)
			}
			return b.checkBucket(r, bucket, &run)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := b.checkTickets(ctx, r, &run); err != nil {
		return nil, err
	}
	b.unattributed.check(&run, func(invariant, what string) {
		b.add([]Violation{{Invariant: invariant, What: what}}, nil, nil)
	})
	b.checkMetrics(&run)
	if run.complete(Queue) && run.complete(Rows) {
		b.verdict.Checked[tasked]++ // an empty queue is one that was looked at
	}
	return b.finish(&run), nil
}

func (b *verdictBuilder) checkBucket(r reader, bucket int, run *RunContext) error {
	err := r.Jobs(bucket, func(jobs map[string][]history.Fact) error {
		for job, facts := range jobs {
			j := newJobFacts(job, facts, run)
			c := checkJob(j, run)
			b.note(j, run)
			b.add(c.violations, c.looked, facts)
			delete(jobs, job) // it is not needed again
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bucket %d of the history: %w", bucket, err)
	}
	return nil
}

// note takes what a job says of its ticket, and deliveries of events of no job.
func (b *verdictBuilder) note(j *jobFacts, run *RunContext) {
	for i := range j.facts {
		if f := &j.facts[i]; f.Delivery != nil && ofNoJob(f.Delivery.EventName) {
			b.addUnattributed(f, run)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict.Facts += int64(len(j.facts))
	for _, f := range j.byKind[history.Submitted] {
		if f.Submission != nil {
			b.tickets.mark(f.Ticket, flagsOf(f.Submission))
		}
	}
	job := j.current()
	if job == nil {
		return
	}
	b.verdict.Jobs++
	if ticket, ok := TicketOf(run.Run, job.Correlation); ok {
		b.tickets.mark(ticket, ticketHasJob)
	}
}

func (b *verdictBuilder) addUnattributed(f *history.Fact, run *RunContext) {
	b.mu.Lock()
	invariant, wrong := b.unattributed.add(f, run)
	b.mu.Unlock()
	var violations []Violation
	if wrong != "" {
		violations = []Violation{{Invariant: invariant, Job: f.Job, What: wrong}}
	}
	b.add(violations, map[string]int64{delivered: 1}, []history.Fact{*f})
}

// judgeLoose goes through the facts about no job one by one: there may be as many
// as the run has refused submissions.
func (b *verdictBuilder) checkUnattributed(r reader, run *RunContext) error {
	return r.Each(history.Loose, func(f history.Fact) error {
		b.verdict.Facts++
		wrong := Violation{Ticket: f.Ticket}
		switch {
		case f.Submission != nil:
			b.tickets.mark(f.Ticket, flagsOf(f.Submission))
			b.checkRefusedSubmission(&f, run)
		case f.Kind == history.Strange:
			b.verdict.Checked[foreign]++
			wrong.Invariant, wrong.What = foreign, fmt.Sprintf("tenant %d saw what nobody may: %s", f.Tenant, f.Note)
		case f.Kind == history.QueuedTask:
			b.verdict.Checked[tasked]++
			if f.Note != "" {
				wrong.Invariant, wrong.What = tasked, fmt.Sprintf("task %s: %s", f.Task.ID, f.Note)
			}
		case f.Delivery != nil:
			b.addUnattributed(&f, run)
		}
		if wrong.Invariant != "" {
			b.add([]Violation{wrong}, nil, []history.Fact{f})
		}
		return nil
	})
}

// judgeLooseSubmission looks at one that ended without a job.
func (b *verdictBuilder) checkRefusedSubmission(f *history.Fact, run *RunContext) {
	var found []Violation
	checkRefusals(f.Submission, run, func(ok bool, invariant, format string, args ...any) {
		if !ok {
			found = append(found, Violation{Invariant: invariant, Ticket: f.Ticket, What: fmt.Sprintf(format, args...)})
		}
	})
	b.add(found, map[string]int64{answered: 1}, []history.Fact{*f})
}

// judgeTickets finds the tickets that are wrong, and reads the history again for
// what it says of them: there are none, as a rule.
func (b *verdictBuilder) checkTickets(ctx context.Context, r reader, run *RunContext) error {
	stories := map[int64]*brokenTicket{}
	more := map[string]int64{} // that are only counted
	for n := int64(1); n < int64(len(b.tickets)); n++ {
		if invariant, what := b.tickets.suspect(n); invariant != "" {
			if len(stories) < maxViolations {
				stories[n] = &brokenTicket{Violation: Violation{Invariant: invariant, Ticket: n, What: what}}
			} else {
				more[invariant]++
			}
		}
		if b.tickets[n] != 0 {
			b.verdict.Checked[keyed]++
		}
	}
	if len(stories) == 0 {
		return nil
	}
	if err := r.Each(history.Loose, func(f history.Fact) error {
		if s := stories[f.Ticket]; s != nil {
			s.facts = append(s.facts, f)
		}
		return nil
	}); err != nil {
		return err
	}
	for bucket := range history.Buckets {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.Jobs(bucket, func(jobs map[string][]history.Fact) error {
			for job, facts := range jobs {
				j := newJobFacts(job, facts, run)
				if s := stories[j.ticket]; s != nil {
					s.add(j)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for _, s := range stories {
		b.add([]Violation{s.Violation}, nil, s.facts)
	}
	for invariant, n := range more {
		b.count(invariant, n)
	}
	return nil
}

// ticketStory is a wrong ticket with the facts of its jobs.
type brokenTicket struct {
	Violation
	facts  []history.Fact
	latest *history.Job
}

// add makes the violation one of the job that was made last.
func (s *brokenTicket) add(j *jobFacts) {
	s.facts = append(s.facts, j.facts...)
	job := j.current()
	if job == nil {
		return
	}
	s.What += ", " + j.job
	if s.latest == nil || job.CreatedAt.After(s.latest.CreatedAt) {
		s.latest, s.Job = job, j.job
	}
}
