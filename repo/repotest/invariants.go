package repotest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/job"
)

// Job is what the rows say about one job.
type Job struct {
	ID, RequestID string
	BatchID       string // "" for none
	ScheduleID    string // "" for none
	State         job.State
	Outcome       string
	Attempt       int
	EventSeq      int
	Fence         int
	LeaseExpiries int
	RunAt         time.Time
	UpdatedAt     time.Time
	ExecutionAt   *time.Time
	StartedAt     *time.Time
	Result        int // the attempt that left a result, 0 for none

	events  []event
	reports []report
}

type event struct {
	JobID, Name string
	Seq         int
	Prev, Next  job.State
	Attempt     int
	At          time.Time
}

type report struct {
	JobID      string
	Attempt    int
	Outcome    string
	EventSeq   int
	FinishedAt time.Time
}

// Violations reads the whole database as of one moment and gives, a sentence each, the invariants that its rows break, whatever
// happened before. Each begins with INVARIANT, by which a run of all tests knows that nothing may be tried again.
func Violations(ctx context.Context, db *pgxpool.Pool) (jobs map[string]*Job, wrong []string, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if jobs, wrong, err = readJobs(ctx, tx); err != nil {
			return err
		}
		for what, sql := range contradictions {
			ids, err := collect[string](ctx, tx, sql, pgx.RowTo[string])
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if len(ids) > 0 {
				wrong = append(wrong, fmt.Sprintf("INVARIANT %s: broken by %v", what, ids))
			}
		}
		return nil
	})
	for _, j := range jobs {
		wrong = append(wrong, j.violations()...)
	}
	return jobs, wrong, err
}

// readJobs reads jobs with their logs and reports.
func readJobs(ctx context.Context, tx pgx.Tx) (jobs map[string]*Job, wrong []string, err error) {
	all, err := collect[Job](ctx, tx, `SELECT j.job_id::text, request_id, coalesce(batch_id::text, ''), coalesce(schedule_id::text, ''),
		state, coalesce(outcome, ''), j.attempt, event_seq, fence, lease_expiries, run_at, updated_at, execution_at, started_at,
		coalesce(r.attempt, 0)
		FROM jobs j LEFT JOIN results r USING (job_id)`, func(row pgx.CollectableRow) (j Job, err error) {
		return j, row.Scan(&j.ID, &j.RequestID, &j.BatchID, &j.ScheduleID, &j.State, &j.Outcome, &j.Attempt, &j.EventSeq, &j.Fence,
			&j.LeaseExpiries, &j.RunAt, &j.UpdatedAt, &j.ExecutionAt, &j.StartedAt, &j.Result)
	})
	if err != nil {
		return nil, nil, err
	}
	jobs = map[string]*Job{}
	for i := range all {
		jobs[all[i].ID] = &all[i]
	}
	events, err := collect(ctx, tx, `SELECT job_id::text, event_name, seq, coalesce(prev_state, ''), coalesce(next_state, ''), attempt,
		occurred_at FROM events ORDER BY job_id, seq`, pgx.RowToStructByPos[event])
	if err != nil {
		return nil, nil, err
	}
	for _, e := range events {
		if j := jobs[e.JobID]; j != nil {
			j.events = append(j.events, e)
		} else {
			wrong = append(wrong, fmt.Sprintf("INVARIANT an event has its job: %+v", e))
		}
	}
	reports, err := collect(ctx, tx, `SELECT job_id::text, attempt, outcome, event_seq, finished_at FROM reports`,
		pgx.RowToStructByPos[report])
	for _, r := range reports {
		if j := jobs[r.JobID]; j != nil {
			j.reports = append(j.reports, r)
		} else {
			wrong = append(wrong, fmt.Sprintf("INVARIANT a report has its job: %+v", r))
		}
	}
	return jobs, wrong, err
}

func collect[T any](ctx context.Context, tx pgx.Tx, sql string, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// checker gathers what is wrong with one job.
type checker struct {
	id    string
	wrong []string
}

func (c *checker) check(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, "INVARIANT job "+c.id+": "+fmt.Sprintf(format, args...))
	}
}

// violations is what the rows of a job must never show.
func (j *Job) violations() []string {
	c := &checker{id: j.ID}
	c.check(j.EventSeq == len(j.events), "event_seq is %d with %d events", j.EventSeq, len(j.events))
	log := j.follow(c)
	c.check(log.state == j.State, "is %s, but its events end in %q", j.State, log.state)
	c.check(log.attempt == j.Attempt, "is at attempt %d, but its events at %d", j.Attempt, log.attempt)
	c.check(log.assigned == j.Fence, "was claimed %d times, but its fence is %d", log.assigned, j.Fence)
	c.check(log.expired == j.LeaseExpiries, "has %d expired leases, but counts %d", log.expired, j.LeaseExpiries)
	c.check(log.last.Equal(j.UpdatedAt), "was updated at %s, its last event is of %s", j.UpdatedAt, log.last)
	c.check(j.StartedAt == nil || !j.StartedAt.Before(j.RunAt) || j.LeaseExpiries > 0, "started before run_at")
	c.check(j.Outcome == string(job.OutcomeOf(j.State)), "is %s with outcome %q", j.State, j.Outcome)
	c.check((j.Result == j.Attempt) == (j.State == job.Succeeded), "is %s with a result of attempt %d", j.State, j.Result)
	j.checkReports(c, log.ends)
	return c.wrong
}

// followed is where a log leads to.
type followed struct {
	state             job.State
	attempt           int
	last              time.Time
	assigned, expired int
	ends              map[int]event
}

// follow walks the log of a job.
func (j *Job) follow(c *checker) followed {
	f := followed{attempt: 1, ends: map[int]event{}}
	for i, e := range j.events {
		c.check(e.Seq == i+1, "event %d has seq %d", i+1, e.Seq)
		c.check(!e.At.Before(f.last), "event %d is earlier than the one before", e.Seq)
		f.last = e.At
		if e.Name == job.EventRetried {
			f.attempt++
		}
		c.check(e.Attempt == f.attempt, "event %d is of attempt %d, not %d", e.Seq, e.Attempt, f.attempt)
		if e.Next == "" {
			c.check(e.Prev == "", "event %d comes from %q and leads nowhere", e.Seq, e.Prev)
			continue
		}
		c.check(e.Prev == f.state, "event %d comes from %q, but the job was in %q", e.Seq, e.Prev, f.state)
		c.check(e.allowed(), "event %d: %s from %q to %q", e.Seq, e.Name, e.Prev, e.Next)
		f.state = e.Next
		switch {
		case e.Next == job.Assigned:
			f.assigned++
		case e.Name == job.EventLeaseExpired:
			f.expired++
		case e.Next.Final():
			_, twice := f.ends[e.Attempt]
			c.check(!twice, "attempt %d ended twice", e.Attempt)
			f.ends[e.Attempt] = e
		}
		if e.Next == job.Queued || e.Next.Held() {
			c.check(j.ExecutionAt == nil || !e.At.Before(*j.ExecutionAt), "%s before execution_at", e.Next)
		}
	}
	return f
}

// checkReports: one report for each attempt that ended, and every attempt
// before the current one ended as FAILED.
func (j *Job) checkReports(c *checker, ends map[int]event) {
	reported := map[int]bool{}
	for _, r := range j.reports {
		end, ended := ends[r.Attempt]
		c.check(ended, "attempt %d has a report, but no end", r.Attempt)
		c.check(!reported[r.Attempt], "attempt %d has two reports", r.Attempt)
		reported[r.Attempt] = true
		c.check(r.Outcome == string(job.OutcomeOf(end.Next)), "attempt %d ended as %s, but its report says %s", r.Attempt, end.Next, r.Outcome)
		c.check(r.FinishedAt.Equal(end.At), "the report of attempt %d has another time than its end", r.Attempt)
		last := end.Seq
		for _, e := range j.events {
			if e.Attempt == r.Attempt {
				last = max(last, e.Seq)
			}
		}
		c.check(r.EventSeq == last, "the report of attempt %d ends at event %d, not %d", r.Attempt, r.EventSeq, last)
	}
	for n := 1; n <= j.Attempt; n++ {
		end, ended := ends[n]
		c.check(ended == reported[n], "attempt %d: ended %v, reported %v", n, ended, reported[n])
		c.check(ended == (n < j.Attempt || j.State.Final()), "attempt %d of %d, %s: ended %v", n, j.Attempt, j.State, ended)
		c.check(n == j.Attempt || end.Next == job.Failed, "attempt %d ended as %q and was retried", n, end.Next)
	}
}

// allowed: the pair is in the table and the event has its name.
func (e event) allowed() bool {
	switch {
	case e.Prev == "":
		return e.Next == job.Created && e.Name == job.EventCreated
	case job.IsLeaseReturn(e.Prev, e.Next):
		return e.Name == job.EventLeaseExpired
	}
	return job.CanTransition(e.Prev, e.Next) && e.Name == job.EventOf(e.Prev, e.Next)
}
