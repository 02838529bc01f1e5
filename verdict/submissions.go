package verdict

import (
	"fmt"
	"net/http"
	"slices"
)

// failed reports whether a submission came to nothing for the client that it may try again.
func failed(x *Exchange) bool {
	return !x.Arrived() || x.Status == 429 || x.Status >= 500
}

// intention reports whether y is to make what x was to make: they carry one correlation id and one body, as far as that was read, or are
// equal batches.
func intention(x, y *Exchange) bool {
	if batch(x) || batch(y) {
		return x.Role == y.Role && x.Body != "" && x.Body == y.Body
	}
	return x.Correlation != "" && x.Correlation == y.Correlation && (x.Body == y.Body || x.Body == "" || y.Body == "")
}

// retried: a submission that came to nothing is repeated, and only what may be repeated is.
func retried(r *Record, f *finding) {
	refused, first := map[string]int{}, map[string]*Exchange{}
	r.each(func(x *Exchange, later []Exchange) {
		if refusal(x) && (!r.Standards || x.Status == http.StatusForbidden) {
			y := next(x, later, func(y *Exchange) bool { return repeats(x, y) && y.KeyID == x.KeyID && refusal(y) })
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
		if r.Standards || !submits(x) || !failed(x) || x.Key == "" && x.Correlation == "" && !batch(x) || !r.over(x.End) {
			return
		}
		tries := 0
		for i := range r.Exchanges {
			if y := &r.Exchanges[i]; y == x || submits(y) && (y.Key != "" && y.Key == x.Key || intention(x, y)) {
				tries++
			}
		}
		again := next(x, later, func(y *Exchange) bool {
			return submits(y) && (y.Key != "" && y.Key == x.Key || intention(x, y))
		})
		if again == nil && (tries > MaxRereads || r.found(x, later)) {
			return // given up, or found otherwise
		}
		f.judge(again != nil, x, again, either(again != nil, "It was tried again.", "It was not tried again."), "To try again.")
	})
}

// refusal reports whether the answer says that the same request will not be better another time.
func refusal(x *Exchange) bool {
	if !x.Arrived() || x.Stream != nil {
		return false
	}
	switch x.Status {
	case 400, 401, 403, 405, 406, 410, 413, 415, 422:
		return true
	}
	return false
}

// found reports whether the client looked for its jobs later, or was told of the one that it made.
func (r *Record) found(x *Exchange, later []Exchange) bool {
	return x.Made != "" && r.untold(x.Made, x.Start, r.Now) || next(x, later, func(y *Exchange) bool {
		return y.Arrived() && (y.Role == List && y.Status == 200 || x.Made != "" && shown(y, x.Made))
	}) != nil
}

// keyed: a submission that is repeated carries the key that it had.
func keyed(r *Record, f *finding) {
	r.each(func(x *Exchange, later []Exchange) {
		if !submits(x) || !failed(x) || r.Standards && (!unanswered(x) || idempotent(x)) {
			return
		}
		y := next(x, later, func(y *Exchange) bool {
			return submits(y) && (intention(x, y) || x.Key != "" && x.Key == y.Key || r.Standards && r.onlyOne(x, y))
		})
		if y == nil {
			return
		}
		same := x.Key != "" && x.Key == y.Key
		if r.Standards && !same && looked(x, y, later) {
			return
		}
		f.judge(same, x, y, either(same, "The same Idempotency-Key.", "Another Idempotency-Key, or none."),
			"The Idempotency-Key of the first try, so that one job is made at most.")
	})
}

// onlyOne reports whether y is the same request as x, and the client wanted that only once: it stopped when one was accepted. Clients
// of other APIs send neither keys nor correlation ids.
func (r *Record) onlyOne(x, y *Exchange) bool {
	others := x.Correlation != "" && y.Correlation != "" && x.Correlation != y.Correlation
	if others || x.Body == "" || x.Body != y.Body || x.Path != y.Path || x.Method != y.Method {
		return false
	}
	accepted := 0
	for i := range r.Exchanges {
		if z := &r.Exchanges[i]; z.Body == x.Body && z.Path == x.Path && z.Method == x.Method && z.Arrived() && z.Status < 300 {
			accepted++
		}
	}
	return accepted <= 1
}

// looked reports whether the client read something between two submissions: it may have found out whether the first had an effect.
func looked(x, y *Exchange, later []Exchange) bool {
	z := next(x, later, func(z *Exchange) bool { return z.Method == http.MethodGet && z.Arrived() && z.Status < 500 })
	return z != nil && z.End.Before(y.Start)
}

// sameBody: a key stands for one request.
func sameBody(r *Record, f *finding) {
	first := map[string]*Exchange{}
	r.each(func(x *Exchange, _ []Exchange) {
		if x.Key == "" || x.Body == "" {
			return
		}
		at := x.Method + x.Path + x.Key
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
func once(r *Record, f *finding) {
	type want struct{ correlation, body string }
	done := map[string]*Exchange{} // keys of submissions that the client knows to be made
	made, tries := map[want]map[string]bool{}, map[want]int{}
	first := map[want]*Exchange{}
	var order []*Exchange
	r.each(func(x *Exchange, _ []Exchange) {
		if submits(x) && x.Key != "" {
			if first := done[x.Key]; first != nil && first.Correlation != "" && x.Correlation != "" && x.Correlation != first.Correlation &&
				x.Body == first.Body && x.Start.After(first.End) {
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
func foundOut(r *Record, f *finding) {
	r.each(func(x *Exchange, later []Exchange) {
		if !submits(x) || x.Arrived() || x.Made == "" || !r.over(x.End) {
			return
		}
		y := next(x, later, func(y *Exchange) bool {
			return y.Arrived() && (y.Made == x.Made || y.Job == x.Made || shown(y, x.Made)) || submits(y) && !y.Arrived() && y.Made == x.Made
		})
		if y != nil && !y.Arrived() {
			return // the repetition's answer was lost too, and counts by itself
		}
		if y == nil && next(x, later, func(y *Exchange) bool { return submits(y) && repeats(x, y) }) != nil {
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

func shown(x *Exchange, id string) bool {
	return slices.Contains(x.Final, id) || slices.Contains(x.Shown, id)
}

// correlated: each submission has a correlation id, and each intention one of its own.
func correlated(r *Record, f *finding) {
	owners := map[string]*Exchange{}
	r.each(func(x *Exchange, _ []Exchange) {
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
