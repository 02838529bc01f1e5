package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// renewed: keys are replaced before they expire.
func renewed(r *Record, f *finding) {
	refused := map[string]bool{}
	r.each(func(x *Exchange, later []Exchange) {
		expires := r.Expiries[x.KeyID]
		switch {
		case x.Expired && !x.Disturbed():
			if !refused[x.KeyID] {
				f.fail(nil, x, "A request with a key that had expired.", "To renew the key before.")
			}
			refused[x.KeyID] = true
		case !expires.IsZero() && expires.Before(r.Now) && x.KeyID != "":
			y := next(x, later, func(y *Exchange) bool { return y.Start.After(expires) && y.Arrived() && !y.Disturbed() })
			if y != nil && y.KeyID != x.KeyID && y.Status != 401 && !refused[x.KeyID] {
				f.hold(x, y, "Another key took over before this one expired.")
			}
		}
	})
}

// secret: no key is part of a URL.
func secret(r *Record, f *finding) {
	r.each(func(x *Exchange, _ []Exchange) {
		f.judge(!x.KeyInURL, nil, x, either(x.KeyInURL, "The API key in the query of the URL.", "No key in the URL."),
			"Authorization: Bearer; URLs are logged everywhere.")
	})
}

// reused: of many requests, not each has a connection of its own.
func reused(r *Record, f *finding) {
	fresh, able := 0, 0
	var last *Exchange
	var until time.Time // by which earlier exchanges were over
	gone := 0           // connections that were taken away
	r.each(func(x *Exchange, _ []Exchange) {
		if x.Stream != nil || x.OneShot { // has one for itself
			return
		}
		if x.Start.After(until) && x.Start.Sub(until) < KeptFor { // others do not need the connection, or it may be closed by now
			able++
			if !x.Reused {
				fresh++
				last = x
			}
		}
		if f := x.Fault; f != nil && (f.Close != "" || f.SlowBytes > 0) || x.HungUp || x.Status >= 400 && x.Code == "" {
			gone++ // these faults close the connection, and so may what is no answer of the service's own
		}
		if x.End.After(until) {
			until = x.End
		}
	})
	if able < FewRequests {
		return
	}
	ok := fresh <= gone+able/2
	if last == nil {
		last = &r.Exchanges[0]
	}
	f.judge(ok, nil, last, fmt.Sprintf("%d of %d requests, one after the other, came over a new connection.", fresh, able),
		"Connections that are kept: each new one costs a handshake, two with TLS.")
}

// followed: a request that has moved is sent again where it belongs.
func followed(r *Record, f *finding) {
	r.each(func(x *Exchange, later []Exchange) {
		if x.Status != http.StatusPermanentRedirect || !x.Arrived() || !r.over(x.End) {
			return
		}
		y := next(x, later, func(y *Exchange) bool {
			return y.Method == x.Method && y.Path == x.Path && (y.Body == x.Body || x.Body == "")
		})
		f.judge(y != nil, x, y, either(y != nil, "It was sent again.", "It was not sent again."),
			"The same request, with its method and body, to the address in Location.")
	})
}

// negotiated: what is sent and asked for is what the service has.
func negotiated(r *Record, f *finding) {
	r.each(func(x *Exchange, _ []Exchange) {
		if x.Disturbed() || x.Operation == "" {
			return
		}
		f.judge(!slices.Contains([]int{406, 415}, x.Status), nil, x, fmt.Sprintf("Content-Type: %q, Accept: %q.", x.ContentType, x.Accept),
			"Content-Type: application/json with a body, and an Accept header that leaves in what the operation answers, problem documents too.")
	})
}
