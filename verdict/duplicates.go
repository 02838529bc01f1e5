package verdict

import (
	"cmp"
	"fmt"
	"net/http"
)

type content struct{ method, path, query, body string }

func contentOf(x *exchange) content { return content{x.Method, x.Path, x.Query, x.Body} }

// duplicates checks that the client does not create a second job after the response to a submission was lost. It judges all POSTs, because
// two created resources of any kind prove the mistake.
func duplicates(r *record, f *finding) {
	posts := indexed(r, func(x *exchange, add func(content)) {
		if x.Method == http.MethodPost {
			add(contentOf(x))
		}
	})
	arrived := map[content]int{} // number of accepted POSTs that got a response, by content
	lookups := group{}           // reads without a job id; the client may use them to look for its job
	r.each(func(x *exchange) {
		switch {
		case x.Method == http.MethodPost && x.Arrived() && accepted(x):
			arrived[contentOf(x)]++
		case x.Method == http.MethodGet && x.Arrived() && x.Status < 500 && x.Stream == nil && x.Job == "":
			lookups = append(lookups, x)
		}
	})
	submissions := r.submissions()
	r.each(func(x *exchange) {
		if x.Method != http.MethodPost || x.Repeatable || x.Arrived() || !accepted(x) {
			return
		}
		var tries []group
		if submits(x) {
			tries = submissions.resubmissions(scope{}, x)
		}
		if x.Body != "" && arrived[contentOf(x)] < 2 { // two answered POSTs show that the client may want several equal jobs
			tries = append(tries, posts[contentOf(x)])
		}
		again := next(tries, x)
		for again != nil && !(accepted(again) && sameOrder(x, again)) {
			again = next(tries, again)
		}
		if again == nil {
			return
		}
		first, second := cmp.Or(x.Made, x.Created), cmp.Or(again.Made, again.Created)
		switch looked := lookups.next(x); {
		case first != "" && first == second:
			f.pass(x, again, "The client repeated the submission, and the service returned the existing job.")
		case x.Key != "" && x.Key == again.Key:
			f.pass(x, again, "The retry has the Idempotency-Key of the first try.")
		case looked != nil && looked.End().Before(again.Start):
			return // no mistake: the client looked first and may have found no job
		case first != "" && second != "":
			f.fail(x, again, fmt.Sprintf("The client sent the same submission twice, and the service created two jobs: %s and %s.", first, second),
				fixDuplicate)
		case x.Status == http.StatusCreated && again.Status == http.StatusCreated:
			f.fail(x, again, "The client sent the same submission twice, and the service answered 201 Created to both.",
				fixDuplicate)
		}
	})
}

// Requests with different correlation ids are not tries of one submission.
func sameOrder(x, y *exchange) bool {
	return x.Correlation == "" || y.Correlation == "" || x.Correlation == y.Correlation
}

const fixDuplicate = "Send the Idempotency-Key of the first try with the retry, or check whether the job exists before you retry."

// accepted reports whether the service accepted x, even if the client did not learn of it.
func accepted(x *exchange) bool {
	replaced := x.Fault != nil && x.Fault.Replaces()
	return x.Made != "" || !replaced && x.Status >= 200 && x.Status < 300
}
