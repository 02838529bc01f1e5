package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeExistence: what was accepted is there, what is there was asked for, and it
// is what was asked for. That no two jobs have one ticket is seen across jobs.
func (q *inquiry) judgeExistence() {
	promised := q.byKind[history.Submitted]
	rows, lists := q.ground.whole(Rows), q.ground.whole(Lists)
	if !rows && !lists {
		return
	}
	q.look(accepted)
	told := q.told()
	if told == nil {
		q.must(len(promised) == 0, accepted, "the job was accepted, and is not there any more")
		q.must(len(q.byKind[history.StoredEvent])+len(q.byKind[history.StoredReport]) == 0, accepted, "there are events or reports of a job that is not there")
		return
	}
	listed := q.byKind[history.ListedJob]
	if rows {
		q.must(q.row != nil, accepted, "the API lists the job, and the rows do not have it")
		q.must(len(q.byKind[history.StoredJob]) == 1 || q.row == nil, accepted, "the rows have the job twice")
	}
	if lists && q.row != nil {
		q.must(len(listed) > 0, accepted, "the rows have the job, and the API does not list it")
	}
	ticket, ours := ticketOf(q.ground.Run, told.Correlation)
	q.must(ours && ticket <= q.ground.Tickets, accepted, "the job has correlation id %q, which nobody sent", told.Correlation)
	for _, f := range promised {
		q.must(!ours || f.Ticket == ticket, accepted, "the answer to ticket %d tells the job of ticket %d", f.Ticket, ticket)
	}
	if s := q.submission(); s != nil {
		q.judgeRequest(s, told)
	}
}

// judgeRequest: the job is the one that was asked for.
func (q *inquiry) judgeRequest(s *history.Submission, told *history.Job) {
	q.must(s.Type == told.Type, accepted, "a job of type %s was asked for, this one is %s", s.Type, told.Type)
	q.must(s.WorkKind == "" || s.WorkKind == told.WorkKind, accepted, "work kind %s was asked for, the job has %s", s.WorkKind, told.WorkKind)
	q.must(sameMoment(s.ExecutionAt, told.ExecutionAt), accepted, "execution_at %s was asked for, the job has %s", moment(s.ExecutionAt), moment(told.ExecutionAt))
	q.must(s.Batch == told.Batch, accepted, "the job was sent with batch %q and belongs to batch %q", s.Batch, told.Batch)
}

// judgeKey: the tries of a ticket have one key, so they made one job.
func (q *inquiry) judgeKey() {
	made := 0
	for _, f := range q.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		q.look(keyed)
		for _, t := range f.Submission.Tries {
			if t.Accepted() && !t.Replayed && t.Job == q.job {
				made++
			}
		}
	}
	q.must(made <= 1, keyed, "%d tries with one key were each told that they made the job", made)
	s := q.submission()
	if q.row == nil || s == nil || s.Key == "" {
		return
	}
	q.must(q.row.Keys <= 1, keyed, "%d idempotency keys lead to the job", q.row.Keys)
	kept := q.ground.asOf(q.at).Add(q.ground.slack()).Sub(q.row.CreatedAt) < q.ground.keyWindow()
	q.must(q.row.Keys > 0 || !kept, keyed, "the job's idempotency key is not kept: another try would make another job")
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
