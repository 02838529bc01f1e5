package verdict

import "net/http"

// repetitions finds requests that repeat an earlier one. Except for batches, equal bodies alone do not make a repetition: the client may
// want two jobs.
type repetitions map[intentKey]group

// intentKey identifies requests that repeat each other.
type intentKey struct {
	scope      scope
	what       byte
	text, body string
}

// Values of intentKey.what. They name what the requests have in common, in addition to the scope.
const (
	sameTarget      = iota // only the scope
	sameKey                // idempotency key
	sameCorrelation        // correlation id
	sameIntention          // correlation id and body
	sameBatch              // body of a batch
)

// scope limits a search for repetitions to a target and to an era, which is the time between two resets. An empty target matches all
// targets.
type scope struct {
	target
	era int
}

// repetitions indexes requests. scopeOf returns the scope of a request, or false to skip the request.
func (r *record) repetitions(scopeOf func(*exchange) (scope, bool)) repetitions {
	return indexed(r, func(x *exchange, add func(intentKey)) {
		s, ok := scopeOf(x)
		if !ok {
			return
		}
		s.era = x.era
		add(intentKey{scope: s})
		if x.Key != "" {
			add(intentKey{s, sameKey, x.Key, ""})
		}
		switch {
		case batch(x) && x.Body != "":
			add(intentKey{s, sameBatch, "", x.Body})
		case !batch(x) && x.Correlation != "":
			add(intentKey{s, sameCorrelation, x.Correlation, ""})
			add(intentKey{s, sameIntention, x.Correlation, x.Body})
		}
	})
}

func (r *record) submissions() repetitions {
	return r.repetitions(func(x *exchange) (scope, bool) { return scope{}, submits(x) })
}

// intended returns groups of requests for the same purpose as x: with equal correlation id and body, or an equal batch. Except for
// batches, a body without a hash (the service did not read it) counts as equal to any body.
func (all repetitions) intended(s scope, x *exchange) []group { return all.of(intentKeys(s, x)) }

func intentKeys(s scope, x *exchange) []intentKey {
	s.era = x.era
	switch {
	case batch(x):
		return []intentKey{{s, sameBatch, "", x.Body}}
	case x.Body == "":
		return []intentKey{{s, sameCorrelation, x.Correlation, ""}}
	}
	return []intentKey{{s, sameIntention, x.Correlation, x.Body}, {s, sameIntention, x.Correlation, ""}}
}

// resubmissions returns the groups of `intended`, and the group of requests with the idempotency key of x.
func (all repetitions) resubmissions(s scope, x *exchange) []group { return all.of(resubmitted(s, x)) }

func resubmitted(s scope, x *exchange) []intentKey {
	same := intentKeys(s, x)
	s.era = x.era
	return append(same, intentKey{s, sameKey, x.Key, ""})
}

func (all repetitions) of(same []intentKey) []group {
	groups := make([]group, len(same))
	for i, s := range same {
		groups[i] = all[s]
	}
	return groups
}

// tries counts the tries of x. Counting stops soon after MaxRereads, because a client may then give up.
func (all repetitions) tries(x *exchange) int {
	tries := map[*exchange]bool{x: true}
	for _, g := range all.resubmissions(scope{}, x) {
		for _, y := range g {
			if tries[y] = true; len(tries) > MaxRereads {
				break
			}
		}
	}
	return len(tries)
}

func (all repetitions) next(s scope, x *exchange) *exchange {
	s.era = x.era
	if x.Method == http.MethodGet || x.Method == http.MethodDelete || !submits(x) && x.Job != "" {
		return all[intentKey{scope: s}].next(x)
	}
	return next(all.resubmissions(s, x), x)
}

func next(groups []group, x *exchange) (first *exchange) {
	for _, g := range groups {
		first = earliest(first, g.next(x))
	}
	return first
}

// copies returns a function that finds the next copy of a request: equal method, path and body. The function returns nil if the service
// accepted several copies, because the client may want several jobs. For our API, the function always returns nil. Clients of other APIs
// may send neither keys nor correlation ids, so only equal content identifies a copy.
func (r *record) copies(among func(*exchange) bool) (next func(x *exchange) *exchange) {
	if !r.Standards {
		return func(*exchange) *exchange { return nil }
	}
	type content struct {
		era                int
		method, path, body string
	}
	type correlated struct {
		content
		correlation string
	}
	of := func(x *exchange) content { return content{x.era, x.Method, x.Path, x.Body} }
	accepted := map[content]int{}
	r.each(func(x *exchange) {
		if x.Arrived() && x.Status < 300 {
			accepted[of(x)]++
		}
	})
	all := indexed(r, func(x *exchange, add func(content)) {
		if among(x) {
			add(of(x))
		}
	})
	by := indexed(r, func(x *exchange, add func(correlated)) {
		if among(x) {
			add(correlated{of(x), x.Correlation})
		}
	})
	return func(x *exchange) *exchange {
		switch {
		case x.Body == "" || accepted[of(x)] > 1:
			return nil
		case x.Correlation == "":
			return all[of(x)].next(x)
		}
		return earliest(by[correlated{of(x), x.Correlation}].next(x), by[correlated{of(x), ""}].next(x))
	}
}
