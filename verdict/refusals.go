package verdict

import (
	"fmt"
	"net/http"
	"slices"
)

// Limits of repeated attempts.
const (
	MaxTries    = 10 // maximum number of tries of a failing request, and of reads of a missing job
	MaxRenewals = 3  // maximum number of consecutive new API keys that are refused
)

// streak is a series of equal requests with the same result. Other requests may be in between.
type streak struct {
	first, last *exchange
	n           int
	ended       bool // a different response ended the series
}

type streaks[K comparable] struct {
	open map[K]*streak
	all  []*streak
}

func newStreaks[K comparable]() *streaks[K] { return &streaks[K]{open: map[K]*streak{}} }

func (s *streaks[K]) add(at K, x *exchange) {
	now := s.open[at]
	if now == nil {
		now = &streak{first: x}
		s.open[at] = now
		s.all = append(s.all, now)
	}
	now.last = x
	now.n++
}

func (s *streaks[K]) end(at K) {
	if now := s.open[at]; now != nil {
		now.ended = true
		delete(s.open, at)
	}
}

var (
	unauthorized = demand{Should, rfc9110 + "15.5.2", "If the 401 response contains the same challenge as the prior response, and the user " +
		"agent has already attempted authentication at least once, then the user agent SHOULD present the enclosed representation to the " +
		"user, since it usually contains relevant diagnostic information."}
	gone = demand{Should, rfc9110 + "15.5.11", "The 410 (Gone) status code indicates that access to the target resource is no longer " +
		"available at the origin server and that this condition is likely to be permanent."}
	notFound       = demand{Should, client, "A client should give up on a job after ten reads that return 404."}
	notFoundForAny = demand{Should, judging, "A client should give up on a job after ten reads that return 404."}
)

// repeatedRefusals checks that the client does not keep repeating a refused request with the same API key.
func repeatedRefusals(r *record, f *finding) {
	type request struct {
		era                              int
		method, path, query, body, keyID string
	}
	refused := newStreaks[request]()
	r.each(func(x *exchange) {
		at := request{x.era, x.Method, x.Path, x.Query, x.Body, x.KeyID}
		if x.Body == "" { // without a hash of the body, the idempotency key and the correlation id distinguish requests
			at.body = x.Key + " " + x.Correlation
		}
		switch {
		case refusal(x) && (!r.Standards || x.Status == 401 && x.KeyID != "" || x.Status == 403 || x.Status == 410):
			refused.add(at, x)
		case x.Arrived() && !failed(x):
			refused.end(at)
		}
	})
	for _, s := range refused.all {
		found := fmt.Sprintf("The client sent the refused request %s.", times(s.n))
		cites := either(r.Standards, map[int]*demand{401: &unauthorized, 410: &gone}, nil)[s.last.Status]
		switch {
		case s.n <= MaxRereads:
			f.pass(s.first, s.last, found)
		case s.last.Status == http.StatusUnauthorized:
			f.failBy(cites, s.first, s.last, found,
				"Try once more, with a new key if you have one. Then give up, and report that the key is refused.")
		default:
			f.failBy(cites, s.first, s.last, found, "Correct the request: the service would refuse the same request again.")
		}
	}
}

// rereadsMissing checks that the client does not keep reading a submitted job that is not found. A 404 for a result does not count,
// because the result may appear later.
func rereadsMissing(r *record, f *finding) {
	known, missing := r.knownJobs(), newStreaks[place]()
	r.each(func(x *exchange) {
		if x.Role != Read && x.Role != Outcome || known[x.Job] == nil || !x.Arrived() {
			return
		}
		switch at := r.placeOf(x); {
		case x.Status == http.StatusNotFound && (x.Role == Read || x.Disturbed()):
			missing.add(at, x)
		case !failed(x):
			missing.end(at)
		}
	})
	for _, s := range missing.all {
		switch {
		case s.n > MaxTries:
			f.failBy(either(r.Standards, &notFoundForAny, &notFound), s.first, s.last,
				fmt.Sprintf("The client read the job %d times in a row, and it was never found.", s.n),
				fmt.Sprintf("A job may become visible late, so read it again. Give up after %d reads, and report it.", MaxTries))
		case s.ended || s.n > MaxRereads:
			f.pass(s.first, s.last, fmt.Sprintf("The client read the job %s while it was not found.", times(s.n)))
		}
	}
}

// renewals lists the operations of our API that create a new API key.
var renewals = []string{"createKey", "renewKey"}

// uselessRenewals checks that a client stops renewing its API key if new keys are refused too. It blames only clients of our API. With
// other APIs, the keys may belong to several users.
func uselessRenewals(r *record, f *finding) {
	type row struct {
		first   *exchange
		seen, n int
		keyID   string
	}
	rows, made := map[target]*row{}, 0
	r.each(func(x *exchange) {
		at := targetOf(x)
		w := rows[at]
		switch {
		case !x.Arrived():
		case slices.Contains(renewals, x.Operation):
			made++
		case x.Status != http.StatusUnauthorized:
			delete(rows, at)
		case w == nil:
			rows[at] = &row{first: x, seen: made, keyID: x.KeyID}
		case made > w.seen || r.Standards && x.KeyID != w.keyID:
			w.seen, w.keyID = made, x.KeyID
			if w.n++; w.n != MaxRenewals+1 {
				return
			}
			if r.Standards {
				f.doubt("a request was refused with several API keys, which may belong to different users")
				return
			}
			f.fail(w.first, x, fmt.Sprintf("The client created %d new keys in a row, and the request was refused with each of them.", w.n),
				"Renew the key once. If the request is still refused, give up, and report it.")
		}
	})
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// refusal reports whether the response refuses the request permanently. A 403 with Retry-After does not count, because it is a rate
// limit.
func refusal(x *exchange) bool {
	if !x.Arrived() || x.Stream != nil {
		return false
	}
	switch x.Status {
	case http.StatusForbidden:
		return x.RetryAfter == nil
	case 400, 401, 405, 406, 410, 413, 415, 422:
		return true
	}
	return false
}

// effort identifies the tries of one request.
type effort struct {
	era                                       int
	method, path, query, key, correlate, body string
}

// effortOf returns the effort of x. `ok` is false for reads, streams and resets. It is also false if x may be a new request with equal
// content.
func (r *record) effortOf(x *exchange) (at effort, ok bool) {
	at = effort{era: x.era, method: x.Method, path: x.Path, query: x.Query}
	switch {
	case safe(x) || x.Stream != nil || x.Role == Reset:
		return at, false
	case x.Key != "" && (r.Standards || x.Correlation == "" || batch(x)):
		at.key = x.Key
	case x.Correlation != "" && !batch(x): // a client may wrongly change the key for each try, so prefer the correlation id
		at.correlate, at.body = x.Correlation, x.Body
	case batch(x) && x.Body != "", !submits(x) && x.Job != "":
		at.body = x.Body
	default:
		return at, false
	}
	return at, true
}

// budget checks that a client gives up on a request that keeps failing. It skips reads, because polling may take long.
func budget(r *record, f *finding) {
	efforts := newStreaks[effort]()
	r.each(func(x *exchange) {
		at, ok := r.effortOf(x)
		switch {
		case !ok:
		case failed(x):
			if now := efforts.open[at]; now != nil && resent(now.last, x) {
				now.n--
			}
			efforts.add(at, x)
		default:
			efforts.end(at)
		}
	})
	for _, s := range efforts.all {
		switch {
		case s.n > MaxTries:
			f.fail(s.first, s.last, fmt.Sprintf("The client sent the same request %d times in a row, and none succeeded.", s.n),
				fmt.Sprintf("Give up on a request after %d tries, and report it. Retry in one layer only: "+
					"nested retries multiply.", MaxTries))
		case s.n > 1 && !s.ended && r.reactionOver(s.last.End()):
			f.pass(s.first, s.last, fmt.Sprintf("The client gave up on the request after %d tries.", s.n))
		}
	}
}
