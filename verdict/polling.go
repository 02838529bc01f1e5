package verdict

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// retryAfter checks that a reader waits as long as Retry-After says before it polls again.
func retryAfter(r *record, f *finding) {
	firsts := indexed(r, func(x *exchange, add func(string)) {
		if r.Standards && x.Role == Read {
			add(x.Job)
		}
	})
	readers, hints := newLoops(f), r.newHints()
	r.each(func(x *exchange) {
		began := r.Standards && submits(x) && x.Status == http.StatusAccepted // Retry-After of a 202 also applies to the first read of the job
		if x.RetryAfter == nil || !x.Arrived() || x.Method != http.MethodGet && !began || len(x.Final) > 0 ||
			!slices.Contains([]int{http.StatusOK, http.StatusAccepted, http.StatusNotModified, http.StatusNotFound}, x.Status) {
			return
		}
		y := r.sameReads(x).next(x)
		if began {
			y = earliest(y, firsts[x.Made].next(x))
		}
		if y == nil || waits(y) {
			return
		}
		if began && len(y.Final) > 0 {
			return // an early read is allowed: the client may have learned of the end in another way
		}
		readable := y.Status < 300 || y.Status == http.StatusNotModified || y.Status == http.StatusNotFound
		waited, job := y.Start.Sub(x.End()), cmp.Or(x.Job, x.Made)
		if requiredWait(x) <= Tolerance {
			return
		}
		found := fmt.Sprintf("The client read %s %s; Retry-After said %d s.",
			either(began, "the job", "the same resource again"), after(waited), *x.RetryAfter)
		switch {
		case waited >= requiredWait(x)-Tolerance:
			readers.right(r.readerOf(y), x, y, found)
		case len(y.Final) > 0, !readable, hints.use(x, y, job):
			// Not judged: y failed or showed the end, or a notification may have caused y.
		default:
			readers.noteMistake(r.readerOf(y), r.crowded(x, y, requiredWait(x)), mistake{x, y, found, fmt.Sprintf("Wait %d s.", *x.RetryAfter)})
		}
	})
	if before := f.failures; pollsWithoutPause(r, f) && before == 0 {
		f.cites = &demand{see: judging, quote: "A client should pause between polls even without Retry-After."}
	}
}

// pollsWithoutPause checks that readers pause between polls even without Retry-After. It returns true if a reader did not pause.
func pollsWithoutPause(r *record, f *finding) (found bool) {
	rows := map[place]int{}
	r.each(func(x *exchange) {
		shows := x.Arrived() && (x.Status < 300 || x.Status == http.StatusNotModified)
		if x.RetryAfter != nil || !shows || !slices.Contains([]Role{Read, ReadMany, List}, x.Role) {
			return
		}
		y, at := r.sameReads(x).next(x), r.placeOf(x)
		if y == nil || waits(y) || y.Start.Sub(x.Start) >= Pause {
			rows[at] = 0
			return
		}
		if rows[at]++; rows[at] == FewUnpaused {
			found = true
			f.fail(x, y, fmt.Sprintf("The client read the same resource %d times in a row, less than %d ms apart.",
				FewUnpaused, Pause.Milliseconds()), "Pause between polls, for example for 1 s.")
		}
	})
	return found
}

// listing checks that the client does not poll a list with unfinished jobs too often.
func listing(r *record, f *finding) {
	readers, hints := newLoops(f), r.newHints()
	r.each(func(x *exchange) {
		if x.Role != List && x.Role != ReadMany || !x.Arrived() || x.Status != http.StatusOK || x.RetryAfter != nil || len(x.Shown) == 0 {
			return
		}
		y := r.sameReads(x).next(x)
		if y == nil || waits(y) {
			return
		}
		waited := y.Start.Sub(x.End())
		found := "The client read the same list again " + after(waited) + "."
		switch {
		case waited >= ListEvery-Tolerance:
			readers.right(r.readerOf(y), x, y, found)
		case hints.use(x, y, x.Shown...):
		default:
			readers.noteMistake(r.readerOf(y), r.crowded(x, y, ListEvery),
				mistake{x, y, found, fmt.Sprintf("Wait %.0f s before you read the same list again.", ListEvery.Seconds())})
		}
	})
}

type jobReads struct {
	job       string
	end, last *exchange     // first read that showed the end, and latest read
	pace      time.Duration // shortest time between two reads before the end; 0 with only one read
	gap       time.Duration // pause before the latest read
	row, most int           // current and maximum number of consecutive reads at a steady pace
}

// poll notes a read before the end, or the first read that showed the end.
func (t *jobReads) poll(y *exchange) {
	if t.last != nil {
		gap := max(1, y.Start.Sub(t.last.End()))
		t.pace = cmp.Or(min(t.pace, gap), gap)
	}
	t.last = y
}

// visitors reports whether the reads after the end may come from different parts of the client, such as open web pages. Several parts are
// likely if the client read only once before the end, or reads more than three times as fast after the end as before.
func (t *jobReads) visitors() bool { return t.pace == 0 || t.gap < t.pace/3 }

// add notes a read after the end. Only reads at a steady pace count. People who reload a web page cause irregular reads. Reads after a
// delivery or an event do not count.
func (t *jobReads) add(y *exchange, hinted bool) {
	gap := y.Start.Sub(t.last.End())
	steady := gap <= 3*t.gap+50*time.Millisecond && t.gap <= 3*gap+50*time.Millisecond
	switch {
	case hinted:
	case t.last == t.end || steady && gap < LearnWithin:
		t.row++
	default:
		t.row = 1
	}
	t.gap, t.last, t.most = gap, y, max(t.most, t.row)
}

// stopAtEnd checks that a reader stops polling a job after it has seen a final state. Retried jobs do not count.
func stopAtEnd(r *record, f *finding) {
	retried := indexed(r, func(x *exchange, add func(string)) {
		if x.Role == Retry {
			add(x.Job)
		}
	})
	tails, hints := map[place]*jobReads{}, r.newHints()
	var order []*jobReads
	r.each(func(x *exchange) {
		if x.Role != Read || !x.Arrived() || x.Stream != nil {
			return
		}
		at := r.placeOf(x)
		t := tails[at]
		if t == nil {
			t = &jobReads{job: x.Job}
			tails[at] = t
			order = append(order, t)
		}
		switch {
		case t.end != nil && t.most <= MaxRereads && x.Start.After(t.end.End()) && slices.Contains(x.Shown, t.job):
			*t = jobReads{job: t.job} // the job has not ended after all
			t.poll(x)
		case t.end != nil && x.Start.After(t.end.End()) && (showsFinal(x, t.job) || x.Status == http.StatusNotModified):
			t.add(x, hints.use(t.end, x, t.job))
		case t.end == nil:
			if t.poll(x); showsFinal(x, t.job) {
				t.end = x
			}
		}
	})
	for _, t := range order {
		if t.end == nil || retried[t.job].next(t.end) != nil {
			continue
		}
		if t.most > MaxRereads && r.readerOf(t.end).connection == 0 && t.visitors() {
			continue
		}
		f.judge(t.most <= MaxRereads, t.end, t.last, fmt.Sprintf("The client read the finished job %d more times.", t.most),
			"Stop reading the job: a final state does not change.")
	}
}

// conditional checks that polls send the newest ETag that the reader received.
func conditional(r *record, f *finding) {
	type store struct {
		target
		keyID, accept, agent string
	}
	of := func(x *exchange) store { return store{targetOf(x), x.KeyID, x.Accept, x.Agent} }
	stored := map[store]bool{} // resources that the client caches: it has sent an ETag for them
	r.each(func(x *exchange) {
		if x.IfNoneMatch != "" {
			stored[of(x)] = true
		}
	})
	type version struct {
		store
		tag string
	}
	received := map[version][]time.Time{}
	r.each(func(x *exchange) {
		// After a 200 without an ETag, the next read needs no If-None-Match.
		if x.Method == http.MethodGet && (x.ETag != "" || x.Status == http.StatusOK) && x.Arrived() {
			at := version{of(x), x.ETag}
			received[at] = append(received[at], x.End())
		}
	})
	// elsewhere reports whether the client received the ETag of y in a response between x and y.
	elsewhere := func(x, y *exchange) bool {
		return slices.ContainsFunc(received[version{of(y), y.IfNoneMatch}], func(at time.Time) bool {
			return !at.Before(x.End()) && at.Before(y.Start)
		})
	}
	readers, hints := newLoops(f), r.newHints()
	r.each(func(x *exchange) {
		if x.Role != Read || !x.Arrived() || x.Disturbed() || x.ETag == "" || x.Status != 200 && x.Status != 304 || len(x.Final) > 0 {
			return
		}
		y := r.sameReads(x).next(x)
		if y == nil || waits(y) || len(y.Final) > 0 && y.IfNoneMatch == "" || r.Standards && !stored[of(y)] {
			return
		}
		found := either(y.IfNoneMatch == "", "The client read the job again without If-None-Match.",
			"The client sent If-None-Match: "+y.IfNoneMatch+"; the newest ETag was "+x.ETag+".")
		switch {
		case strings.Contains(y.IfNoneMatch, strings.TrimPrefix(x.ETag, "W/")), elsewhere(x, y):
			if y.IfNoneMatch != "" {
				readers.right(r.readerOf(y), x, y, "The client sent the newest ETag: If-None-Match: "+y.IfNoneMatch+".")
			}
		case hints.use(x, y, x.Job):
		default:
			readers.noteMistake(r.readerOf(y), true, mistake{x, y, found, "Send If-None-Match: " + x.ETag + ", so that the service can answer 304."})
		}
	})
}

// nextRequestFinder returns a function that finds the reader's next request for the target of x. A request on another connection counts
// only if no read of the target before x used this connection. Otherwise, the connection may belong to another reader.
func (r *record) nextRequestFinder() func(x *exchange) *exchange {
	type visit struct {
		place
		connection uint64
	}
	of := func(x *exchange) place {
		return place{targetOf(x), reader{keyID: x.KeyID, accept: x.Accept, agent: x.Agent}}
	}
	first := map[visit]*exchange{}
	all := indexed(r, func(x *exchange, add func(place)) {
		if x.Method != http.MethodGet {
			return
		}
		add(of(x))
		if v := (visit{of(x), x.Connection}); first[v] == nil {
			first[v] = x
		}
	})
	return func(x *exchange) *exchange {
		for _, y := range all[of(x)].after(x) {
			if y.Connection == x.Connection || first[visit{of(y), y.Connection}].place > x.place {
				return y
			}
		}
		return nil
	}
}

// backoff checks that a client obeys Retry-After after a failure. Without Retry-After, the client must not keep retrying immediately.
func backoff(r *record, f *finding) {
	again, next := r.repetitions(func(x *exchange) (scope, bool) { return scope{target: targetOf(x)}, true }), r.nextRequestFinder()
	copied := r.copies(func(*exchange) bool { return true })
	immediate, hints := map[content]int{}, r.newHints()
	r.each(func(x *exchange) {
		hasWait := x.Arrived() && x.RetryAfter != nil
		if x.Stream != nil || !failed(x) && !(hasWait && x.Status == http.StatusForbidden) {
			delete(immediate, contentOf(x))
			return
		}
		if !hasWait && r.Standards {
			return // no standard says how long to wait; the function storms judges immediate repetitions
		}
		var y *exchange
		switch {
		case x.Method == http.MethodGet:
			y = next(x)
		case submits(x):
			y = earliest(again.next(scope{target: targetOf(x)}, x), copied(x))
		default:
			y = again.next(scope{target: targetOf(x)}, x)
		}
		if y == nil || resent(x, y) {
			return
		}
		waited := y.Start.Sub(x.End())
		if hasWait {
			if waited < requiredWait(x)-Tolerance && hints.use(x, y, x.Job) {
				return
			}
			f.judge(waited >= requiredWait(x)-Tolerance, x, y,
				fmt.Sprintf("The client repeated the request %s; Retry-After said %d s.", after(waited), *x.RetryAfter),
				fmt.Sprintf("Wait %d s.", *x.RetryAfter))
			return
		}
		at := contentOf(x)
		if immediate[at]++; !atOnce(x, y) {
			immediate[at] = 0
		}
		f.judge(immediate[at] < 3, x, y, fmt.Sprintf("The client repeated the request %s", after(waited))+
			either(immediate[at] < 2, ".", fmt.Sprintf(", %d times in a row.", immediate[at])), "Wait longer each time.")
	})
	if r.Standards || f.failures == 0 {
		storms(r, f)
	}
}

// timeouts checks that a client stops waiting for a response after WaitAtMost.
func timeouts(r *record, f *finding) {
	r.each(func(x *exchange) {
		if x.Fault == nil || x.Fault.Held() < WaitAtMost || waits(x) && !x.HungUp { // a client may wait for a long poll that it asked for
			return
		}
		took := after(x.End().Sub(x.Start))
		f.judge(x.HungUp, nil, x, either(x.HungUp, "The client gave up ", "The client received its response ")+took+".",
			fmt.Sprintf("Stop waiting for a response after %.0f s.", WaitAtMost.Seconds()))
	})
}
