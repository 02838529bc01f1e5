package verdict

import (
	"fmt"
	"net/http"
	"time"
)

// A retry storm is a series of repetitions, each immediately after a failure.
const (
	AtOnce     = 50 * time.Millisecond // longest time after a failure in which a repetition counts as immediate
	StormAfter = 10                    // maximum number of requests in a series without a pause
)

// sameRequest identifies tries of one request. Without key and correlation id, requests with equal bodies count as tries of one request.
type sameRequest struct {
	era                        int
	method, path, query, keyID string
	body, key, correlation     string
}

func sameRequestOf(x *exchange) sameRequest {
	same := sameRequest{x.era, x.Method, x.Path, x.Query, x.KeyID, x.Body, x.Key, x.Correlation}
	if x.Correlation != "" {
		same.key = "" // a client may wrongly use a new key for each try
	}
	return same
}

// storms checks that the client does not keep repeating a request immediately after failures without Retry-After. Overlapping requests
// do not count, because several parts of the client may have sent them.
func storms(r *record, f *finding) {
	tries := newStreaks[sameRequest]() // series of tries, each immediately after a failure
	r.each(func(x *exchange) {
		at := sameRequestOf(x)
		switch now := tries.open[at]; {
		case now == nil:
		case resent(now.last, x):
			now.n--
		case !r.failedWithoutWait(now.last) || !atOnce(now.last, x):
			tries.end(at)
		}
		tries.add(at, x)
	})
	for _, s := range tries.all {
		if s.n > StormAfter {
			f.fail(s.first, s.last, fmt.Sprintf("The client sent the same request %d times in %.1f s, each time immediately after a failure.",
				s.n, s.last.Start.Sub(s.first.Start).Seconds()),
				"Wait longer before each further try, and give up in the end. RFC 9110, section 9.2.2: A client SHOULD NOT automatically "+
					"retry a failed automatic retry.")
		}
	}
}

func (r *record) failedWithoutWait(x *exchange) bool {
	switch {
	case x.Stream != nil || x.RetryAfter != nil:
		return false
	case !x.Arrived():
		return true
	case r.Standards && !safe(x) && x.Status != http.StatusUnauthorized:
		return x.Status >= 400
	}
	return x.Status == http.StatusTooManyRequests || x.Status >= 500
}

// resent reports whether the HTTP library of the client may have sent y on its own. Many libraries resend a request if a reused connection
// is closed before the response.
func resent(x, y *exchange) bool {
	return !x.Arrived() && x.Reused && x.Connection != y.Connection && y.Start.Sub(x.End()) < FollowWithin
}

// atOnce reports whether y came immediately after x. If the response was lost, the client may have noticed the loss at any time after
// the start of x. So the time counts from this start.
func atOnce(x, y *exchange) bool {
	from := x.End()
	if !x.Arrived() {
		from = x.Start
	}
	return y.Start.After(x.End()) && y.Start.Sub(from) < AtOnce
}
