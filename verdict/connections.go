package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"time"
)

// renewed: keys are replaced before they expire.
func renewed(r *record, f *finding) {
	refused := map[string]bool{}
	var whole group
	r.each(func(x *exchange) {
		if x.Arrived() && !x.Disturbed() {
			whole = append(whole, x)
		}
	})
	r.each(func(x *exchange) {
		expires := r.Expiries[x.KeyID]
		switch {
		case x.Expired && !x.Disturbed():
			if !refused[x.KeyID] {
				f.fail(nil, x, "A request with a key that had expired.", "To renew the key before.")
			}
			refused[x.KeyID] = true
		case !expires.IsZero() && expires.Before(r.Now) && x.KeyID != "":
			later := whole.after(x)
			i := sort.Search(len(later), func(i int) bool { return later[i].Start.After(expires) })
			if i == len(later) {
				return
			}
			if y := later[i]; y.KeyID != x.KeyID && y.Status != 401 && !refused[x.KeyID] {
				f.hold(x, y, "Another key took over before this one expired.")
			}
		}
	})
}

// secret: no key is part of a URL.
func secret(r *record, f *finding) {
	r.each(func(x *exchange) {
		f.judge(!x.KeyInURL, nil, x, either(x.KeyInURL, "The client sent its API key in the URL.", "The URL had no key."),
			"Send the key in a header: URLs are logged everywhere.")
	})
}

// reused: of many requests, not each has a connection of its own.
func reused(r *record, f *finding) {
	fresh, able := 0, 0
	var last *exchange
	var until time.Time // by which earlier exchanges were over
	gone := 0           // connections that were taken away
	r.each(func(x *exchange) {
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
		if f := x.Fault; f != nil && f.Disconnects() || x.HungUp || x.Status >= 400 && x.Code == "" {
			gone++ // these faults close the connection, and so may what is no answer of the service's own
		}
		if x.End().After(until) {
			until = x.End()
		}
	})
	if able < FewRequests {
		return
	}
	ok := fresh <= gone+able/2
	if last == nil {
		last = &r.exchanges[0]
	}
	f.judge(ok, nil, last, fmt.Sprintf("%d of %d requests, one after the other, came over a new connection.", fresh, able),
		"Connections that are kept: each new one costs a handshake, two with TLS.")
}

// followed: a request that has moved is sent again where it belongs.
func followed(r *record, f *finding) {
	type sent struct{ method, path, body string }
	bodies := indexed(r, func(x *exchange, add func(sent)) { add(sent{x.Method, x.Path, x.Body}) })
	all := indexed(r, func(x *exchange, add func(sent)) { add(sent{x.Method, x.Path, ""}) })
	r.each(func(x *exchange) {
		if x.Status != http.StatusPermanentRedirect || !x.Arrived() || !r.over(x.End()) {
			return
		}
		again := bodies[sent{x.Method, x.Path, x.Body}]
		if x.Body == "" {
			again = all[sent{x.Method, x.Path, ""}]
		}
		y := again.next(x)
		f.judge(y != nil, x, y, either(y != nil, "It was sent again.", "It was not sent again."),
			"The same request, with its method and body, to the address in Location.")
	})
}

// negotiated: what is sent and asked for is what the service has.
func negotiated(r *record, f *finding) {
	r.each(func(x *exchange) {
		if x.Disturbed() || x.Operation == "" {
			return
		}
		f.judge(!slices.Contains([]int{406, 415}, x.Status), nil, x, fmt.Sprintf("Content-Type: %q, Accept: %q.", x.ContentType, x.Accept),
			"Content-Type: application/json with a body, and an Accept header that leaves in what the operation answers, problem documents too.")
	})
}
