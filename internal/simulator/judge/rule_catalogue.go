package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeCatalogue: every attempt ends as its work kind says, unless it was
// canceled, its worker was lost, or it hit the execution limit; a result is as
// large as it says.
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
	for _, f := range q.byKind[history.ToldReport] {
		if r := f.Report; r != nil && r.ResultSize != nil {
			q.must(*r.ResultSize == kind.result, expected, "the result of %s has %d bytes, the catalogue says %d", q.kind(), *r.ResultSize, kind.result)
		}
	}
}

// judgeLimit: a job has as many attempts as the service is set to allow, and
// never more.
func (q *inquiry) judgeLimit() {
	told := q.told()
	if told == nil || told.MaxAttempts == 0 {
		return
	}
	q.look(expected)
	limit := q.ground.MaxAttempts
	q.must(limit == 0 || told.MaxAttempts == limit, expected, "the job has max_attempts %d, the service allows %d", told.MaxAttempts, limit)
	highest := told.Attempt
	for _, e := range q.log {
		highest = max(highest, e.Attempt)
	}
	for n := range q.reports {
		highest = max(highest, n)
	}
	q.must(highest <= told.MaxAttempts, expected, "the job came to attempt %d of at most %d", highest, told.MaxAttempts)
}

func (q *inquiry) mayFail(kind workKind, r *history.Report) bool {
	switch r.Failure {
	case codeWorkerLost:
		return q.ground.Killed || q.ground.Chaos
	case codeTimeout:
		if kind.code == codeTimeout {
			return true
		}
		limit := q.ground.limit()
		return limit > 0 && time.Duration(r.DurationMS)*time.Millisecond >= limit-time.Millisecond
	}
	return r.Failure == kind.code && r.Attempt <= kind.fails
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
		advised := r.Failure == codeWorkerLost || r.Failure == codeTimeout || catalogue[q.kind()].retryable()
		again := i+1 < len(q.steps) && q.steps[i+1].Name == nameRetried
		q.must(again || !advised, expected, "attempt %d failed with %s and was not retried, as auto_retry asks for", step.Attempt, r.Failure)
	}
}
