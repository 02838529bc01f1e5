package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// learned gives how and when the client first saw a job final after a moment of the service's clock: read, streamed or delivered. It is
// nil if it never did.
func (r *Record) learned(id string, since time.Time) (first *Exchange, at time.Time) {
	sees := func(t time.Time) bool { return !t.Before(since.Add(-Tolerance)) && (first == nil || t.Before(at)) }
	for i := range r.Exchanges {
		if x := &r.Exchanges[i]; shows(x, id) && sees(x.ServiceEnd()) {
			first, at = x, x.ServiceEnd()
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

// resumed: a stream that ended is resumed where it ended, after a pause.
func resumed(r *Record, f *finding) {
	ids := map[string]map[string]bool{} // that were sent, of each stream
	r.each(func(x *Exchange, later []Exchange) {
		if x.Stream == nil {
			return
		}
		if ids[x.Path] == nil {
			ids[x.Path] = map[string]bool{}
		}
		for _, id := range x.Stream.IDs {
			ids[x.Path][id] = true
		}
		if !x.Stream.Cut || x.Stream.Events == 0 && x.LastEventID == "" {
			return
		}
		y := next(x, later, func(y *Exchange) bool { return y.Method == x.Method && y.Path == x.Path && y.Stream != nil })
		if y == nil || r.several(x, y) {
			return
		}
		waited, byCursor := y.Start.Sub(x.End), strings.Contains("&"+y.Query, "&cursor=")
		switch {
		case y.LastEventID != "" && y.LastEventID != x.LastEventID && !ids[x.Path][y.LastEventID]:
			return // of an event whose record is lost with its process
		case y.LastEventID == "" && !byCursor:
			f.fail(x, y, fmt.Sprintf("Last-Event-ID: %q.", y.LastEventID), "Last-Event-ID: the id of the last event that came, so that none is missed.")
		case waited < Tolerance && (x.Fault == nil || x.Fault.StallAfter == nil): // silence is a pause of its own
			f.fail(x, y, "The stream was opened again "+after(waited)+".", "A pause first, as the stream's `retry` says.")
		default:
			f.hold(x, y, either(byCursor, "A cursor, ", "Last-Event-ID: "+y.LastEventID+", ")+after(waited)+".")
		}
	})
}

// several reports whether another stream of the same events was open beside one of two: which of them is resumed cannot be told.
func (r *Record) several(x, y *Exchange) bool {
	return slices.ContainsFunc(r.Exchanges, func(z Exchange) bool {
		return z.Stream != nil && z.Path == x.Path && !z.Start.Equal(x.Start) && !z.Start.Equal(y.Start) &&
			z.Start.Before(y.End) && z.End.After(x.Start)
	})
}
