package verdict

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// learned returns the first exchange that showed the client the end of a job, batch or bulk operation. `at` is the earliest time at which
// the client may have seen the end. An end before `since` does not count. If the client did not see the end, learned returns zero values.
func (r *record) learned(id string, since time.Time) (first *exchange, at time.Time) {
	e, at := r.ends[id].since(since.Add(-Tolerance))
	if e.attempt != nil {
		return r.attempted(e.attempt), at
	}
	return e.exchange, at
}

// ended returns the exchange that showed the client the end of a run, and how late the client learned of the end. If a group of the run
// (batch or bulk operation) showed the end, `late` counts from the end of the group. If `late` exceeds LearnWithin, the times in `blocked`
// are subtracted. `waiting` is true if a group of the run has not ended.
func (r *record) ended(run *Run, blocked spans) (first *exchange, late time.Duration, waiting bool) {
	consider := func(id string, due time.Time) {
		x, at := r.learned(id, run.Finished)
		if x == nil {
			return
		}
		took := max(0, at.Sub(due))
		if took > LearnWithin {
			took -= blocked.within(due, at)
		}
		if first == nil || took < late {
			first, late = x, took
		}
	}
	consider(run.ID, run.Finished)
	for _, id := range run.Groups {
		due, over := r.Groups[id]
		if waiting = waiting || !over; due.Before(run.Finished) {
			due = run.Finished
		}
		consider(id, due)
		consider(id+"/"+run.ID, due) // a bulk operation's item for this run
	}
	return first, late, waiting
}

// knownJobs returns for each job the first submission with a response that named the job.
func (r *record) knownJobs() map[string]*exchange {
	known := map[string]*exchange{}
	r.each(func(x *exchange) {
		if !submits(x) || !x.Arrived() || x.Made == "" {
			return
		}
		for _, made := range slices.Concat([]string{x.Made}, x.Shown, x.Final) {
			if known[made] == nil {
				known[made] = x
			}
		}
	})
	return known
}

// outcome checks that the client learns of the end of each known job within LearnWithin. If the client never
// learns of it, the evidence shows the client's last read of the job.
func outcome(r *record, f *finding) {
	known, gaveUp, blocked := r.knownJobs(), r.gaveUp(), r.blockedTimes()
	lastReads := map[string]*exchange{} // by job or batch
	r.each(func(x *exchange) {
		if x.retrieves() && x.Job != "" {
			lastReads[x.Job] = x
		}
	})
	for i := range r.Runs {
		run := &r.Runs[i]
		x := known[run.ID]
		if x == nil || run.Finished.IsZero() || !r.reactionOver(run.Finished) || r.endedBefore(run.Finished) {
			continue
		}
		y, late, waiting := r.ended(run, blocked)
		ok := y != nil && late <= LearnWithin
		if !ok && (waiting || r.Elsewhere || r.mayHaveLearned(run)) {
			continue
		}
		if !ok && gaveUp(run) {
			f.doubt("the client gave up on a job after repeated refusals")
			continue
		}
		found := run.text() + "; the client never learned this."
		if y != nil {
			found = run.text() + "; the client learned this " + after(late) + "."
		} else {
			y = cmp.Or(lastReads[run.ID], lastReads[run.Batch])
		}
		f.judge(ok, x, y, found, fmt.Sprintf("Read %s, follow its events, or receive its webhook, to learn within %.0f s how it ended.",
			either(run.Batch == "", "the job", "the job or its batch"), LearnWithin.Seconds()))
	}
}

// gaveUp returns a function that reports whether the client may have given up on a job because of errors. The last reads of the job, or
// the last requests of any kind, must have failed repeatedly or permanently.
func (r *record) gaveUp() func(run *Run) bool {
	type ask struct {
		era int
		target
		body, key string
	}
	failures := map[ask]int{}
	mayQuit := map[string]bool{} // by job: whether the last request about the job justified giving up
	var last bool                // whether the last request of any kind justified giving up
	r.each(func(x *exchange) {
		if x.Stream != nil {
			last, mayQuit[x.Job] = false, false
			return
		}
		at := ask{x.era, targetOf(x), x.Body, x.Key}
		if failures[at]++; !failedForClient(x) {
			failures[at] = 0
		}
		last = failures[at] >= MaxRereads || failures[at] == 1 && isPermanent(x)
		mayQuit[x.Job] = last
	})
	return func(run *Run) bool {
		return last || mayQuit[run.ID] || slices.ContainsFunc(run.Groups, func(id string) bool { return mayQuit[id] })
	}
}

// blockedTimes returns the times in which a client that sends one request at a time could not read jobs. In these times, the client was
// waiting after a refusal, or a fault delayed a request.
func (r *record) blockedTimes() (all spans) {
	r.each(func(x *exchange) {
		switch refused := failed(x) || x.Status == http.StatusForbidden; {
		case refused && x.Arrived() && x.RetryAfter != nil:
			all = append(all, span{x.Start, x.End().Add(requiredWait(x))})
		case x.Fault != nil && x.Fault.Held() > 0:
			all = append(all, span{x.Start, x.Start.Add(min(x.took, WaitAtMost))})
		}
	})
	return all
}

// within returns how much of the time between `since` and `until` is in the spans.
func (s spans) within(since, until time.Time) (sum time.Duration) {
	for _, one := range s {
		from, to := one.from, one.until
		if from.Before(since) {
			from = since
		}
		if to.After(until) {
			to = until
		}
		if to.After(from) {
			sum += to.Sub(from)
			since = to
		}
	}
	return sum
}

// failedForClient reports whether the client could not use the response. Without a fault, a 404 for a result is no failure: the result
// may appear later.
func failedForClient(x *exchange) bool {
	return failed(x) || slices.Contains([]int{401, 403, 410}, x.Status) || slices.Contains(fault.Moves, x.Status) ||
		x.Status == http.StatusNotFound && (x.Role != Outcome || x.Disturbed())
}

// isPermanent reports whether a client may give up after this response alone: a 410, a long Retry-After, or a redirect to another host.
func isPermanent(x *exchange) bool {
	return x.Arrived() && (x.Status == http.StatusGone || x.RetryAfter != nil && requiredWait(x) >= LearnWithin || x.otherHost() != "")
}

func (r *record) endedBefore(moment time.Time) bool {
	return r.Session.EndedAt != nil && time.Time(*r.Session.EndedAt).Before(moment)
}

// unended reports whether it is certain that a job or batch did not end during the session.
func (r *record) unended(id string) bool {
	if run := r.runs[id]; run != nil {
		return run.Finished.IsZero() || r.endedBefore(run.Finished)
	}
	end, over := r.Groups[id]
	return (!over || r.endedBefore(end)) && slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Batch == id })
}

// wouldPollAgain returns a function that reports whether a waiting client would have read the job again after x. The function returns true
// if the client polls unfinished jobs, and was active long after the pause that x required. It returns false if there was a delivery or
// event about the job.
func (r *record) wouldPollAgain() func(x *exchange) bool {
	polls := false
	var last time.Time
	r.each(func(x *exchange) {
		if last = x.Start; !polls && x.Role == Read && x.Job != "" && slices.Contains(x.Shown, x.Job) {
			y := r.sameReads(x).next(x)
			polls = y != nil && !waits(y) && r.hints[x.Job].by(y.Start) == 0 && !r.mayHaveShown(x.Job, x.Start, y.Start)
		}
	})
	return func(x *exchange) bool {
		pause := time.Second
		if x.RetryAfter != nil {
			pause = max(pause, requiredWait(x))
		}
		return polls && x.Role == Read && len(r.hints[x.Job]) == 0 && last.Sub(x.End()) > 2*pause
	}
}

// mayHaveLearned reports whether the client may have seen the end of the run in a response that the record does not contain.
func (r *record) mayHaveLearned(run *Run) bool {
	return slices.ContainsFunc(append([]string{run.ID}, run.Groups...), func(id string) bool {
		return r.mayHaveShown(id, run.Finished.Add(-Tolerance), run.Finished.Add(LearnWithin))
	})
}

func (run *Run) text() string {
	return fmt.Sprintf("Job %s%s %s at %s", run.ID, either(run.Batch == "", "", " of batch "+run.Batch), endText(run.State),
		run.Finished.UTC().Format(time.TimeOnly))
}

func endText(state string) string {
	switch strings.ToUpper(state) {
	case "SUCCEEDED", "FAILED", "COMPLETED", "FINISHED", "EXPIRED":
		return state
	case "CANCELED", "CANCELLED", "ABORTED", "TERMINATED":
		return "was " + state
	}
	return "ended (" + state + ")"
}

// unretried checks that the client does not retry permanently failed jobs.
func unretried(r *record, f *finding) {
	first, seen := map[string]*exchange{}, map[string]*exchange{} // by job id: first submission, and first response that showed the end
	r.each(func(x *exchange) {
		if submits(x) && first[x.Made] == nil {
			first[x.Made] = x
		}
		for _, id := range x.Final {
			if x.Arrived() && seen[id] == nil {
				seen[id] = x
			}
		}
	})
	submissions, retries := r.submissions(), indexed(r, func(x *exchange, add func(string)) {
		if x.Role == Retry {
			add(x.Job)
		}
	})
	for _, run := range r.Runs {
		if !run.Permanent {
			continue
		}
		seen := seen[run.ID]
		if seen == nil {
			continue
		}
		again := retries[run.ID].next(seen)
		if first := first[run.ID]; first != nil {
			for _, g := range submissions.intended(scope{}, first) {
				later := g.after(seen)
				if i := slices.IndexFunc(later, func(y *exchange) bool { return y.Made != run.ID }); i >= 0 {
					again = earliest(again, later[i])
				}
			}
		}
		if again != nil {
			f.fail(seen, again, "The client retried a job that had failed permanently.", "Do not retry it: its failure says `retryable: false`.")
			continue
		}
		f.pass(seen, nil, "The client did not retry the job.")
	}
}
