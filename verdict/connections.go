package verdict

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"time"
)

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
				f.fail(nil, x, "The client sent a request with an expired API key.", "Renew the key before it expires.")
			}
			refused[x.KeyID] = true
		case !expires.IsZero() && expires.Before(r.Now) && x.KeyID != "":
			later := whole.after(x)
			i := sort.Search(len(later), func(i int) bool { return later[i].Start.After(expires) })
			if i == len(later) {
				return
			}
			if y := later[i]; y.KeyID != x.KeyID && y.Status != 401 && !refused[x.KeyID] {
				f.pass(x, y, "After this key expired, the client used another one.")
			}
		}
	})
}

func secret(r *record, f *finding) {
	r.each(func(x *exchange) {
		f.judge(!x.KeyInURL, nil, x, either(x.KeyInURL, "The client sent its API key in the URL.", "The URL contained no API key."),
			"Send the key in a header: URLs are logged everywhere.")
	})
}

// oneShotAgents matches the User-Agent of programs that send one request and exit.
var oneShotAgents = regexp.MustCompile(`^(curl|Wget|HTTPie|xh|hurl|lwp-request|fetch libfetch|aria2)/|PowerShell/`)

// slow matches the User-Agent of programs that need an interpreter or a virtual machine.
var slow = regexp.MustCompile(`(?i)^(python|node|deno|bun|undici|axios|got |ruby|faraday|java|apache-httpclient|okhttp|php|guzzle|perl)`)

// closingAgents matches the User-Agent of libraries that ask to close the connection by default.
var closingAgents = regexp.MustCompile(`^(Python-urllib|PHP|http\.rb|axios|node-fetch)/?`)

// minStartup returns the shortest time from a program's start to its first request.
func minStartup(agent string) time.Duration {
	if slow.MatchString(agent) {
		return 15 * time.Millisecond
	}
	return 3 * time.Millisecond
}

// caller counts the requests of one User-Agent.
type caller struct {
	fresh, able int // able: requests that could reuse a connection; fresh: able requests that used a new connection
	unkept      int // fresh requests that probably do not come from a new process
	gone        int // exchanges after which a fault, an intermediary or the client may have closed the connection
	last        *exchange
	until       time.Time // latest end of an earlier exchange
}

func (c *caller) add(x *exchange) {
	gap := x.Start.Sub(c.until)
	if x.Start.After(c.until) && gap < KeptFor { // a longer gap or an overlap explains a new connection
		c.able++
		if !x.Reused {
			c.fresh++
			c.last = x
			if gap < minStartup(x.Agent) || x.Closes && !closingAgents.MatchString(x.Agent) {
				c.unkept++
			}
		}
	}
	if f := x.Fault; f != nil && (f.Disconnects() || f.NextRequest != "" || f.OtherHost) || x.HungUp || x.Status >= 400 && x.Code == "" {
		c.gone++
	}
	if x.End().After(c.until) {
		c.until = x.End()
	}
}

// reused checks that the client reuses connections. A script that starts a process per request cannot keep connections open. So the client
// fails only if several new connections probably do not come from new processes.
func reused(r *record, f *finding) {
	callers := map[string]*caller{}
	var order []*caller
	r.each(func(x *exchange) {
		if x.Stream != nil || oneShotAgents.MatchString(x.Agent) { // streams and one-shot programs need their own connection
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
			fmt.Sprintf("%d of %d consecutive requests used a new connection.", c.fresh, c.able),
			"Keep connections open: each new connection costs a handshake, two with TLS.")
	}
}

func negotiated(r *record, f *finding) {
	r.each(func(x *exchange) {
		if x.Disturbed() || x.Operation == "" {
			return
		}
		f.judge(!slices.Contains([]int{406, 415}, x.Status), nil, x,
			fmt.Sprintf("The client sent Content-Type: %q and Accept: %q.", x.ContentType, x.Accept),
			"Send Content-Type: application/json with a body, and an Accept header that allows the operation's responses and problem documents.")
	})
}
