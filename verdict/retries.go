package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// failed reports whether a request failed temporarily, so that the client may retry it.
func failed(x *exchange) bool {
	return !x.Arrived() || x.Status == 429 || x.Status >= 500
}

// retried checks that the client retries what failed temporarily, and nothing that was refused permanently.
func retried(r *record, f *finding) {
	repeatedRefusals(r, f)
	rereadsMissing(r, f)
	uselessRenewals(r, f)
	if r.Standards {
		return
	}
	o := ordersOf(r)
	r.each(func(x *exchange) {
		if !submits(x) || !failed(x) || x.Key == "" && x.Correlation == "" && !batch(x) || !r.reactionOver(x.End()) {
			return
		}
		tries := o.submissions.resubmissions(scope{}, x)
		switch again := next(tries, x); {
		case o.succeeded(x):
			if again != nil {
				f.pass(x, again, "The client retried until it received a response.")
			}
		case again == nil && !slices.ContainsFunc(tries, func(g group) bool { return len(g) > 0 && g[len(g)-1].place > x.place }):
			o.givenUp(f, x)
		}
	})
}

// orders has the submissions of a session and what is known about their results.
type orders struct {
	*record
	submissions repetitions
	made        map[intentKey]time.Time // end of the latest try that did not fail temporarily
	found       func(*exchange) bool
	patience    time.Duration // longest time that the client waited for the response to a submission
	retries     bool          // whether the client has retried a submission after a temporary refusal
	last        int           // line number of the last request in the journal
}

func ordersOf(r *record) *orders {
	o := &orders{record: r, submissions: r.submissions(), made: map[intentKey]time.Time{}, found: r.submissionFinder()}
	for same, g := range o.submissions {
		for _, x := range g {
			if !failed(x) {
				if x.End().After(o.made[same]) {
					o.made[same] = x.End()
				}
			}
		}
	}
	r.each(func(x *exchange) {
		if o.last = x.place; !submits(x) || !x.Arrived() {
			return
		}
		o.patience = max(o.patience, x.took)
		o.retries = o.retries || failed(x) && next(o.submissions.resubmissions(scope{}, x), x) != nil
	})
	return o
}

// succeeded reports whether a try of the same submission succeeded after x began, or the client found the job in another way.
func (o *orders) succeeded(x *exchange) bool {
	for _, same := range resubmitted(scope{}, x) {
		if o.made[same].After(x.Start) {
			return true
		}
	}
	return o.found(x)
}

// givenUp judges the last try of a failed submission. A client may give up after MaxRereads + 1 tries. If a client never retries, it may
// have reported the failure to its user. Such a client is not blamed.
func (o *orders) givenUp(f *finding, x *exchange) {
	tries := o.submissions.tries(x)
	const expected = "Retry for as long as the caller waits, then report that no job was submitted."
	switch {
	case o.found(x), tries == 1 && x.Arrived() && !o.retries:
	case tries <= MaxRereads:
		f.fail(x, nil, "The client gave up on the submission after "+map[int]string{1: "one try", 2: "two tries"}[tries]+".", expected)
	case x.HungUp && x.took < o.patience && x.place < o.last: // one time-out for all tries ended the last try early
		f.fail(x, nil, fmt.Sprintf("The client hung up on the last try after %.1f s, though it had waited %.1f s for another response. "+
			"The client gave up on the submission.", x.took.Seconds(), o.patience.Seconds()), "Give each try its own time-out. "+expected)
	default:
		f.doubt("the client gave up on a submission after three tries or more")
	}
}

// submissionFinder returns a function that reports whether the client saw the job of a submission. If the response was lost and no job is
// known, a later read of a list is enough.
func (r *record) submissionFinder() (found func(x *exchange) bool) {
	made := map[string]bool{}
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
			addAmong(made, add, x.Final, x.Shown, x.MaybeFinal)
		}
	})
	return func(x *exchange) bool {
		if x.Made == "" {
			return !x.Arrived() && lists.next(x) != nil
		}
		return r.mayHaveShown(x.Made, x.Start, r.Now) || shown[x.Made].next(x) != nil
	}
}

func addAmong(wanted map[string]bool, add func(string), lists ...[]string) {
	for _, list := range lists {
		for _, id := range list {
			if wanted[id] {
				add(id)
			}
		}
	}
}
