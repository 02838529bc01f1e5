package verdict

import (
	"fmt"
	"time"
)

// learned gives how and when the client first saw a job final after a moment of the service's clock: read, streamed or delivered. It is
// nil if it never did.
func (r *Record) learned(id string, since time.Time) (first *Exchange, at time.Time) {
	sees := func(t time.Time) bool { return !t.Before(since.Add(-Tolerance)) && (first == nil || t.Before(at)) }
	for i := range r.Exchanges {
		if x := &r.Exchanges[i]; shows(x, id) && sees(x.End) {
			first, at = x, x.End
		}
	}
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.JobID == id && a.Final && a.Error == "" && sees(a.At) {
			first, at = r.attempted(a), a.At
		}
	}
	return first, at
}

// outcome: what became of each job is learned soon. A job that the client does not know of is another rule's.
func outcome(r *Record, f *finding) {
	known := map[string]*Exchange{}
	for i := range r.Exchanges {
		x := &r.Exchanges[i]
		if !submits(x) || !x.Arrived() || x.Made == "" {
			continue
		}
		for _, made := range append([]string{x.Made}, x.Shown...) {
			if known[made] == nil {
				known[made] = x
			}
		}
	}
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
func unretried(r *Record, f *finding) {
	for _, run := range r.Runs {
		if !run.Permanent {
			continue
		}
		var first, seen *Exchange
		for i := range r.Exchanges {
			x := &r.Exchanges[i]
			if first == nil && submits(x) && x.Made == run.ID {
				first = x
			}
			if seen == nil && shows(x, run.ID) {
				seen = x
			}
		}
		if seen == nil {
			continue
		}
		again := next(seen, r.Exchanges, func(y *Exchange) bool {
			return y.Role == Retry && y.Job == run.ID || first != nil && submits(y) && intention(first, y) && y.Made != run.ID
		})
		if again != nil {
			f.fail(seen, again, "A job that failed for good was tried again.", "To leave it: its failure says `retryable: false`.")
			continue
		}
		f.hold(seen, nil, "The job was left as it is.")
	}
}
