package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeEarly: all times are Postgres', so nothing is allowed for clocks.
func (q *inquiry) judgeEarly() {
	var due *time.Time
	if s := q.submission(); s != nil {
		due = s.ExecutionAt
	}
	if told := q.told(); due == nil && told != nil {
		due = told.ExecutionAt
	}
	if due == nil {
		return
	}
	at := due.Truncate(time.Microsecond)
	q.look(early)
	events := q.log
	if len(events) == 0 {
		for _, f := range q.byKind[history.Streamed] {
			if f.Event != nil && f.Event.Seq > 0 {
				events = append(events, *f.Event)
			}
		}
	}
	for _, e := range events {
		begins := e.Next == queued || e.Next == assigned || e.Next == running
		q.must(!begins || !e.At.Before(at), early, "event %d (%s) came %s before execution_at", e.Seq, e.Name, at.Sub(e.At))
	}
	for _, n := range slices.Sorted(maps.Keys(q.reports)) {
		start := q.reports[n].StartedAt
		q.must(start == nil || !start.Before(at), early, "the report of attempt %d says that it started at %s, before execution_at", n, moment(start))
	}
	if told := q.told(); told != nil {
		q.must(told.StartedAt == nil || !told.StartedAt.Before(at), early, "the job started at %s, before execution_at", moment(told.StartedAt))
	}
}

// judgeFence: claims are counted by the fence, and what is told of an attempt is
// told by the claim that ran it last.
func (q *inquiry) judgeFence() {
	if q.row == nil || !q.whole {
		return
	}
	q.look(fenced)
	claims, expiries, starts := 0, 0, map[int]history.Event{}
	for _, s := range q.steps {
		switch {
		case s.Next == assigned:
			claims++
		case s.Name == nameLeaseExpired:
			expiries++
		case s.Next == running:
			starts[s.Attempt] = s
		}
	}
	q.must(claims == q.row.Fence, fenced, "the job was claimed %d times, its fence is %d", claims, q.row.Fence)
	q.must(expiries == q.row.LeaseExpiries, fenced, "%d leases expired, the job counts %d", expiries, q.row.LeaseExpiries)
	ends := q.ends()
	for _, n := range slices.Sorted(maps.Keys(q.reports)) {
		r := q.reports[n]
		start, ran := starts[n]
		q.must((r.StartedAt != nil) == ran && (!ran || r.StartedAt.Equal(start.At)), fenced,
			"the report of attempt %d has started_at %s, which is not the start of its last claim", n, moment(r.StartedAt))
		end, ok := ends[n]
		q.must(!ok || r.FinishedAt.Equal(end.At), fenced, "the report of attempt %d has finished_at %s, the attempt ended at %s", n, moment(&r.FinishedAt), moment(&end.At))
	}
	start, ran := starts[q.row.Attempt]
	q.must(!ran || q.row.StartedAt != nil && q.row.StartedAt.Equal(start.At), fenced, "the job has started_at %s, its last claim started at %s", moment(q.row.StartedAt), moment(&start.At))
	q.must(q.row.ResultAttempt == 0 || q.row.ResultAttempt == q.row.Attempt, fenced, "the result is of attempt %d, the job is at attempt %d", q.row.ResultAttempt, q.row.Attempt)
}

// judgeDurations: a report's duration is what lies between its times, and who
// did the work, to success or to the failure that the catalogue has for it, took
// as long as the work.
func (q *inquiry) judgeDurations() {
	for _, n := range slices.Sorted(maps.Keys(q.reports)) {
		r := q.reports[n]
		q.look(timed)
		took := time.Duration(0)
		if r.StartedAt != nil {
			took = r.FinishedAt.Sub(*r.StartedAt)
		}
		told := time.Duration(r.DurationMS) * time.Millisecond
		q.must(took >= 0, timed, "attempt %d finished before it started", n)
		q.must((took-told).Abs() <= time.Millisecond, timed, "attempt %d took %s, its report says %s", n, took, told)
		least := q.leastDuration()
		worked := r.Outcome == outcomes[succeeded] || r.Failure != "" && r.Failure == catalogue[q.kind()].code && r.Failure != codeTimeout
		q.must(!worked || took >= least, timed, "attempt %d ended as %s after %s, its work takes %s", n, r.Outcome, took, least)
	}
}

// leastDuration is what the work takes, less what clocks may be corrected by
// meanwhile; 0 when it is not known.
func (q *inquiry) leastDuration() time.Duration {
	if q.ground.TimeScale == nil {
		return 0
	}
	work := catalogue[q.kind()].duration
	if q.row != nil && q.row.DurationMS != nil {
		work = time.Duration(*q.row.DurationMS) * time.Millisecond
	}
	least := scaled(work, *q.ground.TimeScale)
	return least - least/100 - 5*time.Millisecond
}
