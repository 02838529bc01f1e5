package fault

import (
	"slices"
	"time"
)

const (
	unknownState = "PONDERING"
	unknownType  = "https://example.com/problems/of-a-later-version"
)

// The empty name matches every operation except deliveries.
var all = []string{""}

type step struct {
	Effect
	window Match // which requests the fault disturbs; chainFrom sets Operation and Nth
}

func once(e Effect) step { return step{e, Match{Times: 1}} }

func lasting(d time.Duration, e Effect) step { return step{e, Match{Times: 1, For: Duration(d)}} }

// stuck returns a step that disturbs one request and its repetitions, at most the given number of times.
func stuck(times int, e Effect) step { return step{e, Match{Times: times, Same: true}} }

func chain(operations []string, steps ...step) []Rule { return chainFrom(1, operations, steps...) }

// From request number `later` on, a profile may refuse the requests of an operation permanently. By then, a client with one job has seen
// the job end.
const later = 7

func chainFrom(nth int, operations []string, steps ...step) (rules []Rule) {
	for _, operation := range operations {
		for n, s := range steps {
			m := s.window
			m.Operation, m.Nth = operation, nth+n
			rules = append(rules, Rule{m, s.Effect})
		}
	}
	return rules
}

func (p *plan) drawn(of func(Effect) step, effects ...Effect) (steps []step) {
	for _, n := range p.Perm(len(effects)) {
		steps = append(steps, of(effects[n]))
	}
	return steps
}

// first returns rules that disturb the first requests of each operation. Each effect disturbs one request; the order is random.
func (p *plan) first(operations []string, effects ...Effect) (rules []Rule) {
	for _, operation := range operations {
		order := p.Perm(len(effects))
		for n, e := range effects {
			rules = append(rules, Rule{Match{Operation: operation, Nth: order[n] + 1}, e})
		}
	}
	return rules
}

func always(operations []string, e Effect) (rules []Rule) {
	for _, operation := range operations {
		rules = append(rules, Rule{Match{Operation: operation}, e})
	}
	return rules
}

func random(operations []string, probability float64, e Effect) (rules []Rule) {
	for _, operation := range operations {
		rules = append(rules, Rule{Match{Operation: operation, Probability: probability}, e})
	}
	return rules
}

// oddRetryAfter sends refusals with odd forms of Retry-After. After an invalid Retry-After, requests are refused for one second, so an
// immediate retry fails too. Between refusals, responses show the job as unfinished. So a client with one job reads the job often enough
// to get all forms.
func (p *plan) oddRetryAfter() []Rule {
	refusal := func(status int, as RetryAfter, seconds int) Effect {
		return Effect{Status: status, RetryAfterAs: as, RetryAfter: new(seconds)}
	}
	var silent []step
	for _, n := range p.Perm(4) {
		as := []RetryAfter{AsGarbage, AsNegative, AsFraction, AsMissing}[n]
		silent = append(silent, lasting(time.Second, Effect{Status: 503, RetryAfterAs: as}))
	}
	seen := func(as RetryAfter, seconds int) step {
		return once(Effect{Unfinished: true, RetryAfterAs: as, RetryAfter: new(seconds)})
	}
	read := chain(p.reads, silent[0], seen(AsDate, 3), once(refusal(429, AsDate, 3)), seen("", 0),
		once(refusal(429, "", 61)), seen("", 2), silent[1], seen(AsTwoLines, 1), once(refusal(503, AsPast, 0)), seen("", 1), silent[2])
	return slices.Concat(read, chain(p.Lists, silent[1], seen(AsDate, 2), once(refusal(429, AsDate, 3))),
		chain(p.submissions, silent[3], once(Effect{RetryAfter: new(1)}), once(refusal(429, AsDate, 3)),
			once(Effect{RetryAfterAs: AsDate, RetryAfter: new(2)}), once(refusal(503, "", 0))))
}

// newVersion imitates a later version of the service: documents have additional members and lack optional ones.
func (p *plan) newVersion() []Rule {
	steps := p.drawn(once, Effect{Unfinished: true, JobStatus: unknownState}, Effect{Unfinished: true, Extensions: true, OmitOptional: true},
		Effect{Unfinished: true, Extensions: true, NullOptional: true},
		Effect{Status: 503, RetryAfter: new(1), ProblemType: unknownType, Extensions: true})
	end := step{Effect{OtherEnd: true}, Match{Times: 3, For: Duration(15 * time.Second), Same: true}}
	known := once(Effect{Status: 503, RetryAfter: new(1)}) // a known error, to see whether the client retries reads at all
	return slices.Concat(chain(p.lookups, append([]step{known}, steps...)...), chainFrom(later, p.lookups, end),
		p.first(p.outcomes, Effect{Extensions: true, NullOptional: true}),
		chain([]string{Delivery}, once(Effect{Extensions: true, JobStatus: unknownState})),
		always([]string{Delivery}, Effect{Extensions: true}), always(p.streams, Effect{ExtraEvents: true, Extensions: true}),
		random(all, 0.3, Effect{Extensions: true}))
}

func (p *plan) credentials() []Rule {
	expired, secondary := Effect{Status: 401, Code: p.Expired}, Effect{Status: 403, RetryAfter: new(2)}
	return slices.Concat(chain(p.lookups, once(expired), once(Effect{Unfinished: true}), once(secondary)),
		chainFrom(later, p.reads, stuck(40, expired)),
		chain(p.submissions, once(Effect{RetryAfter: new(1)}), once(secondary)))
}

// eventual imitates an eventually consistent API: accepted jobs appear late or never.
func (p *plan) eventual() []Rule {
	missing, gone, behind := Effect{Status: 404}, Effect{Status: 410}, Effect{Unfinished: true}
	lost := p.drawn(func(e Effect) step { return stuck(40, e) }, missing, gone)
	return slices.Concat(chain(p.reads, stuck(2, missing), once(behind)), chainFrom(later, p.reads, lost...),
		chain(p.Lists, once(behind), once(behind)), chain(p.outcomes, once(missing)),
		chain(p.submissions, once(Effect{RetryAfter: new(2)})))
}

// staleConnections causes dead connections that look usable, and responses that never end.
func (p *plan) staleConnections() []Rule {
	dead, half := Effect{NextRequest: CloseBefore, Reset: true}, Effect{NextRequest: CloseHalf}
	return slices.Concat(p.first(p.submissions, dead, half),
		p.first(p.reads, dead, half, Effect{Close: CloseStall}, Effect{Close: CloseNever}), p.first(p.Lists, dead, half),
		p.first(p.outcomes, Effect{Close: CloseMidBody, Reset: true}),
		chain(p.streams, once(Effect{StreamRetry: 10_000, CutAfter: new(1)})))
}

// moved redirects requests to the same address, to another host, and in a loop that ends after two seconds. Some reads are redirected with
// 303. If a 303 may mean in this API that a job ended, they are redirected with 307 instead.
func (p *plan) moved() []Rule {
	temporary, permanent, other := Effect{Moved: 307}, Effect{Moved: 308}, Effect{Moved: 303}
	if !p.SeeOther {
		other = temporary
	}
	kept, seen := p.drawn(once, temporary, permanent), p.drawn(once, temporary, permanent, other)
	circle := step{temporary, Match{Times: 1, For: Duration(2 * time.Second), Same: true}}
	return slices.Concat(chain(p.submissions, kept...),
		chain(p.lookups, append(seen, once(Effect{Unfinished: true}), once(Effect{Moved: 307, OtherHost: true}), circle)...),
		chain(p.outcomes, once(temporary)))
}

func (p *plan) outage() []Rule {
	return slices.Concat(
		chain(p.submissions, once(Effect{RetryAfter: new(1)}), stuck(15, Effect{Status: 500}),
			stuck(15, Effect{Close: CloseBefore, Reset: true})),
		chain(p.lookups, step{Effect{Status: 504}, Match{Times: 3, Same: true}}))
}
