package verdict

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Limits for judging redirects.
const (
	MaxHops = 50 // number of redirects that common clients follow at most
	FewHops = 3  // number of redirects after which a client may assume a loop and stop
	// HopWithin is a short time after a redirect. A request within this time belongs to the same chain of redirects. A later request may
	// begin a new chain.
	HopWithin = 200 * time.Millisecond
)

// sent has the properties that a redirected request shares with the request that follows the redirect. `query` is set only for a redirect
// to the same path.
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

// redirected returns the target of a redirect that stays on the same host. `ok` is false for other responses.
func (x *exchange) redirected() (path, query string, ok bool) {
	switch {
	case !x.Arrived() || !slices.Contains(fault.Moves, x.Status) || x.otherHost() != "":
		return "", "", false
	case x.Fault != nil && x.Fault.Moved != 0:
		return x.Path, x.Query, !x.Fault.OtherHost
	}
	path, query, _ = strings.Cut(x.Location, "?")
	return path, query, strings.HasPrefix(path, "/")
}

var (
	kept307 = demand{Should, rfc9110 + "15.4.8", "The 307 (Temporary Redirect) status code indicates that the target resource resides " +
		"temporarily under a different URI and the user agent MUST NOT change the request method if it performs an automatic " +
		"redirection to that URI."}
	got303 = demand{Should, rfc9110 + "15.4.4", "A user agent can perform a retrieval request targeting that URI (a GET or HEAD request if " +
		"using HTTP), which might also be redirected, and present the eventual result as an answer to the original request."}
	noticed = demand{Should, rfc9110 + "15.4", `A client SHOULD detect and intervene in cyclical redirections (i.e., "infinite" ` +
		"redirection loops)."}
	movedBy = map[int]*demand{303: &got303, 307: &kept307}
)

// hops counts consecutive redirects that the client followed.
type hops struct {
	first *exchange
	n     int
	burst int // length of the latest series of redirects that were followed within HopWithin
}

// followed checks that the client repeats a redirected request at the new address. After 303, the client may only send a GET there.
// followed also checks that the client stops in a redirect loop.
func followed(r *record, f *finding) {
	gets := indexed(r, func(x *exchange, add func(string)) {
		if x.retrieves() {
			add(x.Path)
		}
	})
	all := indexed(r, func(x *exchange, add func(sent)) {
		add(sentBy(x))
		add(sentBy(x).on(x.Path, x.Query, true))
	})
	used := map[sent]int{} // how many of the first requests in all[s] cannot follow a further redirect
	rows := map[int]hops{} // key: journal line of a request; value: the redirects before it
	r.each(func(x *exchange) {
		path, query, ok := x.redirected()
		if !ok || !r.reactionOver(x.End()) {
			return
		}
		s := sentBy(x).on(path, query, path == x.Path)
		var y *exchange
		if n := max(used[s], len(all[s])-len(all[s].after(x))); n < len(all[s]) {
			y, used[s] = all[s][n], n+1
		}
		row := rows[x.place]
		if y != nil && y.Start.Sub(x.End()) < FollowWithin {
			delete(rows, x.place)
			next := hops{cmp.Or(row.first, x), row.n + 1, row.burst + 1}
			if y.Start.Sub(x.End()) >= HopWithin && row.burst < MaxHops { // the client may have given up, and y may begin a new chain
				next.first, next.burst = y, 0
			}
			rows[y.place] = next
		}
		x.follow(f, y, x.getInsteadOf(gets[path], y), row.n)
	})
	r.each(func(x *exchange) {
		if row := rows[x.place]; row.burst > MaxHops {
			f.failBy(&noticed, row.first, x, fmt.Sprintf("The client followed %d redirects in a row for one request.", row.burst),
				"Detect the loop: return an error after 20 redirects, for example.")
		}
	})
}

// follow judges the requests after the redirect x. `y` repeats x at the new address, and `z` is a GET to the new address in place of x. `y`
// and `z` may be nil. `hops` is the number of consecutive redirects before x.
func (x *exchange) follow(f *finding, y, z *exchange, hops int) {
	expected := "Send the same request, with its method and body, to the address in Location."
	if x.Status == http.StatusSeeOther {
		expected = "Read the address in Location with GET."
	}
	in := y != nil && y.Start.Sub(x.End()) < FollowWithin
	switch {
	case x.Status == http.StatusSeeOther && !x.retrieves():
		if z != nil {
			f.pass(x, z, "The client read the address in Location with GET.")
		} else if in {
			f.failBy(&got303, x, y, fmt.Sprintf("The client followed a 303 redirect with %s, which repeated the request.", x.Method), expected)
		}
	case z != nil:
		f.failBy(movedBy[x.Status], x, z, "The client followed the redirect with GET: the method and the body were lost.", expected)
	case y == nil && (hops >= FewHops || x.Status == http.StatusSeeOther && (x.Fault == nil || x.Fault.Moved == 0)):
		// Not judged: the client stopped in a redirect loop, or did not need the target of a 303 that the service sent.
	case y == nil:
		f.failBy(movedBy[x.Status], x, y, "The client did not repeat the request at the new address.", expected)
	case !in && x.Key == "" && x.Correlation == "":
		// Not judged: y comes late and may be a new request.
	default:
		f.pass(x, y, "The client repeated the request at the new address.")
	}
}

// getInsteadOf returns a GET that the client sent to the new address in place of x. It returns nil if the client repeated x (as y) before
// such a GET.
func (x *exchange) getInsteadOf(gets group, y *exchange) *exchange {
	for _, z := range gets.after(x) {
		if z.Start.Sub(x.End()) >= FollowWithin || y != nil && y.place <= z.place {
			break
		}
		if x.mayReplace(z) {
			return z
		}
	}
	return nil
}

func (x *exchange) retrieves() bool { return x.Method == http.MethodGet || x.Method == http.MethodHead }

// mayReplace reports whether the client may have sent the GET z in place of the redirected request x.
func (x *exchange) mayReplace(z *exchange) bool {
	if x.retrieves() || x.KeyID != z.KeyID || x.Agent != z.Agent {
		return false
	}
	return x.Key != "" && x.Key == z.Key || x.Connection == z.Connection || !z.Reused // on another reused connection, z may be unrelated
}

// otherHost returns the host that a redirect to another host leads to, or "" for other responses.
func (x *exchange) otherHost() string {
	to, err := url.Parse(x.Location)
	if err != nil || x.Host == "" || x.Status/100 != 3 || !x.Arrived() || strings.EqualFold(to.Host, x.Host) {
		return ""
	}
	return strings.ToLower(to.Host)
}

// keySentElsewhere checks that a client does not send its API key to another host after a redirect. Hosts to which the client sent a key
// before the redirect are allowed.
func keySentElsewhere(r *record, f *finding) {
	ownHosts, ownKeys := map[string]bool{}, map[string]bool{} // hosts to which the client sent a key without a redirect, and these keys
	redirectedTo := map[string]*exchange{}                    // first redirect to each foreign host
	r.each(func(x *exchange) {
		host := strings.ToLower(x.Host)
		before := redirectedTo[host]
		if before == nil && x.KeyID != "" {
			ownHosts[host], ownKeys[x.KeyID] = true, true
		}
		if to := x.otherHost(); to != "" && redirectedTo[to] == nil && x.KeyID != "" && !ownHosts[to] {
			redirectedTo[to] = x
		}
		switch {
		case before == nil || !x.Start.After(before.End()):
		case ownKeys[x.KeyID]:
			f.fail(before, x, "The client followed a redirect from "+before.Host+" and sent its key to "+x.Host+".",
				"Do not send the key when a redirect leads to another host.")
		case x.KeyID == "":
			f.pass(before, x, "The client followed the redirect to another host without its key.")
		}
	})
	asked := indexed(r, func(x *exchange, add func(string)) { add(strings.ToLower(x.Host)) })
	r.each(func(x *exchange) {
		to := x.otherHost()
		// Requests to the other host are recorded only if a fault caused the redirect. Otherwise, a missing request proves nothing.
		if to == "" || redirectedTo[to] == nil || !x.Disturbed() || asked[to].next(x) != nil {
			return
		}
		if y := asked[strings.ToLower(x.Host)].next(x); y != nil {
			f.pass(x, y, "The client continued without following the redirect to another host.")
		}
	})
}
