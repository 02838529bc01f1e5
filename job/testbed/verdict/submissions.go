package verdict

import (
	"fmt"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// failed reports whether a submission came to nothing for the client that it may try again.
func failed(x *testbed.Exchange) bool {
	return !x.Arrived() || x.Status == 429 || x.Status >= 500
}

// intention reports whether y is to make what x was to make: they carry one correlation id and one body, as far as that was read, or are
// equal batches.
func intention(x, y *testbed.Exchange) bool {
	if batch(x) || batch(y) {
		return x.Operation == y.Operation && x.Body != "" && x.Body == y.Body
	}
	return x.Correlation != "" && x.Correlation == y.Correlation && (x.Body == y.Body || x.Body == "" || y.Body == "")
}

// retried: a submission that came to nothing is repeated, and only what may be repeated is.
func retried(r *Record, f *finding) {
	refused := map[string]int{}
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if refusal(x) {
			y := next(x, later, func(y *testbed.Exchange) bool { return repeats(x, y) && y.KeyID == x.KeyID && refusal(y) })
			at := x.Method + x.Path + "?" + x.Query + x.Body
			if refused[at]++; y == nil {
				f.judge(refused[at] <= MaxRereads, x, fmt.Sprintf("The refused request was sent %d times.", refused[at]),
					"To correct the request: the same one is refused again.")
			}
			return
		}
		if !submits(x) || !failed(x) || x.Key == "" && x.Correlation == "" && !batch(x) || !r.over(x.End) {
			return
		}
		tries := 0
		for i := range r.Exchanges {
			if y := &r.Exchanges[i]; y == x || submits(y) && (y.Key != "" && y.Key == x.Key || intention(x, y)) {
				tries++
			}
		}
		again := next(x, later, func(y *testbed.Exchange) bool {
			return submits(y) && (y.Key != "" && y.Key == x.Key || intention(x, y))
		})
		if again == nil && tries > MaxRereads || again == nil && listed(x, later) {
			return // given up, or found otherwise
		}
		f.judge(again != nil, x, either(again != nil, "It was tried again.", "It was not tried again."), "To try again.")
	})
}

// refusal reports whether the answer says that the same request will not be better another time.
func refusal(x *testbed.Exchange) bool {
	if !x.Arrived() || x.Stream != nil {
		return false
	}
	switch x.Status {
	case 400, 403, 405, 406, 410, 413, 415, 422:
		return true
	case 401:
		return true
	}
	return false
}

// listed reports whether the client looked for its jobs later.
func listed(x *testbed.Exchange, later []testbed.Exchange) bool {
	return next(x, later, func(y *testbed.Exchange) bool { return y.Operation == "listJobs" && y.Arrived() && y.Status == 200 }) != nil
}

// keyed: a submission that is repeated carries the key that it had.
func keyed(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if !submits(x) || !failed(x) {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool {
			return submits(y) && (intention(x, y) || x.Key != "" && x.Key == y.Key)
		})
		if y == nil {
			return
		}
		same := x.Key != "" && x.Key == y.Key
		f.judge(same, y, either(same, "The same Idempotency-Key.", "Another Idempotency-Key, or none."),
			"The Idempotency-Key of the first try, so that one job is made at most.")
	})
}

// sameBody: a key stands for one request.
func sameBody(r *Record, f *finding) {
	first := map[string]*testbed.Exchange{}
	r.each(func(x *testbed.Exchange, _ []testbed.Exchange) {
		if x.Key == "" || x.Body == "" {
			return
		}
		at := x.Operation + x.Key
		if first[at] == nil {
			first[at] = x
			return
		}
		same := first[at].Body == x.Body
		f.judge(same, x, either(same, "The same body.", "Another body with the same key."),
			"A key of its own for each request, and the same body whenever the key comes again.")
	})
}

// once: one intention makes one job.
func once(r *Record, f *finding) {
	type want struct{ correlation, body string }
	done := map[string]*testbed.Exchange{} // keys of submissions that the client knows to be made
	made, tries := map[want]map[job.ID]bool{}, map[want]int{}
	var order []*testbed.Exchange
	r.each(func(x *testbed.Exchange, _ []testbed.Exchange) {
		if submits(x) && x.Key != "" {
			if first := done[x.Key]; first != nil && first.Correlation != "" && x.Correlation != "" && x.Correlation != first.Correlation &&
				x.Body == first.Body && x.Start.After(first.End) {
				f.fail(x, "The key of another intended job, "+first.Correlation+", which was made: this one is not.",
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
			made[w] = map[job.ID]bool{}
		}
		if tries[w] == 2 {
			order = append(order, x)
		}
		if !x.Made.IsZero() {
			made[w][x.Made] = true
		}
	})
	for _, x := range order {
		n := len(made[want{x.Correlation, x.Body}])
		f.judge(n <= 1, x, fmt.Sprintf("%d jobs for one correlation id and one body.", n),
			"One job: its Idempotency-Key makes every repetition find it.")
	}
}

// foundOut: a submission whose answer was lost is asked after.
func foundOut(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if !submits(x) || x.Arrived() || x.Made.IsZero() || !r.over(x.End) {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool {
			return y.Arrived() && (y.Made == x.Made || y.Job == x.Made || shown(y, x.Made)) || submits(y) && !y.Arrived() && y.Made == x.Made
		})
		if y != nil && !y.Arrived() {
			return // the repetition's answer was lost too, and counts by itself
		}
		if y == nil && next(x, later, func(y *testbed.Exchange) bool { return submits(y) && repeats(x, y) }) != nil {
			return // it is trying
		}
		f.judge(y != nil, x, either(y != nil, "The client found the job.",
			"The client does not know of job "+x.Made.String()+"."),
			"To repeat the request with its key, or to look for the job.")
	})
}

func shown(x *testbed.Exchange, id job.ID) bool {
	for _, ids := range [][]job.ID{x.Final, x.Shown} {
		for _, known := range ids {
			if known == id {
				return true
			}
		}
	}
	return false
}

// correlated: each submission has a correlation id, and each intention one of its own.
func correlated(r *Record, f *finding) {
	bodies := map[string]string{}
	r.each(func(x *testbed.Exchange, _ []testbed.Exchange) {
		if !submits(x) || batch(x) { // whose items may have one each
			return
		}
		switch other, known := bodies[x.Correlation]; {
		case x.Correlation == "" && x.Trace != "":
			f.hold(x, "A traceparent.")
		case x.Correlation == "":
			f.fail(x, "No X-Correlation-ID.", "An X-Correlation-ID of its own for each intended job.")
		case known && other != x.Body && x.Body != "":
			f.fail(x, "The X-Correlation-ID of another submission.", "An X-Correlation-ID of its own for each intended job.")
		default:
			bodies[x.Correlation] = x.Body
			f.hold(x, "An X-Correlation-ID of its own.")
		}
	})
}
