package verdict

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

// renewed checks that keys are replaced before they expire.
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
				f.fail(nil, x, "The client sent a request with a key that had expired.", "Renew the key before it expires.")
			}
			refused[x.KeyID] = true
		case !expires.IsZero() && expires.Before(r.Now) && x.KeyID != "":
			later := whole.after(x)
			i := sort.Search(len(later), func(i int) bool { return later[i].Start.After(expires) })
			if i == len(later) {
				return
			}
			if y := later[i]; y.KeyID != x.KeyID && y.Status != 401 && !refused[x.KeyID] {
				f.hold(x, y, "The client used another key before this one expired.")
			}
		}
	})
}

// secret checks that no key is part of a URL.
func secret(r *record, f *finding) {
	r.each(func(x *exchange) {
		f.judge(!x.KeyInURL, nil, x, either(x.KeyInURL, "The client sent its API key in the URL.", "The URL had no key."),
			"Send the key in a header: URLs are logged everywhere.")
	})
}

// oneShots begin the User-Agent of programs that make one request and end.
var oneShots = regexp.MustCompile(`^(curl|Wget|HTTPie|xh|hurl|lwp-request|fetch libfetch|aria2)/|PowerShell/`)

// slow begin the User-Agent of programs that an interpreter or a virtual machine has to load.
var slow = regexp.MustCompile(`(?i)^(python|node|deno|bun|undici|axios|got |ruby|faraday|java|apache-httpclient|okhttp|php|guzzle|perl)`)

// closing begin the User-Agent of libraries that always ask to close the connection, also where a process makes one request and ends.
var closing = regexp.MustCompile(`^(Python-urllib|PHP|http\.rb|axios|node-fetch)/?`)

// startup is less than a new process with a User-Agent takes from its start to its first request.
func startup(agent string) time.Duration {
	if slow.MatchString(agent) {
		return 15 * time.Millisecond
	}
	return 3 * time.Millisecond
}

// caller is a part of a client that keeps connections, or should.
type caller struct {
	fresh, able int // requests over new connections, of those that could have used an old one
	unkept      int // of the fresh ones, those that ask to close theirs, or came sooner than a new process could send them
	gone        int // connections that were taken away
	last        *exchange
	until       time.Time // by which earlier exchanges were over
}

func (c *caller) add(x *exchange) {
	gap := x.Start.Sub(c.until)
	if x.Start.After(c.until) && gap < KeptFor { // others do not need the connection, or it may be closed by now
		c.able++
		if !x.Reused {
			c.fresh++
			c.last = x
			if gap < startup(x.Agent) || x.Closes && !closing.MatchString(x.Agent) {
				c.unkept++
			}
		}
	}
	if f := x.Fault; f != nil && f.Disconnects() || x.HungUp || x.Status >= 400 && x.Code == "" {
		c.gone++ // these faults close the connection, and so may what is no answer of the service's own
	}
	if x.End().After(c.until) {
		c.until = x.End()
	}
}

// reused checks that not each of many requests has a connection of its own. A script that starts a process for each request cannot keep
// connections: new ones only count if the client asked to close some, or needed some sooner than a process can start.
func reused(r *record, f *finding) {
	callers := map[string]*caller{}
	var order []*caller
	r.each(func(x *exchange) {
		if x.Stream != nil || oneShots.MatchString(x.Agent) { // has one for itself
			return
		}
		c := callers[x.Agent]
		if c == nil {
			c = &caller{}
			callers[x.Agent] = c
			order = append(order, c)
		}
		c.add(x)
	})
	for _, c := range order {
		ok := c.fresh <= c.gone+c.able/2
		if c.able < FewRequests || !ok && c.unkept < FewUnkept {
			continue
		}
		f.judge(ok, nil, cmp.Or(c.last, &r.exchanges[0]),
			fmt.Sprintf("%d of %d requests, one after the other, came over a new connection.", c.fresh, c.able),
			"Keep connections open: each new one costs a handshake, two with TLS.")
	}
}

// sent is what a request and the one that follows its redirect have in common. A query is part of it if the path stays the same.
type sent struct{ method, path, query, body, key, correlation, keyID, agent string }

func (s sent) on(path, query string, samePath bool) sent {
	if s.path = path; samePath {
		s.query = "?" + query
	}
	return s
}

func sentBy(x *exchange) sent {
	return sent{method: x.Method, path: x.Path, body: x.Body, key: x.Key, correlation: x.Correlation, keyID: x.KeyID, agent: x.Agent}
}

// redirected returns where a 308 led; false: elsewhere, or nowhere.
func (x *exchange) redirected() (path, query string, ok bool) {
	if x.Fault != nil && x.Fault.Moved != 0 {
		return x.Path, x.Query, true
	}
	path, query, _ = strings.Cut(x.Location, "?")
	return path, query, strings.HasPrefix(path, "/")
}

// followed checks that a request which was redirected by 308 is sent again, as it was, to the new address.
func followed(r *record, f *finding) {
	gets := indexed(r, func(x *exchange, add func(string)) {
		if x.Method == http.MethodGet || x.Method == http.MethodHead {
			add(x.Path)
		}
	})
	all := indexed(r, func(x *exchange, add func(sent)) {
		add(sentBy(x))
		add(sentBy(x).on(x.Path, x.Query, true))
	})
	used := map[sent]int{} // how many of these have followed a redirect
	r.each(func(x *exchange) {
		path, query, ok := x.redirected()
		if x.Status != http.StatusPermanentRedirect || !x.Arrived() || !r.over(x.End()) || !ok {
			return
		}
		const same = "Send the same request, with its method and body, to the address in Location."
		s := sentBy(x).on(path, query, path == x.Path)
		var y *exchange
		if n := max(used[s], len(all[s])-len(all[s].after(x))); n < len(all[s]) {
			y, used[s] = all[s][n], n+1
		}
		for _, z := range gets[path].after(x) {
			if z.Start.Sub(x.End()) >= FollowWithin || y != nil && y.place <= z.place {
				break
			}
			if x.lostMethod(z) {
				f.fail(x, z, "The client followed the redirect with GET: the method and the body were lost.", same)
				return
			}
		}
		if y != nil && y.Start.Sub(x.End()) >= FollowWithin && x.Key == "" && x.Correlation == "" {
			return // it may be another request that is equal
		}
		f.judge(y != nil, x, y, either(y != nil, "The client sent the request again, to the new address.",
			"The client did not send the request again."), same)
	})
}

// lostMethod reports whether z is x, which was redirected, without its method and body.
func (x *exchange) lostMethod(z *exchange) bool {
	if x.Method == http.MethodGet || x.Method == http.MethodHead || x.KeyID != z.KeyID || x.Agent != z.Agent {
		return false
	}
	return x.Key != "" && x.Key == z.Key || x.Connection == z.Connection || !z.Reused // others have connections in use
}

// negotiated checks that the service has the media types that the client sends and accepts.
func negotiated(r *record, f *finding) {
	r.each(func(x *exchange) {
		if x.Disturbed() || x.Operation == "" {
			return
		}
		f.judge(!slices.Contains([]int{406, 415}, x.Status), nil, x,
			fmt.Sprintf("The client sent Content-Type: %q and Accept: %q.", x.ContentType, x.Accept),
			"Send Content-Type: application/json with a body, and an Accept header that allows the operation's answers and problem documents.")
	})
}
