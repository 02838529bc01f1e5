package verdict

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// keyed checks that a repeated submission has the idempotency key of the first try.
func keyed(r *record, f *finding) {
	submissions, copied := r.submissions(), r.copies(submits)
	reads := group{} // reads that may check whether the job exists
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
		if y == nil || x.Made != "" && r.endedUnsuccessfully(x.Made, y.Start) {
			return
		}
		same := x.Key != "" && x.Key == y.Key
		if z := reads.next(x); r.Standards && !same && z != nil && z.End().Before(y.Start) {
			return // the client may have checked whether the first try had an effect
		}
		f.judge(same, x, y, either(same, "The client repeated the submission with its Idempotency-Key.",
			"The client repeated the submission "+either(y.Key == "", "without an Idempotency-Key.", "with another Idempotency-Key.")),
			"Repeat the submission with the Idempotency-Key of the first try, so that it creates at most one job.")
	})
}

// sameBody checks that requests with the same key have the same method, path and body. Requests with different roles may use the same
// key. A request that follows a redirect may have another path.
func sameBody(r *record, f *finding) {
	type use struct {
		era  int
		role Role
		key  string
	}
	first := map[use]*exchange{}
	r.each(func(x *exchange) {
		if x.Key == "" || safe(x) {
			return
		}
		at := use{x.era, x.Role, x.Key}
		before := first[at]
		switch {
		case before == nil || before.Arrived() && before.Status/100 == 3:
			first[at] = x
		case before.Method != x.Method || before.Path != x.Path:
			f.fail(before, x, fmt.Sprintf("The client sent %s %s with the key of %s %s.", x.Method, x.Path, before.Method, before.Path),
				"Create a key for each request. Reuse it only to repeat the same request.")
		case before.Body != "" && x.Body != "":
			same := before.Body == x.Body
			f.judge(same, before, x, either(same, "The client reused the key with the same body.", "The client reused a key with a different body."),
				"Create a key for each request. Reuse it only with the same body.")
		}
	})
}

// want identifies a job that the client intends to create.
type want struct {
	era, round        int // `round` is higher for a job that replaces a failed or canceled one
	correlation, body string
}

type intentions struct {
	*record
	round map[want]int    // current round by want; the map's keys have round 0
	home  map[string]want // by job id: the want of the submission that created the job
	made  map[want]map[string]bool
	first map[want]*exchange // first submission
	again map[want]*exchange // second submission
	order []want             // wants that were submitted twice
}

func (in *intentions) note(x *exchange) {
	base := want{era: x.era, correlation: x.Correlation, body: x.Body}
	w := in.home[x.Made]
	if base.round = w.round; w != base {
		base.round = 0
		w = base
		w.round = in.round[base]
		if made := in.made[w]; len(made) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(made)), func(id string) bool {
			return !in.endedUnsuccessfully(id, x.Start)
		}) {
			in.round[base]++
			w.round++
		}
	}
	switch {
	case in.first[w] == nil:
		in.first[w], in.made[w] = x, map[string]bool{}
	case in.again[w] == nil:
		in.again[w] = x
		in.order = append(in.order, w)
	}
	if x.Made != "" {
		in.home[x.Made], in.made[w][x.Made] = w, true
	}
}

// endedUnsuccessfully reports whether the client had seen, by the given time, that a job or batch ended without success. It also returns
// true if the job is not in the record any more, because its result is unknown.
func (r *record) endedUnsuccessfully(id string, by time.Time) bool {
	ends := r.ends[id]
	if len(ends) == 0 || !ends[0].until().Before(by) {
		return false
	}
	if run := r.runs[id]; run != nil {
		return run.unsuccessful()
	}
	of := func(run Run) bool { return run.Batch == id }
	return !slices.ContainsFunc(r.Runs, of) || slices.ContainsFunc(r.Runs, func(run Run) bool { return of(run) && run.unsuccessful() })
}

// successes are the names of successful final states, in lower case.
var successes = []string{"succeeded", "success", "successful", "completed", "complete", "done", "finished"}

func (run *Run) unsuccessful() bool { return !slices.Contains(successes, strings.ToLower(run.State)) }

// oneJob checks that the client creates at most one job for the same correlation id and body. After the client has seen a failure, it
// may create another job.
func oneJob(r *record, f *finding) {
	type use struct {
		era int
		key string
	}
	done := map[use]*exchange{} // accepted submissions by key
	in := &intentions{
		record: r, round: map[want]int{}, home: map[string]want{}, made: map[want]map[string]bool{}, first: map[want]*exchange{},
		again: map[want]*exchange{},
	}
	r.each(func(x *exchange) {
		if !submits(x) {
			return
		}
		if at := (use{x.era, x.Key}); x.Key != "" {
			if first := done[at]; first != nil && first.Correlation != "" && x.Correlation != "" && x.Correlation != first.Correlation &&
				x.Body == first.Body && x.Start.After(first.End()) {
				f.fail(first, x,
					"The client submitted "+x.Correlation+" with the key of "+first.Correlation+", so the service created no new job.",
					"Create a key for each job.")
				return
			}
			if x.Arrived() && x.Status < 300 && done[at] == nil {
				done[at] = x
			}
		}
		if x.Correlation != "" {
			in.note(x)
		}
	})
	for _, w := range in.order {
		n := len(in.made[w])
		if n == 0 {
			continue // all tries failed
		}
		f.judge(n <= 1, in.first[w], in.again[w], fmt.Sprintf("Requests with the same correlation id and body created %d jobs.", n),
			"Repeat the submission with the Idempotency-Key of the first try: the service then returns the existing job.")
	}
}

// lookedUp checks that the client learns of a job although the response to its submission was lost.
func lookedUp(r *record, f *finding) {
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
		if !submits(x) || x.Arrived() || x.Made == "" || !r.reactionOver(x.End()) {
			return
		}
		y := about[x.Made].since(x)
		if y != nil && !y.Arrived() {
			return // the response to the repetition y was lost too; y is judged separately
		}
		if y == nil && again.next(scope{target: targetOf(x)}, x) != nil {
			return // the client is still trying
		}
		if y == nil && r.mayHaveShown(x.Made, x.Start, r.Now) {
			return
		}
		f.judge(y != nil, x, y, either(y != nil, "The client learned that job "+x.Made+" was created.",
			"The client never learned that job "+x.Made+" was created."),
			"Repeat the request with the same key, or check whether the job exists.")
	})
}

// correlated checks that each submission has a correlation id or a traceparent, and that different jobs have different correlation ids.
func correlated(r *record, f *finding) {
	type owner struct {
		era         int
		correlation string
	}
	owners := map[owner]*exchange{}
	r.each(func(x *exchange) {
		if !submits(x) || batch(x) { // a batch needs no correlation id, because its items may have their own
			return
		}
		at := owner{x.era, x.Correlation}
		switch other := owners[at]; {
		case x.Correlation == "" && x.Trace != "":
			f.pass(nil, x, "The client sent a traceparent.")
		case x.Correlation == "":
			f.fail(nil, x, "The client sent no X-Correlation-ID.", "Send an X-Correlation-ID with each submission.")
		case other != nil && other.Body != x.Body && x.Body != "":
			f.fail(other, x, "The client sent the X-Correlation-ID of another job.", "Send a different X-Correlation-ID for each job.")
		default:
			owners[at] = x
			f.pass(nil, x, "The client sent an X-Correlation-ID.")
		}
	})
}
