package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeExistence: what was accepted is there, what is there was asked for, and it
// is what was asked for. That no two jobs have one ticket is seen across jobs.
func (c *checker) checkExistence() {
	promised := c.byKind[history.Submitted]
	rows, lists := c.run.complete(Rows), c.run.complete(Lists)
	if !rows && !lists {
		return
	}
	c.look(accepted)
	job := c.current()
	if job == nil {
		c.must(len(promised) == 0, accepted, "the job was accepted, and is not there any more")
		c.must(len(c.byKind[history.StoredEvent])+len(c.byKind[history.StoredReport]) == 0, accepted, "there are events or reports of a job that is not there")
		return
	}
	listed := c.byKind[history.ListedJob]
	if rows {
		c.must(c.row != nil, accepted, "the API lists the job, and the rows do not have it")
		c.must(len(c.byKind[history.StoredJob]) == 1 || c.row == nil, accepted, "the rows have the job twice")
	}
	if lists && c.row != nil {
		c.must(len(listed) > 0, accepted, "the rows have the job, and the API does not list it")
	}
	ticket, ours := TicketOf(c.run.Run, job.Correlation)
	c.must(ours && ticket <= c.run.Tickets, accepted, "the job has correlation id %q, which nobody sent", job.Correlation)
	for _, f := range promised {
		c.must(!ours || f.Ticket == ticket, accepted, "the answer to ticket %d tells the job of ticket %d", f.Ticket, ticket)
	}
	if s := c.submission(); s != nil {
		c.checkRequest(s, job)
	}
}

// judgeRequest: the job is the one that was asked for.
func (c *checker) checkRequest(s *history.Submission, job *history.Job) {
	c.must(s.Type == job.Type, accepted, "a job of type %s was asked for, this one is %s", s.Type, job.Type)
	c.must(s.WorkKind == "" || s.WorkKind == job.WorkKind, accepted, "work kind %s was asked for, the job has %s", s.WorkKind, job.WorkKind)
	c.must(sameMoment(s.ExecutionAt, job.ExecutionAt), accepted, "execution_at %s was asked for, the job has %s", moment(s.ExecutionAt), moment(job.ExecutionAt))
	c.must(s.Batch == job.Batch, accepted, "the job was sent with batch %q and belongs to batch %q", s.Batch, job.Batch)
}

// judgeKey: the tries of a ticket have one key, so they made one job.
func (c *checker) checkKey() {
	made := 0
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		c.look(keyed)
		for _, t := range f.Submission.Tries {
			if t.Accepted() && !t.Replayed && t.Job == c.job {
				made++
			}
		}
	}
	c.must(made <= 1, keyed, "%d tries with one key were each told that they made the job", made)
	s := c.submission()
	if c.row == nil || s == nil || s.Key == "" {
		return
	}
	c.must(c.row.Keys <= 1, keyed, "%d idempotency keys lead to the job", c.row.Keys)
	kept := c.run.asOf(c.at).Add(c.run.slack()).Sub(c.row.CreatedAt) < c.run.keyWindow()
	c.must(c.row.Keys > 0 || !kept, keyed, "the job's idempotency key is not kept: another try would make another job")
}

// sameMoment compares times as the service keeps them: in microseconds.
func sameMoment(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond)) || a.Round(time.Microsecond).Equal(b.Round(time.Microsecond))
}

func moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "(none)"
	}
	return t.UTC().Format("15:04:05.000000Z")
}
