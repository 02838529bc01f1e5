package judge

import (
	"maps"
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeEnd: at the end a job is final with the outcome of its state, or waits for
// a time that has not come. However short ago it came, who waited for the end of
// the run waited for this job too.
func (q *inquiry) judgeEnd() {
	told := q.told()
	if told == nil {
		return
	}
	q.look(ended)
	q.must(told.Outcome == outcomes[told.State], ended, "the job is %s with outcome %q", told.State, told.Outcome)
	q.must((told.FinishedAt != nil) == final(told.State), ended, "the job is %s with finished_at %s", told.State, moment(told.FinishedAt))
	if !q.ground.Interrupted && !final(told.State) {
		q.must(q.waitsForItsTime(told), ended, "the job is %s though all should have ended", told.State)
	}
	if q.row != nil {
		q.must(!q.row.Held || q.ground.Interrupted, ended, "a worker holds the job though all should have ended")
		q.must(q.row.ResultAttempt == 0 || q.row.State == succeeded, ended, "the job is %s and has a result", q.row.State)
		q.must(q.row.State != succeeded || q.row.ResultAttempt > 0, ended, "the job is SUCCEEDED without a result")
	}
	q.judgeTerminalEvents(told)
}

// waitsForItsTime: it is CREATED or QUEUED, and its time was still to come when
// it was seen.
func (q *inquiry) waitsForItsTime(told *history.Job) bool {
	due := told.RunAt
	if due == nil {
		due = told.ExecutionAt
	}
	return waiting(told.State) && due != nil && due.After(q.ground.asOf(q.at))
}

// judgeTerminalEvents: each attempt before the current one ended once, as FAILED;
// the current one ended if the job is final.
func (q *inquiry) judgeTerminalEvents(told *history.Job) {
	if !q.whole || len(q.log) == 0 {
		return
	}
	count := map[int]int{}
	for _, s := range q.steps {
		if final(s.Next) {
			count[s.Attempt]++
			q.must(s.Attempt == told.Attempt || s.Next == failed, ended, "attempt %d ended as %s and another one followed", s.Attempt, s.Next)
		}
	}
	for n := 1; n <= told.Attempt; n++ {
		want := 0
		if n < told.Attempt || final(told.State) {
			want = 1
		}
		q.must(count[n] == want, ended, "attempt %d has %d terminal events, expected %d", n, count[n], want)
	}
	exhausted := 0
	for _, e := range q.log {
		if e.Name == nameExhausted {
			exhausted++
		}
	}
	if told.MaxAttempts > 0 {
		last := told.State == failed && told.Attempt == told.MaxAttempts
		q.must((exhausted == 1) == last && exhausted <= 1, ended, "attempt %d of %d, %s: %d events tell that the retries are exhausted",
			told.Attempt, told.MaxAttempts, told.State, exhausted)
	}
}

// judgeReports: one report for each attempt that ended, which tells its end.
func (q *inquiry) judgeReports() {
	q.judgeToldReports()
	if !q.whole || len(q.log) == 0 {
		return
	}
	seen := map[int]bool{}
	for _, f := range q.byKind[history.StoredReport] {
		q.must(!seen[f.Report.Attempt], ended, "attempt %d has two reports", f.Report.Attempt)
		seen[f.Report.Attempt] = true
	}
	ends := q.ends()
	for _, n := range slices.Sorted(maps.Keys(ends)) {
		r, end := q.reports[n], ends[n]
		q.must(r != nil, ended, "attempt %d ended and has no report", n)
		if r == nil {
			continue
		}
		q.must(r.Outcome == outcomes[end.Next], ended, "attempt %d ended as %s, its report says %s", n, end.Next, r.Outcome)
		q.must((r.Failure != "") == (end.Next == failed), ended, "attempt %d ended as %s, its report has failure %q", n, end.Next, r.Failure)
		q.must(q.row == nil || r.EventSeq >= end.Seq && r.EventSeq <= len(q.log), ended, "attempt %d ended with event %d, its report ends at %d", n, end.Seq, r.EventSeq)
	}
	for _, n := range slices.Sorted(maps.Keys(q.reports)) {
		_, ok := ends[n]
		q.must(ok, ended, "attempt %d has a report, and did not end", n)
	}
}

// judgeToldReports: the API tells each report as it is stored, and gives the
// result.
func (q *inquiry) judgeToldReports() {
	for _, f := range q.byKind[history.ToldReport] {
		q.look(answered)
		if f.Report == nil {
			q.must(false, answered, "the API tells no report: %s", f.Note)
			continue
		}
		q.must(f.Report.ResultError == "", answered, "the API does not give the result: %s", f.Report.ResultError)
		r, told := q.reports[f.Report.Attempt], f.Report
		if q.row == nil {
			continue // there is nothing to compare it with
		}
		q.must(r != nil && told.Outcome == r.Outcome && sameMoment(told.StartedAt, r.StartedAt) && told.FinishedAt.Equal(r.FinishedAt) &&
			told.DurationMS == r.DurationMS && told.Failure == r.Failure, answered, "the API tells another report of attempt %d than is stored", told.Attempt)
	}
}
