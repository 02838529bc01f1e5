package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// retryAfter: a read that was told when to come again is not repeated earlier. One that found the job final was not a poll: the
// client may have learned of its end otherwise.
func retryAfter(r *record, f *finding) {
	firsts := indexed(r, func(x *exchange, add func(string)) {
		if r.Standards && x.Role == Read {
			add(x.Job)
		}
	})
	r.each(func(x *exchange) {
		began := r.Standards && submits(x) && x.Status == http.StatusAccepted // what it tells is about the first read of the job
		if x.RetryAfter == nil || !x.Arrived() || x.Method != http.MethodGet && !began || len(x.Final) > 0 ||
			!slices.Contains([]int{http.StatusOK, http.StatusAccepted, http.StatusNotModified, http.StatusNotFound}, x.Status) {
			return
		}
		y := r.sameReads(x).next(x)
		if began {
			y = earliest(y, firsts[x.Made].next(x))
		}
		if y == nil || waits(y) || r.hinted(x.Job, x, y) {
			return
		}
		if began && len(y.Final) > 0 {
			return // it may have been waited for otherwise
		}
		told := y.Status < 300 || y.Status == http.StatusNotModified || y.Status == http.StatusNotFound
		waited := y.Start.Sub(x.End())
		if waited < tells(x)-Tolerance && (len(y.Final) > 0 || !told) {
			return
		}
		f.judge(waited >= tells(x)-Tolerance, x, y, "The same again "+after(waited)+".",
			fmt.Sprintf("To wait for the %d s that Retry-After says.", *x.RetryAfter))
	})
}

// hinted reports whether the client may have heard of the job between two reads, by a delivery or on an event stream: the second one is
// no poll then.
func (r *record) hinted(id string, x, y *exchange) bool {
	return id != "" && (r.told[id].overlap(x.Start, y.Start) || r.untold(id, x.Start, y.Start))
}

// listing: a list that shows jobs which have not ended is not asked for time after time.
func listing(r *record, f *finding) {
	hasty := map[string]int{} // consecutive repetitions within ListEvery
	r.each(func(x *exchange) {
		if x.Role != List && x.Role != ReadMany || !x.Arrived() || x.Status != http.StatusOK || x.RetryAfter != nil || len(x.Shown) == 0 {
			return
		}
		y := r.sameReads(x).next(x)
		if y == nil || waits(y) {
			return
		}
		waited, at := y.Start.Sub(x.End()), x.Path+"?"+x.Query
		if hasty[at]++; waited >= ListEvery-Tolerance || slices.ContainsFunc(x.Shown, func(id string) bool { return r.hinted(id, x, y) }) {
			hasty[at] = 0
		}
		f.judge(hasty[at] < FewLists, x, y, fmt.Sprintf("The same list again %s, %d times in a row.", after(waited), hasty[at]),
			fmt.Sprintf("To wait for %.0f s.", ListEvery.Seconds()))
	})
}

// stopAtEnd: a job that was seen final is not polled any more, unless it was retried.
func stopAtEnd(r *record, f *finding) {
	judged, retried := map[string]bool{}, map[string]int{}
	r.each(func(x *exchange) {
		if x.Role == Retry {
			retried[x.Job] = x.place
		}
	})
	r.each(func(x *exchange) {
		if x.Role != Read || !shows(x, x.Job) || judged[x.Job] {
			return
		}
		judged[x.Job] = true
		if retried[x.Job] > x.place {
			return
		}
		again := 0
		var last *exchange
		for _, y := range r.sameReads(x).after(x) {
			if shows(y, x.Job) || y.Status == http.StatusNotModified && y.Arrived() {
				again, last = again+1, y
			}
		}
		f.judge(again <= MaxRereads, x, last, fmt.Sprintf("%d more reads of the finished job.", again), "To stop: a final state does not change.")
	})
}

// conditional: a poll of what was seen with an ETag names it. One that does not may come from elsewhere in the client.
func conditional(r *record, f *finding) {
	stored := map[target]bool{} // a client that never says that it keeps an answer has none to update
	r.each(func(x *exchange) {
		if x.IfNoneMatch != "" {
			stored[targetOf(x)] = true
		}
	})
	r.each(func(x *exchange) {
		if x.Role != Read || !x.Arrived() || x.Disturbed() || x.ETag == "" || x.Status != 200 || len(x.Final) > 0 {
			return
		}
		y := r.sameReads(x).next(x)
		if y == nil || waits(y) || r.hinted(x.Job, x, y) || len(y.Final) > 0 && y.IfNoneMatch == "" || r.Standards && !stored[targetOf(x)] {
			return
		}
		f.judge(y.IfNoneMatch != "", x, y, fmt.Sprintf("If-None-Match: %q.", y.IfNoneMatch),
			"If-None-Match: "+x.ETag+", so that 304 can be the answer.")
	})
}

// backoff: whoever is told 429 or 503 comes again when told, or without being told not at once time after time.
func backoff(r *record, f *finding) {
	storms(r, f)
	again := r.repetitions(func(x *exchange) (scope, bool) { return scope{target: targetOf(x)}, true })
	copied := r.copies(func(*exchange) bool { return true })
	hasty := map[string]int{} // consecutive repetitions at once
	r.each(func(x *exchange) {
		if !x.Arrived() || x.Status != 429 && x.Status != 502 && x.Status != 503 {
			return
		}
		y := again.next(scope{target: targetOf(x)}, x)
		if submits(x) {
			y = earliest(y, copied(x))
		}
		if y == nil {
			return
		}
		waited := y.Start.Sub(x.End())
		if x.RetryAfter != nil {
			if waited < tells(x)-Tolerance && r.hinted(x.Job, x, y) {
				return
			}
			f.judge(waited >= tells(x)-Tolerance, x, y, "The same again "+after(waited)+".",
				fmt.Sprintf("To wait for the %d s that Retry-After says.", *x.RetryAfter))
			return
		}
		if r.Standards {
			return // no standard says how long
		}
		at := x.Method + x.Path + x.Body
		if hasty[at]++; waited >= 50*time.Millisecond {
			hasty[at] = 0
		}
		f.judge(hasty[at] < 3, x, y, fmt.Sprintf("The same again %s, %d times in a row.", after(waited), hasty[at]), "To wait longer each time.")
	})
}

// tolerant checks that an answer or event with members, states or types that the client does not know does not stop it. It cannot be told
// from outside whether a client stopped because of an unknown state or because another member said that the job had ended.
func tolerant(r *record, f *finding) {
	polls := r.pollers()
	for i := range r.exchanges {
		x, later := &r.exchanges[i], r.exchanges[i+1:]
		if x.Fault == nil || !x.Fault.Rewrites() || !x.Arrived() || x.Status >= 400 || !r.over(x.End()) {
			continue
		}
		for _, id := range x.Shown {
			y, _ := r.learned(id, x.End())
			if y == nil && x.Job == id {
				y = r.sameReads(x).next(x)
			}
			unclear := slices.Contains(x.Told, id) || r.Elsewhere || r.untold(id, x.End(), r.Now) || r.unended(id) && !polls(x)
			if y == nil && unclear {
				continue
			}
			f.judge(y != nil, x, y, either(y != nil, "The client went on with the job.", "The client never looked at job "+id+" again."),
				"Ignore unknown members. Take an unknown state for one that is not final, and go on.")
		}
		if len(x.Final) > 0 && len(later) > 0 {
			f.hold(x, &later[0], "The client went on.")
		}
	}
}

// timeouts: a client does not wait for ever.
func timeouts(r *record, f *finding) {
	r.each(func(x *exchange) {
		if x.Fault == nil || x.Fault.Wait() < WaitAtMost || waits(x) && !x.HungUp { // who asks to wait has to
			return
		}
		took := after(x.End().Sub(x.Start))
		f.judge(x.HungUp, nil, x, either(x.HungUp, "The client gave up ", "The client had its answer ")+took+".",
			fmt.Sprintf("A time-out of less than %.0f s.", WaitAtMost.Seconds()))
	})
}
