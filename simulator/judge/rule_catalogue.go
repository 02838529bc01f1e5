package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/simulator/history"
)

// judgeCatalogue: every attempt ends as its work kind says, unless it was
// canceled, its worker was lost, or it hit the execution limit.
func (q *inquiry) judgeCatalogue() {
	kind, known := catalogue[q.kind()]
	if !known {
		q.must(q.kind() == "", expected, "a job has work kind %s, of which there is none", q.kind())
		return
	}
	q.look(expected)
	if q.row != nil && q.row.DurationMS != nil && kind.duration > 0 {
		q.must(*q.row.DurationMS == kind.duration.Milliseconds(), expected, "%s is defined to take %d ms, the catalogue has %d",
			q.kind(), *q.row.DurationMS, kind.duration.Milliseconds())
		q.must(q.row.ShouldFail == (kind.fails > 0), expected, "%s is defined with should_fail %t", q.kind(), q.row.ShouldFail)
	}
	for _, n := range slices.Sorted(maps.Keys(q.reports)) {
		r := q.reports[n]
		switch r.Outcome {
		case outcomes[succeeded]:
			q.must(n > kind.fails, expected, "attempt %d of %s succeeded", n, q.kind())
		case outcomes[failed]:
			q.must(q.mayFail(kind, r), expected, "attempt %d of %s failed with %s", n, q.kind(), r.Failure)
		}
	}
}

func (q *inquiry) mayFail(kind workKind, r *history.Report) bool {
	switch r.Failure {
	case codeWorkerLost:
		return q.ground.Killed || q.ground.Chaos
	case codeTimeout:
		if kind.timesOut {
			return true
		}
		limit := q.ground.limit()
		return limit > 0 && time.Duration(r.DurationMS)*time.Millisecond >= limit-time.Millisecond
	}
	return r.Attempt <= kind.fails && !kind.timesOut
}

// judgeRetries: a job that was sent with auto_retry is queued again with each
// failure that advises it, while attempts are left.
func (q *inquiry) judgeRetries() {
	s, told := q.submission(), q.told()
	if s == nil || told == nil || !s.AutoRetry || !q.whole || told.MaxAttempts == 0 {
		return
	}
	for i, step := range q.steps {
		r := q.reports[step.Attempt]
		if step.Next != failed || r == nil || step.Attempt >= told.MaxAttempts {
			continue
		}
		advised := r.Failure == codeWorkerLost || r.Failure == codeTimeout || catalogue[q.kind()].retryable
		again := i+1 < len(q.steps) && q.steps[i+1].Name == nameRetried
		q.must(again || !advised, expected, "attempt %d failed with %s and was not retried, as auto_retry asks for", step.Attempt, r.Failure)
	}
}
