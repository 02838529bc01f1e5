package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// learned reports whether the client saw a job final after a moment of the service's clock: read, streamed or delivered.
func (r *Record) learned(id job.ID, since time.Time) bool {
	for i := range r.Exchanges {
		if x := &r.Exchanges[i]; !x.ServiceEnd().Before(since) && shows(x, id) {
			return true
		}
	}
	return slices.ContainsFunc(r.Attempts, func(a testbed.Attempt) bool {
		return a.JobID == id && finalEvent(a.Event) && a.Error == "" && !a.At.Before(since)
	})
}

// finalEvent reports whether an event tells that a job has ended.
func finalEvent(name string) bool {
	switch name {
	case job.EventSucceeded, job.EventFailed, job.EventCanceled:
		return true
	}
	return false
}

// outcome: what became of each job is learned soon. A job that the client does not know of is another rule's.
func outcome(r *Record, f *finding) {
	known := map[job.ID]*testbed.Exchange{}
	for i := range r.Exchanges {
		if x := &r.Exchanges[i]; submits(x) && x.Arrived() && !x.Made.IsZero() && known[x.Made] == nil {
			known[x.Made] = x
		}
	}
	for _, run := range r.Runs {
		x := known[run.ID]
		if x == nil || run.Finished.IsZero() || !r.over(run.Finished) {
			continue
		}
		ok := r.learned(run.ID, time.Time{})
		f.judge(ok, x, either(ok, "The client learned that the job has ended.",
			fmt.Sprintf("The job is %s since %s, and nothing told the client.", run.State, run.Finished.UTC().Format(time.RFC3339))),
			"To read the job, follow its events, or take its webhook.")
	}
}

// unretried: what will not get better is not tried again.
func unretried(r *Record, f *finding) {
	for _, run := range r.Runs {
		if run.State != job.Failed || run.Retryable {
			continue
		}
		var first, seen *testbed.Exchange
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
		again := next(seen, r.Exchanges, func(y *testbed.Exchange) bool {
			return y.Operation == "retryJob" && y.Job == run.ID || first != nil && submits(y) && intention(first, y)
		})
		if again != nil {
			f.fail(again, "A job that failed for good was tried again.", "To leave it: its failure says `retryable: false`.")
			continue
		}
		f.hold(seen, "The job was left as it is.")
	}
}

// resumed: a stream that ended is resumed where it ended, after a pause.
func resumed(r *Record, f *finding) {
	ids := map[string]map[string]bool{} // that were sent, of each stream
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if x.Stream == nil {
			return
		}
		if ids[x.Path] == nil {
			ids[x.Path] = map[string]bool{}
		}
		for _, id := range x.Stream.IDs {
			ids[x.Path][id] = true
		}
		if x.Fault == nil || !x.Fault.OfStreams() || x.Stream.Events == 0 && x.LastEventID == "" {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool { return y.Method == x.Method && y.Path == x.Path && y.Stream != nil })
		if y == nil {
			return
		}
		waited := y.Start.Sub(x.End)
		switch {
		case !ids[x.Path][y.LastEventID] && y.LastEventID != x.LastEventID || y.LastEventID == "":
			f.fail(y, fmt.Sprintf("Last-Event-ID: %q.", y.LastEventID), "Last-Event-ID: the id of the last event that came, so that none is missed.")
		case waited < Tolerance:
			f.fail(y, "The stream was opened again "+after(waited)+".", "A pause first, as the stream's `retry` says.")
		default:
			f.hold(y, "Last-Event-ID: "+y.LastEventID+", "+after(waited)+".")
		}
	})
}
