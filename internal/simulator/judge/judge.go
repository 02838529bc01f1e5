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
func Judge(ctx context.Context, r *history.Reader, g Ground) (*Verdict, error) {
	return judge(ctx, r, g)
}

// reader gives facts as history.Reader does.
type reader interface {
	Jobs(bucket int, fn func(jobs map[string][]history.Fact) error) error
	Each(bucket int, fn func(history.Fact) error) error
}

func judge(ctx context.Context, r reader, g Ground) (*Verdict, error) {
	b := newBench(&g)
	if err := b.judgeLoose(r, &g); err != nil {
		return nil, err
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), 4)) // each holds a bucket
	for bucket := range history.Buckets {
		group.Go(func() error {
			if working.Err() != nil {
				return context.Cause(working)
			}
			return b.judgeBucket(r, bucket, &g)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := b.judgeTickets(ctx, r, &g); err != nil {
		return nil, err
	}
	b.loose.judge(&g, func(invariant, what string) {
		b.add([]Violation{{Invariant: invariant, What: what}}, nil, nil)
	})
	b.judgeMetrics(&g)
	if g.whole(Queue) && g.whole(Rows) {
		b.verdict.Checked[tasked]++ // an empty queue is one that was looked at
	}
	return b.finish(&g), nil
}

func (b *bench) judgeBucket(r reader, bucket int, g *Ground) error {
	err := r.Jobs(bucket, func(jobs map[string][]history.Fact) error {
		for job, facts := range jobs {
			d := newDossier(job, facts, g)
			q := judgeJob(d, g)
			b.note(d, g)
			b.add(q.violations, q.looked, facts)
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
func (b *bench) note(d *dossier, g *Ground) {
	for i := range d.facts {
		if f := &d.facts[i]; f.Delivery != nil && ofNoJob(f.Delivery.EventName) {
			b.noteLoose(f, g)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict.Facts += int64(len(d.facts))
	for _, f := range d.byKind[history.Submitted] {
		if f.Submission != nil {
			b.tickets.mark(f.Ticket, bitsOf(f.Submission))
		}
	}
	told := d.told()
	if told == nil {
		return
	}
	b.verdict.Jobs++
	if ticket, ok := ticketOf(g.Run, told.Correlation); ok {
		b.tickets.mark(ticket, ticketHasJob)
	}
}

func (b *bench) noteLoose(f *history.Fact, g *Ground) {
	b.mu.Lock()
	invariant, wrong := b.loose.add(f, g)
	b.mu.Unlock()
	var violations []Violation
	if wrong != "" {
		violations = []Violation{{Invariant: invariant, Job: f.Job, What: wrong}}
	}
	b.add(violations, map[string]int64{delivered: 1}, []history.Fact{*f})
}

// judgeLoose goes through the facts about no job one by one: there may be as many
// as the run has refused submissions.
func (b *bench) judgeLoose(r reader, g *Ground) error {
	return r.Each(history.Loose, func(f history.Fact) error {
		b.verdict.Facts++
		wrong := Violation{Ticket: f.Ticket}
		switch {
		case f.Submission != nil:
			b.tickets.mark(f.Ticket, bitsOf(f.Submission))
			b.judgeLooseSubmission(&f, g)
		case f.Kind == history.Strange:
			b.verdict.Checked[foreign]++
			wrong.Invariant, wrong.What = foreign, fmt.Sprintf("tenant %d saw what nobody may: %s", f.Tenant, f.Note)
		case f.Kind == history.QueuedTask:
			b.verdict.Checked[tasked]++
			if f.Note != "" {
				wrong.Invariant, wrong.What = tasked, fmt.Sprintf("task %s: %s", f.Task.ID, f.Note)
			}
		case f.Delivery != nil:
			b.noteLoose(&f, g)
		}
		if wrong.Invariant != "" {
			b.add([]Violation{wrong}, nil, []history.Fact{f})
		}
		return nil
	})
}

// judgeLooseSubmission looks at one that ended without a job.
func (b *bench) judgeLooseSubmission(f *history.Fact, g *Ground) {
	var found []Violation
	judgeRefusals(f.Submission, g, func(ok bool, invariant, format string, args ...any) {
		if !ok {
			found = append(found, Violation{Invariant: invariant, Ticket: f.Ticket, What: fmt.Sprintf(format, args...)})
		}
	})
	b.add(found, map[string]int64{answered: 1}, []history.Fact{*f})
}

// judgeTickets finds the tickets that are wrong, and reads the history again for
// what it says of them: there are none, as a rule.
func (b *bench) judgeTickets(ctx context.Context, r reader, g *Ground) error {
	stories := map[int64]*ticketStory{}
	more := map[string]int64{} // that are only counted
	for n := int64(1); n < int64(len(b.tickets)); n++ {
		if invariant, what := b.tickets.suspect(n); invariant != "" {
			if len(stories) < maxViolations {
				stories[n] = &ticketStory{Violation: Violation{Invariant: invariant, Ticket: n, What: what}}
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
				d := newDossier(job, facts, g)
				if s := stories[d.ticket]; s != nil {
					s.add(d)
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
type ticketStory struct {
	Violation
	facts  []history.Fact
	latest *history.Job
}

// add makes the violation one of the job that was made last.
func (s *ticketStory) add(d *dossier) {
	s.facts = append(s.facts, d.facts...)
	told := d.told()
	if told == nil {
		return
	}
	s.What += ", " + d.job
	if s.latest == nil || told.CreatedAt.After(s.latest.CreatedAt) {
		s.latest, s.Job = told, d.job
	}
}
