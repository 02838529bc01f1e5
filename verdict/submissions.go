package verdict

import (
	"fmt"
	"net/http"
)

// failed reports whether a submission came to nothing for the client that it may try again.
func failed(x *exchange) bool {
	return !x.Arrived() || x.Status == 429 || x.Status >= 500
}

// retried: a submission that came to nothing is repeated, and only what may be repeated is.
func retried(r *record, f *finding) {
	refused, first := map[string]int{}, map[string]*exchange{}
	refusals := r.repetitions(func(x *exchange) (scope, bool) { return scope{targetOf(x), x.KeyID}, refusal(x) })
	submissions, found := r.submissions(), r.finds()
	r.each(func(x *exchange) {
		if refusal(x) && (!r.Standards || x.Status == http.StatusForbidden) {
			y := refusals.next(scope{targetOf(x), x.KeyID}, x)
			at := x.Method + x.Path + "?" + x.Query + x.Body
			if first[at] == nil {
				first[at] = x
			}
			if refused[at]++; y == nil {
				f.judge(refused[at] <= MaxRereads, first[at], x, fmt.Sprintf("The refused request was sent %d times.", refused[at]),
					"To correct the request: the same one is refused again.")
			}
			return
		}
		if r.Standards || !submits(x) || !failed(x) || x.Key == "" && x.Correlation == "" && !batch(x) || !r.over(x.End()) {
			return
		}
		again := next(submissions.resubmissions(scope{}, x), x)
		if again == nil && (submissions.tries(x) > MaxRereads || found(x)) {
			return // given up, or found otherwise
		}
		f.judge(again != nil, x, again, either(again != nil, "It was tried again.", "It was not tried again."), "To try again.")
	})
}

// refusal reports whether the answer says that the same request will not be better another time.
func refusal(x *exchange) bool {
	if !x.Arrived() || x.Stream != nil {
		return false
	}
	switch x.Status {
	case 400, 401, 403, 405, 406, 410, 413, 415, 422:
		return true
	}
	return false
}

// finds gives what reports whether the client looked for its jobs later, or was told of the one that a submission made.
func (r *record) finds() (found func(x *exchange) bool) {
	made := map[string]bool{} // of submissions that came to nothing
	var lists group
	r.each(func(x *exchange) {
		if submits(x) && failed(x) && x.Made != "" {
			made[x.Made] = true
		}
		if x.Role == List && x.Status == http.StatusOK && x.Arrived() {
			lists = append(lists, x)
		}
	})
	shown := indexed(r, func(x *exchange, add func(string)) {
		if x.Arrived() {
			addAmong(made, add, x.Final, x.Shown)
		}
	})
	return func(x *exchange) bool {
		return x.Made != "" && r.untold(x.Made, x.Start, r.Now) || lists.next(x) != nil || shown[x.Made].next(x) != nil
	}
}

// addAmong adds those ids of lists that are wanted.
func addAmong(wanted map[string]bool, add func(string), lists ...[]string) {
	for _, list := range lists {
		for _, id := range list {
			if wanted[id] {
				add(id)
			}
		}
	}
}

// keyed: a submission that is repeated carries the key that it had.
func keyed(r *record, f *finding) {
	submissions, copied := r.submissions(), r.copies(submits)
	reads := group{} // by which a client may find out
	r.each(func(x *exchange) {
		if x.Method == http.MethodGet && x.Arrived() && x.Status < 500 {
			reads = append(reads, x)
		}
	})
	r.each(func(x *exchange) {
		if !submits(x) || !failed(x) || r.Standards && (!unanswered(x) || idempotent(x)) {
			return
		}
		y := earliest(next(submissions.resubmissions(scope{}, x), x), copied(x))
		if y == nil {
			return
		}
		same := x.Key != "" && x.Key == y.Key
		if z := reads.next(x); r.Standards && !same && z != nil && z.End().Before(y.Start) {
			return // it may have found out whether the first one had an effect
		}
		f.judge(same, x, y, either(same, "The same Idempotency-Key.", "Another Idempotency-Key, or none."),
			"The Idempotency-Key of the first try, so that one job is made at most.")
	})
}

// sameBody: a key stands for one request.
func sameBody(r *record, f *finding) {
	type use struct{ method, path, key string }
	first := map[use]*exchange{}
	r.each(func(x *exchange) {
		if x.Key == "" || x.Body == "" {
			return
		}
		at := use{x.Method, x.Path, x.Key}
		if first[at] == nil {
			first[at] = x
			return
		}
		same := first[at].Body == x.Body
		f.judge(same, first[at], x, either(same, "The same body.", "Another body with the same key."),
			"A key of its own for each request, and the same body whenever the key comes again.")
	})
}

// once: one intention makes one job.
func once(r *record, f *finding) {
	type want struct{ correlation, body string }
	done := map[string]*exchange{} // keys of submissions that the client knows to be made
	made, tries := map[want]map[string]bool{}, map[want]int{}
	first := map[want]*exchange{}
	var order []*exchange
	r.each(func(x *exchange) {
		if submits(x) && x.Key != "" {
			if first := done[x.Key]; first != nil && first.Correlation != "" && x.Correlation != "" && x.Correlation != first.Correlation &&
				x.Body == first.Body && x.Start.After(first.End()) {
				f.fail(first, x, "The key of another intended job, "+first.Correlation+", which was made: this one is not.",
					"A key of its own for each intended job.")
				return
			}
			if x.Arrived() && x.Status < 300 && done[x.Key] == nil {
				done[x.Key] = x
			}
		}
		if !submits(x) || x.Correlation == "" {
			return
		}
		w := want{x.Correlation, x.Body}
		if tries[w]++; tries[w] == 1 {
			made[w], first[w] = map[string]bool{}, x
		}
		if tries[w] == 2 {
			order = append(order, x)
		}
		if x.Made != "" {
			made[w][x.Made] = true
		}
	})
	for _, x := range order {
		w := want{x.Correlation, x.Body}
		n := len(made[w])
		f.judge(n <= 1, first[w], x, fmt.Sprintf("%d jobs for one correlation id and one body.", n),
			"One job: its Idempotency-Key makes every repetition find it.")
	}
}

// foundOut: a submission whose answer was lost is asked after.
func foundOut(r *record, f *finding) {
	lost := map[string]bool{}
	r.each(func(x *exchange) {
		if submits(x) && !x.Arrived() && x.Made != "" {
			lost[x.Made] = true
		}
	})
	about := indexed(r, func(x *exchange, add func(string)) {
		switch {
		case x.Arrived():
			addAmong(lost, add, []string{x.Made, x.Job}, x.Final, x.Shown)
		case submits(x):
			addAmong(lost, add, []string{x.Made})
		}
	})
	again := r.repetitions(func(x *exchange) (scope, bool) { return scope{target: targetOf(x)}, submits(x) })
	r.each(func(x *exchange) {
		if !submits(x) || x.Arrived() || x.Made == "" || !r.over(x.End()) {
			return
		}
		y := about[x.Made].next(x)
		if y != nil && !y.Arrived() {
			return // the repetition's answer was lost too, and counts by itself
		}
		if y == nil && again.next(scope{target: targetOf(x)}, x) != nil {
			return // it is trying
		}
		if y == nil && r.untold(x.Made, x.Start, r.Now) {
			return
		}
		f.judge(y != nil, x, y, either(y != nil, "The client found the job.",
			"The client does not know of job "+x.Made+"."),
			"To repeat the request with its key, or to look for the job.")
	})
}

// correlated: each submission has a correlation id, and each intention one of its own.
func correlated(r *record, f *finding) {
	owners := map[string]*exchange{}
	r.each(func(x *exchange) {
		if !submits(x) || batch(x) { // whose items may have one each
			return
		}
		switch other := owners[x.Correlation]; {
		case x.Correlation == "" && x.Trace != "":
			f.hold(nil, x, "A traceparent.")
		case x.Correlation == "":
			f.fail(nil, x, "No X-Correlation-ID.", "An X-Correlation-ID of its own for each intended job.")
		case other != nil && other.Body != x.Body && x.Body != "":
			f.fail(other, x, "The X-Correlation-ID of another submission.", "An X-Correlation-ID of its own for each intended job.")
		default:
			owners[x.Correlation] = x
			f.hold(nil, x, "An X-Correlation-ID of its own.")
		}
	})
}
