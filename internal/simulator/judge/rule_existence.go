package judge

import (
	"cmp"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkExistence: what was accepted is there, what is there was asked for, and it
// is what was asked for. That no two jobs have one ticket is checked across jobs.
func (c *checker) checkExistence() {
	submitted := c.byKind[history.Submitted]
	rows, lists := c.run.complete(Rows), c.run.complete(Lists)
	if !rows && !lists {
		return
	}
	c.look(accepted)
	if c.job == nil {
		c.must(len(submitted) == 0, accepted, "the job was accepted, and is not there any more")
		stored := len(c.byKind[history.StoredEvent]) + len(c.byKind[history.StoredReport])
		c.must(stored == 0, accepted, "there are events or reports of a job that is not there")
		return
	}
	if rows {
		c.must(c.row != nil, accepted, "the API lists the job, and the rows do not have it")
		c.must(len(c.byKind[history.StoredJob]) == 1 || c.row == nil, accepted, "the rows have the job twice")
	}
	if lists && c.row != nil {
		c.must(len(c.byKind[history.ListedJob]) > 0, accepted, "the rows have the job, and the API does not list it")
	}
	if c.job.Schedule != "" {
		c.checkRun()
		return
	}
	ticket, ours := TicketOf(c.run.Run, c.job.Correlation)
	c.must(ours && ticket <= c.run.Tickets, accepted, "the job has correlation id %q, which nobody sent", c.job.Correlation)
	for _, f := range submitted {
		c.must(!ours || f.Ticket == ticket, accepted, "the answer to ticket %d shows the job of ticket %d", f.Ticket, ticket)
	}
	s, j := c.submission, c.job
	if s == nil {
		return
	}
	c.must(s.Type == j.Type, accepted, "a job of type %s was asked for, this one is %s", s.Type, j.Type)
	c.must(s.WorkKind == "" || s.WorkKind == j.WorkKind, accepted, "work kind %s was asked for, the job has %s", s.WorkKind, j.WorkKind)
	c.must(sameTime(s.ExecutionAt, j.ExecutionAt), accepted, "execution_at %s was asked for, the job has %s",
		clock(s.ExecutionAt), clock(j.ExecutionAt))
	if r := c.row; r != nil {
		c.must(s.Params == r.Params, accepted, "the job was sent with params of digest %q, and has %q", s.Params, r.Params)
		c.must(s.AutoRetry == r.AutoRetry, accepted, "the job was sent with auto_retry %t, and has %t", s.AutoRetry, r.AutoRetry)
	}
	c.must(s.Batch == j.Batch, accepted, "the job was sent with batch %q and belongs to batch %q", s.Batch, j.Batch)
}

// checkKey: the tries of a ticket have one key, so they made one job.
func (c *checker) checkKey() {
	made := 0
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		c.look(keyed)
		for _, t := range f.Submission.Tries {
			made += count(t.Accepted() && !t.Replayed && t.Job == c.id)
		}
	}
	c.must(made <= 1, keyed, "%d tries with one key were each answered as the one that made the job", made)
	if c.row == nil || c.submission == nil || c.submission.Key == "" {
		return
	}
	c.must(c.row.Keys <= 1, keyed, "%d idempotency keys lead to the job", c.row.Keys)
	kept := c.run.latest(c.run.asOf(c.source)).Sub(c.row.CreatedAt) < cmp.Or(c.run.KeyWindow, 24*time.Hour)
	c.must(c.row.Keys > 0 || !kept, keyed, "the job's idempotency key is not kept: another try would make another job")
}

// sameTime compares times as the service keeps them: in microseconds.
func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond)) || a.Round(time.Microsecond).Equal(b.Round(time.Microsecond))
}

func clock(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "(none)"
	}
	return t.UTC().Format("15:04:05.000000Z")
}
