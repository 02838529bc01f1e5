package verdict

import (
	"cmp"
	"fmt"
	"net/http"
)

// content is what two requests have in common that ask for the same thing.
type content struct{ method, path, query, body string }

func contentOf(x *exchange) content { return content{x.Method, x.Path, x.Query, x.Body} }

// duplicates: a submission that the service accepted, and whose answer was lost, is not accepted a second time. It judges any POST, also
// of APIs whose jobs are not recognised: that two things were created is a fact.
func duplicates(r *record, f *finding) {
	posts := indexed(r, func(x *exchange, add func(content)) {
		if x.Method == http.MethodPost {
			add(contentOf(x))
		}
	})
	arrived := map[content]int{} // accepted ones whose answers the client has got: of two or more, each may be wanted
	lookups := group{}           // by which a client may find out: reads of jobs that it knows tell nothing
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
		var tries []group // which may be of the same submission
		if submits(x) {
			tries = submissions.resubmissions(scope{}, x)
		}
		if x.Body != "" && arrived[contentOf(x)] < 2 {
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
			f.hold(x, again, "The client sent the submission again, and the service returned the job that it had created.")
		case x.Key != "" && x.Key == again.Key:
			f.hold(x, again, "The retry has the Idempotency-Key of the first try.")
		case looked != nil && looked.End().Before(again.Start):
			return // the client may have found out that there is none
		case first != "" && second != "":
			f.fail(x, again, fmt.Sprintf("The client sent the same submission twice, and the service created two: %s and %s.", first, second),
				oneOfThem)
		case x.Status == http.StatusCreated && again.Status == http.StatusCreated:
			f.fail(x, again, "The client sent the same submission twice, and the service answered 201 Created to both.",
				oneOfThem)
		}
	})
}

// sameOrder reports whether two requests with equal bodies may be tries of one: other correlation ids say that they are not.
func sameOrder(x, y *exchange) bool {
	return x.Correlation == "" || y.Correlation == "" || x.Correlation == y.Correlation
}

const oneOfThem = "One of the two: send the Idempotency-Key of the first try with the retry, or look for the job before sending it again."

// accepted reports whether the service did what x asks for, whether or not the client got to know.
func accepted(x *exchange) bool {
	replaced := x.Fault != nil && x.Fault.Replaces() // the status is not from the service
	return x.Made != "" || !replaced && x.Status >= 200 && x.Status < 300
}
