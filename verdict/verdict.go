// Package verdict judges the recorded traffic of a client. For each rule, it reports whether the client kept the rule, with evidence. In
// doubt it decides for the client. A response that may be lost counts as lost. The order of simultaneous requests counts as unknown. A
// rule without enough evidence counts as not tested.
package verdict

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Limits that the rules use.
const (
	Tolerance    = 100 * time.Millisecond // how much earlier than required a client may send a request
	LearnWithin  = time.Minute            // time to learn that a job ended or, after a lost response, that the job exists
	AnswerWithin = 10 * time.Second       // time to answer a delivery
	// StandardAnswerWithin replaces AnswerWithin for other APIs. It is the shortest timeout that Standard Webhooks recommends to senders.
	StandardAnswerWithin = 15 * time.Second
	WaitAtMost           = 30 * time.Second      // longest time that a client may wait for a response
	MaxRereads           = 2                     // maximum number of further reads of an ended job, and of tries of a refused request
	KeptFor              = 4 * time.Second       // shortest time for which common clients keep idle connections
	FewRequests          = 10                    // minimum number of requests for judging connections
	FewUnkept            = 3                     // number of new connections that prove a mistake, if no new process can have opened them
	Pause                = 50 * time.Millisecond // if two reads start less than this apart, the client did not pause
	FewUnpaused          = 50                    // number of consecutive reads without a pause that prove a mistake
	FollowWithin         = time.Second           // time within which an HTTP library follows a redirect
	ListEvery            = time.Second           // shortest interval of polling a list
	maxEvidence          = 5                     // pieces of evidence per rule
)

// Record is the recorded traffic of a session.
type Record struct {
	Session  Session
	API      fault.API
	Log      *Log
	Runs     []Run
	Groups   map[string]time.Time // ends of batches and bulk operations
	Attempts []Attempt            // delivery attempts, sorted by start
	Expiries map[string]time.Time // when the client's API keys expire, by key id
	Now      time.Time
	// Submits reports whether requests with a method and path submit jobs. If Submits is nil, the role of a request decides.
	Submits func(method, path string) bool
	// Guess is a description of the API, guessed from the traffic; nil if no request looks like a submission.
	Guess *Guess
	// States are the latest states of jobs that are not known to be final.
	States []string
	// Elsewhere is set if clients may also learn of the end of jobs in ways that are not recorded.
	Elsewhere bool
	// Standards is set if the API is not ForgeRun's. The rules then demand only what standards demand.
	Standards bool
}

type rule struct {
	id, title string
	demand    demand // demand on clients of our API
	standard  demand // demand on clients of other APIs; if empty, `demand` applies to these clients too
	exercise  string
	foreign   string          // exercise for clients of other APIs; if empty, `exercise` applies to these clients too
	profiles  []fault.Profile // profiles with faults that test the rule; empty: every profile tests it
	untested  string          // why the rule was not tested, as a phrase
	fix       Fix
	check     func(*record, *finding)
}

type demand struct {
	level Level
	see   string // source
	quote string // cited sentence
}

// demanded returns the demand on clients of our API or, if `standards` is true, of other APIs.
func (r rule) demanded(standards bool) demand {
	if standards && r.standard.see != "" {
		return r.standard
	}
	return r.demand
}

// advice returns how to exercise the rule in a session with a profile. If this profile does not test the rule, advice names profiles
// that do. If `standards` is true, the advice is for clients of other APIs.
func (r rule) advice(p fault.Profile, standards bool) string {
	text := r.exercise
	if standards {
		text = cmp.Or(r.foreign, text)
	}
	if len(r.profiles) == 0 || slices.Contains(r.profiles, p) {
		return text + "."
	}
	names := make([]string, len(r.profiles))
	for i, name := range r.profiles {
		names[i] = string(name)
	}
	last := len(names) - 1
	return text + ", with the profile " + strings.TrimPrefix(strings.Join(names[:last], ", ")+" or ", " or ") + names[last] + "."
}

// IDs returns the ids of all rules, in the order of rules.txt.
func IDs() []string {
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.id
	}
	return ids
}

// StandardIDs returns the ids of the rules that apply to clients of any API.
func StandardIDs() (ids []string) {
	for _, r := range rules {
		if r.demanded(true).see != client {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// Of judges the exchanges that the record has so far. The caller must not change the record afterwards, except that its Log may grow.
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
	if r.Standards { // Session.Recorded includes delivery attempts, so Judged does too
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
	d := r.demanded(record.Standards)
	result := Result{
		Rule: r.id, Title: r.title, Level: d.level, Quote: d.quote, Status: OK, Times: f.times, Failures: f.failures,
		Evidence: f.passed, See: d.see, Fix: r.fix,
	}
	switch {
	case f.failures > 0:
		result.Status, result.Evidence = Fail.At(d.level), f.broken
		if f.cites != nil {
			result.See, result.Quote = f.cites.see, f.cites.quote
		}
	case f.times == 0, f.doubtful != "":
		result.Status, result.Evidence, result.Exercise = NotTested, []Evidence{}, r.advice(record.Session.Profile, record.Standards)
		result.Reason = cmp.Or(f.doubtful, record.untested(r))
	}
	return result
}

// reactionOver reports whether the client has had enough time to react to what happened at `since`.
func (r *record) reactionOver(since time.Time) bool {
	return r.Session.EndedAt != nil || r.Now.Sub(since) > LearnWithin
}

// waits reports whether a request asks for a long poll (Prefer: wait).
func waits(x *exchange) bool {
	for preference := range strings.SplitSeq(x.Prefer, ",") {
		if name, value, _ := strings.Cut(strings.TrimSpace(preference), "="); strings.EqualFold(name, "wait") && value != "0" {
			return true
		}
	}
	return false
}

func showsFinal(x *exchange, id string) bool { return x.Arrived() && slices.Contains(x.Final, id) }

// unanswered reports whether the client cannot tell from the response if the request had an effect.
func unanswered(x *exchange) bool {
	return !x.Arrived() || x.Status == http.StatusBadGateway || x.Status == http.StatusGatewayTimeout
}

// idempotent reports whether the request may be repeated. Either its method is idempotent (RFC 9110, section 9.2.2), or the API allows
// the repetition.
func idempotent(x *exchange) bool {
	return x.Repeatable || slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}, x.Method)
}

// safe reports whether the method is safe (RFC 9110, section 9.2.1). An idempotency key has no meaning for such a request.
func safe(x *exchange) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, x.Method)
}

func submits(x *exchange) bool { return x.Role == Submit || batch(x) }

func batch(x *exchange) bool { return x.Role == SubmitMany }

// requiredWait returns how long the Retry-After of x tells a client to wait. x must have a Retry-After.
func requiredWait(x *exchange) time.Duration { return time.Duration(*x.RetryAfter) * time.Second }
