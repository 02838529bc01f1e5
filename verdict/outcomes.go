package verdict

import (
	"fmt"
	"slices"
	"time"
)

// learned gives how and when the client first saw a job final after a moment: read, streamed or delivered. It is nil if it never did.
func (r *record) learned(id string, since time.Time) (first *exchange, at time.Time) {
	e, ok := r.ends[id].since(since.Add(-Tolerance))
	switch {
	case !ok:
		return nil, at
	case e.attempt != nil:
		return r.attempted(e.attempt), e.at()
	}
	return e.exchange, e.at()
}

// outcome: what became of each job is learned soon. A job that the client does not know of is another rule's.
func outcome(r *record, f *finding) {
	known := map[string]*exchange{}
	r.each(func(x *exchange) {
		if !submits(x) || !x.Arrived() || x.Made == "" {
			return
		}
		for _, made := range append([]string{x.Made}, x.Shown...) {
			if known[made] == nil {
				known[made] = x
			}
		}
	})
	for _, run := range r.Runs {
		x := known[run.ID]
		if x == nil || run.Finished.IsZero() || !r.over(run.Finished) {
			continue
		}
		y, at := r.learned(run.ID, run.Finished)
		late := at.Sub(run.Finished)
		if (y == nil || late > LearnWithin) && r.untold(run.ID, run.Finished, run.Finished.Add(LearnWithin)) {
			continue
		}
		found := fmt.Sprintf("The job is %s since %s, and nothing told the client.", run.State, run.Finished.UTC().Format(time.RFC3339))
		if y != nil {
			found = "The client learned that the job has ended, " + after(max(0, late)) + "."
		}
		f.judge(y != nil && late <= LearnWithin, x, y, found,
			"To read the job, follow its events, or take its webhook.")
	}
}

// unretried: what will not get better is not tried again.
func unretried(r *record, f *finding) {
	first, seen := map[string]*exchange{}, map[string]*exchange{} // submissions of jobs, and what showed their ends
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
			f.fail(seen, again, "A job that failed for good was tried again.", "To leave it: its failure says `retryable: false`.")
			continue
		}
		f.hold(seen, nil, "The job was left as it is.")
	}
}
