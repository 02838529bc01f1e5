package fault

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Profile is a named, production-like set of rules.
type Profile string

// The profiles.
const (
	Default           Profile = "default"
	FlakyNetwork      Profile = "flaky-network"
	Overloaded        Profile = "overloaded"
	MaintenanceWindow Profile = "maintenance-window"
	SlowEverything    Profile = "slow-everything"
	Failover          Profile = "failover"

	DuplicateDeliveries Profile = "duplicate-deliveries"

	OddRetryAfter    Profile = "odd-retry-after"
	NewVersion       Profile = "new-version"
	Credentials      Profile = "credentials"
	Eventual         Profile = "eventual"
	StaleConnections Profile = "stale-connections"
	Moved            Profile = "moved"
	Outage           Profile = "outage"
)

// Profiles lists all profiles.
var Profiles = []Profile{
	Default, FlakyNetwork, Overloaded, MaintenanceWindow, SlowEverything, Failover, DuplicateDeliveries,
	OddRetryAfter, NewVersion, Credentials, Eventual, StaleConnections, Moved, Outage,
}

// MayGiveUp reports whether the profile refuses some requests permanently. A client may then give up and report the failure.
func (p Profile) MayGiveUp() bool {
	return slices.Contains([]Profile{OddRetryAfter, NewVersion, Credentials, Eventual, Outage}, p)
}

// API is what profiles need to know about an API.
type API struct {
	Operations map[Use][]string // operations by use, without Others and Deliveries
	Lists      []string         // lookups that show several jobs
	Full       string           // error code of a 503 from a full service
	Limited    string           // error code of a 429
	Expired    string           // error code of a 401 for an expired key
	Refuses    bool             // whether connections may be refused; false if that would affect other clients
	SeeOther   bool             // whether reads may be redirected with 303; false if a 303 may mean that the job ended
}

func (a API) use(operation string) Use {
	switch operation {
	case "":
		return AnyRequest
	case Delivery:
		return Deliveries
	}
	for use, operations := range a.Operations {
		if slices.Contains(operations, operation) {
			return use
		}
	}
	return Others
}

type plan struct {
	API
	*rand.Rand
	submissions, lookups, reads, outcomes, streams []string
}

var plans = map[Profile]func(*plan) []Rule{
	Default: (*plan).short, FlakyNetwork: (*plan).flakyNetwork, Overloaded: (*plan).overloaded,
	MaintenanceWindow: (*plan).maintenance, SlowEverything: (*plan).slow, Failover: (*plan).failover,
	DuplicateDeliveries: (*plan).deliveries, OddRetryAfter: (*plan).oddRetryAfter, NewVersion: (*plan).newVersion,
	Credentials: (*plan).credentials, Eventual: (*plan).eventual, StaleConnections: (*plan).staleConnections, Moved: (*plan).moved,
	Outage: (*plan).outage,
}

// Rules returns the rules of a profile. Most faults disturb one of the first requests of an operation, and `seed` often decides which one.
// Other faults occur at random, for a few seconds, or always.
func (p Profile) Rules(api API, seed int64) []Rule {
	draw, ok := plans[p]
	if !ok {
		return nil
	}
	lookups := api.Operations[Lookups]
	return draw(&plan{
		API: api, Rand: rand.New(rand.NewPCG(uint64(seed), 0)),
		submissions: api.Operations[Submissions], lookups: lookups, outcomes: api.Operations[Outcomes], streams: api.Operations[Streams],
		reads: slices.DeleteFunc(slices.Clone(lookups), func(name string) bool { return slices.Contains(api.Lists, name) }),
	})
}

// short causes one fault of each kind that is common in production. It takes at most half a minute.
func (p *plan) short() []Rule {
	lost, full := Effect{Close: AfterCommit}, Effect{Status: 503, Code: p.Full, RetryAfter: new(1)}
	limited, refused := Effect{Status: 429, Code: p.Limited, RetryAfter: new(2)}, Effect{Close: CloseBefore, Reset: true}
	odd := Effect{Unfinished: true, JobStatus: unknownState, Extensions: true}
	return slices.Concat(p.first(p.submissions, lost, full), p.first(p.lookups, limited, refused, odd, Effect{Moved: 307}),
		chainFrom(5, p.lookups, once(odd), once(full)), // odd comes first, so that at most two reads in a row fail
		p.first(p.outcomes, Effect{Close: CloseMidBody}), p.first(p.streams, Effect{CutAfter: new(1)}),
		p.first([]string{Delivery}, Effect{Tamper: TamperSignature, Repeat: 1}, Effect{Drop: true, Delay: Duration(time.Second)}))
}

func (p *plan) flakyNetwork() []Rule {
	lost, cut := Effect{Close: AfterCommit}, Effect{CutAfter: new(2)}
	refused, half := Effect{Close: CloseBefore, Reset: true}, Effect{Close: CloseMidBody}
	return slices.Concat(
		p.first(p.submissions, lost, refused), p.first(p.lookups, refused, half), p.first(p.outcomes, half),
		chain(p.streams, once(cut), once(Effect{CutAfter: new(0)})), random(p.streams, 0.3, cut), random(p.submissions, 0.08, lost),
		random(all, 0.05, refused), random(all, 0.03, half), random(all, 0.05, Effect{Delay: Duration(time.Second)}))
}

func (p *plan) overloaded() []Rule {
	full, limited := Effect{Status: 503, Code: p.Full, RetryAfter: new(1)}, Effect{Status: 429, Code: p.Limited, RetryAfter: new(2)}
	return slices.Concat(p.first(p.submissions, full, limited), p.first(p.lookups, full, limited),
		p.first(p.outcomes, limited), p.first(p.streams, limited), random(p.submissions, 0.15, full), random(all, 0.15, limited),
		random(all, 0.2, Effect{Delay: Duration(500 * time.Millisecond)}))
}

func (p *plan) maintenance() []Rule {
	cut := Effect{CutAfter: new(1)}
	return slices.Concat(p.first(p.streams, cut), random(p.streams, 0.5, cut), []Rule{
		{Match{Nth: 3}, Effect{HTML: true, Status: 503}},
		{Match{Nth: 2, Times: 2, For: Duration(8 * time.Second)}, Effect{Status: 503, RetryAfter: new(2)}},
	})
}

func (p *plan) slow() []Rule {
	stall := Effect{StallAfter: new(2)}
	return slices.Concat(p.first(p.streams, stall), random(p.streams, 0.2, stall),
		[]Rule{{Match{}, Effect{Delay: Duration(700 * time.Millisecond), SlowBytes: 4 << 10}}})
}

func (p *plan) failover() []Rule {
	half, down := Effect{HalfEventAfter: new(1)}, Effect{Close: CloseBefore, Reset: true}
	if p.Refuses {
		down.Refuse = Duration(2 * time.Second)
	}
	return slices.Concat(p.first(p.submissions, Effect{Close: AfterCommit}), p.first(p.streams, half), random(p.streams, 0.5, half), []Rule{
		{Match{Nth: 2, Times: 1, For: Duration(2 * time.Second)}, down},
		{Match{Nth: 2, Times: 2, For: Duration(4 * time.Second)}, Effect{Status: 503, RetryAfter: new(1)}},
	})
}

func (p *plan) deliveries() []Rule {
	tampers, operation := slices.Clone(Tampers), []string{Delivery}
	p.Shuffle(len(tampers), func(i, j int) { tampers[i], tampers[j] = tampers[j], tampers[i] })
	drop, late := Effect{Drop: true, Delay: Duration(time.Second)}, Effect{Delay: Duration(time.Second)}
	rules := p.first(operation, drop, Effect{Tamper: tampers[0], Repeat: 1, RotatedSecret: true},
		Effect{Tamper: tampers[1], Repeat: 1, Padding: 512 << 10, Delay: late.Delay})
	for n, t := range tampers[2:] {
		rules = append(rules, Rule{Match{Operation: Delivery, Nth: 4 + n}, Effect{Tamper: t, Repeat: 1}})
	}
	for _, t := range Tampers {
		rules = append(rules, random(operation, 0.05, Effect{Tamper: t, Repeat: 1})...)
	}
	return slices.Concat(rules, random(operation, 0.1, drop), random(operation, 0.1, late),
		random(operation, 0.1, Effect{RotatedSecret: true}), random(operation, 0.1, Effect{Repeat: 1}))
}
