// Package verdict judges the recorded traffic of a client: which rules it kept, which it broke, and the evidence. It gives the client the
// benefit of the doubt: answers that may have been lost count as lost, simultaneous requests prove nothing about each other, and a rule
// without enough evidence counts as not tested.
package verdict

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Limits of the rules.
const (
	Tolerance    = 100 * time.Millisecond // how early a client may come
	LearnWithin  = time.Minute            // to learn of a job's end, or of a lost answer
	AnswerWithin = 10 * time.Second       // to answer a delivery
	// StandardAnswerWithin is AnswerWithin for other APIs: the minimum that Standard Webhooks recommends.
	StandardAnswerWithin = 15 * time.Second
	WaitAtMost           = 30 * time.Second // longest wait for an answer
	MaxRereads           = 2                // reads of a job after the client saw it final
	KeptFor              = 4 * time.Second  // idle connections, by common clients
	FewRequests          = 10               // too few for a judgement of connections
	FewUnkept            = 3                // new connections that one process per request does not explain
	Pause                = 50 * time.Millisecond
	FewUnpaused          = 50          // reads without that pause
	FollowWithin         = time.Second // longest time in which an HTTP library follows a redirect
	ListEvery            = time.Second // shortest interval of polling a list
	maxEvidence          = 5           // per rule
)

// Record is the recorded traffic of a session.
type Record struct {
	Session  Session
	API      fault.API
	Log      *Log
	Runs     []Run
	Groups   map[string]time.Time // ends of batches and bulk operations
	Attempts []Attempt            // of deliveries, in order of their beginnings
	Expiries map[string]time.Time // of the client's expiring keys
	Now      time.Time
	// Submits reports whether requests with a method and path submit jobs. If it is nil, the role decides.
	Submits func(method, path string) bool
	// Guess is a description of the API, guessed from its traffic; nil if nothing in it looks like a submission.
	Guess *Guess
	// Elsewhere is set if clients may also learn of ends in ways that are not recorded.
	Elsewhere bool
	// Standards is set if the API is not ours: the rules then demand only what standards say.
	Standards bool
}

// rule is a demand on clients, and its check.
type rule struct {
	id, title string
	level     Level
	see       string          // source of the demand
	quote     string          // sentence with the demand
	standard  demand          // demand on clients of any API; empty if see is a standard itself, or if there is no such demand
	exercise  string          // how to exercise the rule
	profiles  []fault.Profile // profiles that exercise it; empty: any
	check     func(*record, *finding)
}

// demand is a sentence's demand on clients.
type demand struct {
	level      Level
	see, quote string
}

// demand returns the demand on clients of our API, or of any API.
func (r rule) demand(standards bool) demand {
	if standards && r.standard.see != "" {
		return r.standard
	}
	return demand{r.level, r.see, r.quote}
}

// advice returns how to exercise the rule, for a session with a profile or none.
func (r rule) advice(p fault.Profile) string {
	if len(r.profiles) == 0 || slices.Contains(r.profiles, p) {
		return r.exercise + "."
	}
	names := make([]string, len(r.profiles))
	for i, name := range r.profiles {
		names[i] = string(name)
	}
	last := len(names) - 1
	return r.exercise + ", with the profile " + strings.TrimPrefix(strings.Join(names[:last], ", ")+" or ", " or ") + names[last] + "."
}

// IDs returns the ids of all rules, in order.
func IDs() []string {
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.id
	}
	return ids
}

// StandardIDs returns the ids of the rules for clients of any API, which a standard demands.
func StandardIDs() (ids []string) {
	for _, r := range rules {
		if r.demand(true).see != client {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// Rule describes a rule: the demand on clients, its source, and how to exercise it.
type Rule struct {
	ID, Title            string
	Level                Level
	See, Quote, Exercise string
}

// Rules returns all rules in order, for the clients of our API or of any.
func Rules(standards bool) []Rule {
	all := make([]Rule, len(rules))
	for i, r := range rules {
		d := r.demand(standards)
		all[i] = Rule{r.id, r.title, d.level, d.see, d.quote, r.advice("")}
	}
	return all
}

// Of judges a session so far. It takes ownership of the record, except for its Log.
func Of(all *Record) Verdict {
	r := &record{Record: *all, exchanges: make([]exchange, all.Log.Len())}
	for i := range r.exchanges {
		x := &r.exchanges[i]
		if x.kept = all.Log.kept[i]; x.Role == Submit && r.Submits != nil && !r.Submits(x.Method, x.Path) {
			x.kept = x.as("")
		}
	}
	slices.SortStableFunc(r.exchanges, func(x, y exchange) int { return x.Start.Compare(y.Start) })
	r.joinStreamRecords()
	counts := faults(r)
	r.exchanges = slices.DeleteFunc(r.exchanges, func(x exchange) bool {
		apart := x.Role == Delivery && x.Fault != nil
		if apart {
			r.sent = append(r.sent, x)
		}
		return apart
	})
	r.journal = newJournal(r)
	r.index()
	return of(r, counts)
}

func of(r *record, faults []fault.Count) Verdict {
	v := Verdict{
		Faults: faults, Session: r.Session, Results: []Result{}, journal: r.journal, Judged: len(r.exchanges) + len(r.sent),
		Counts: map[Status]int{OK: 0, Warn: 0, Fail: 0, NotTested: 0},
	}
	if r.Standards { // the proxy's record includes delivery attempts
		v.Judged += len(r.Attempts)
	}
	v.Faulty, v.First, v.Last = r.journal.faulty()
	for _, rule := range rules {
		if !slices.Contains(r.Session.Rules, rule.id) {
			continue
		}
		result := rule.result(r)
		v.Counts[result.Status]++
		v.Results = append(v.Results, result)
	}
	r.conclude(&v)
	return v
}

func (r rule) result(record *record) Result {
	var f finding
	r.check(record, &f)
	record.journal.note(r.id, f.broke)
	d := r.demand(record.Standards)
	result := Result{
		Rule: r.id, Title: r.title, Level: d.level, Quote: d.quote, Status: OK, Times: f.times, Failures: f.failures,
		Evidence: f.passed, See: d.see, Fix: guides[r.id].fix,
	}
	switch {
	case f.failures > 0:
		result.Status, result.Evidence = Fail.At(d.level), f.broken
		if f.cites != nil {
			result.See, result.Quote = f.cites.see, f.cites.quote
		}
	case f.times == 0, f.doubtful != "":
		result.Status, result.Evidence, result.Exercise = NotTested, []Evidence{}, r.advice(record.Session.Profile)
		result.Reason = cmp.Or(f.doubtful, record.untested(r.id))
	}
	return result
}

// reactionOver reports whether the client has had enough time to react since a moment.
func (r *record) reactionOver(since time.Time) bool {
	return r.Session.EndedAt != nil || r.Now.Sub(since) > LearnWithin
}

// waits reports whether a request is a long poll, which is answered once there is something new.
func waits(x *exchange) bool {
	for preference := range strings.SplitSeq(x.Prefer, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(preference), "="); strings.EqualFold(name, "wait") && value != "0" {
			return true
		}
	}
	return false
}

// showsFinal reports whether the client saw the job in a final state.
func showsFinal(x *exchange, id string) bool { return x.Arrived() && slices.Contains(x.Final, id) }

// unanswered reports whether the answer leaves the client uncertain if the request had an effect.
func unanswered(x *exchange) bool {
	return !x.Arrived() || x.Status == http.StatusBadGateway || x.Status == http.StatusGatewayTimeout
}

// idempotent reports whether the request may be repeated because of its method (RFC 9110, section 9.2.2) or its API.
func idempotent(x *exchange) bool {
	return x.Repeatable || slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}, x.Method)
}

// safe reports whether the request changes nothing. Keys have no meaning for it.
func safe(x *exchange) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, x.Method)
}

// submits reports whether x submits one or more jobs.
func submits(x *exchange) bool { return x.Role == Submit || batch(x) }

// batch reports whether x submits several jobs.
func batch(x *exchange) bool { return x.Role == SubmitMany }

// requiredWait returns how long an answer tells a client to wait.
func requiredWait(x *exchange) time.Duration { return time.Duration(*x.RetryAfter) * time.Second }
