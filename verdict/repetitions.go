package verdict

import "net/http"

// repetitions finds requests that do again what one before was to do, as far as that can be told: jobs with equal bodies may all be wanted.
type repetitions map[sameness]group

// sameness is what such requests have in common.
type sameness struct {
	scope      scope
	what       byte
	text, body string
}

// What may be the same, besides the scope.
const (
	sameTarget      = iota // nothing
	sameKey                // idempotency keys
	sameCorrelation        // correlation ids
	sameIntention          // and bodies
	sameBatch              // bodies of batches
)

// scope is where repetitions are looked for, besides the era; empty: among all.
type scope struct {
	target
	era int
}

// repetitions indexes requests by the scope that they are in; false: they are no repetitions.
func (r *record) repetitions(in func(*exchange) (scope, bool)) repetitions {
	return indexed(r, func(x *exchange, add func(sameness)) {
		s, ok := in(x)
		if !ok {
			return
		}
		s.era = x.era
		add(sameness{scope: s})
		if x.Key != "" {
			add(sameness{s, sameKey, x.Key, ""})
		}
		switch {
		case batch(x) && x.Body != "":
			add(sameness{s, sameBatch, "", x.Body})
		case !batch(x) && x.Correlation != "":
			add(sameness{s, sameCorrelation, x.Correlation, ""})
			add(sameness{s, sameIntention, x.Correlation, x.Body})
		}
	})
}

// submissions are the repetitions that submit.
func (r *record) submissions() repetitions {
	return r.repetitions(func(x *exchange) (scope, bool) { return scope{}, submits(x) })
}

// intended are those that are to make what x was to make: they carry one correlation id and one body, as far as that was read, or are equal
// batches.
func (all repetitions) intended(s scope, x *exchange) []group { return all.of(samenesses(s, x)) }

// samenesses are what requests have in common with x that are to make what x was to make.
func samenesses(s scope, x *exchange) []sameness {
	s.era = x.era
	switch {
	case batch(x):
		return []sameness{{s, sameBatch, "", x.Body}}
	case x.Body == "":
		return []sameness{{s, sameCorrelation, x.Correlation, ""}}
	}
	return []sameness{{s, sameIntention, x.Correlation, x.Body}, {s, sameIntention, x.Correlation, ""}}
}

// resubmissions are those, and those with the same key.
func (all repetitions) resubmissions(s scope, x *exchange) []group { return all.of(resubmitted(s, x)) }

// resubmitted is what these have in common with x.
func resubmitted(s scope, x *exchange) []sameness {
	same := samenesses(s, x)
	s.era = x.era
	return append(same, sameness{s, sameKey, x.Key, ""})
}

func (all repetitions) of(same []sameness) []group {
	groups := make([]group, len(same))
	for i, s := range same {
		groups[i] = all[s]
	}
	return groups
}

// tries counts x and its resubmissions, up to one more than a client may give up after.
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

// next is the first that does again what x was to do; nil if there is none.
func (all repetitions) next(s scope, x *exchange) *exchange {
	s.era = x.era
	if x.Method == http.MethodGet || x.Method == http.MethodDelete || !submits(x) && x.Job != "" {
		return all[sameness{scope: s}].next(x)
	}
	return next(all.resubmissions(s, x), x)
}

// next is the first exchange of several groups that began after x was over; nil if there is none.
func next(groups []group, x *exchange) (first *exchange) {
	for _, g := range groups {
		first = earliest(first, g.next(x))
	}
	return first
}

// copies finds requests that are the same as one before, where the client wanted that only once: it stopped when one was accepted. Clients
// of other APIs send neither keys nor correlation ids, those of ours are not judged by this.
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
