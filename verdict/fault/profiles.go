package fault

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Profile is a production-like set of rules that has one name.
type Profile string

// The profiles.
const (
	FlakyNetwork      Profile = "flaky-network"
	Overloaded        Profile = "overloaded"
	MaintenanceWindow Profile = "maintenance-window"
	SlowEverything    Profile = "slow-everything"
	Failover          Profile = "failover"

	DuplicateDeliveries Profile = "duplicate-deliveries"
)

// Profiles are all profiles.
var Profiles = []Profile{FlakyNetwork, Overloaded, MaintenanceWindow, SlowEverything, Failover, DuplicateDeliveries}

// API is what profiles need to know of one.
type API struct {
	Operations map[Use][]string // that are used for something; none of Others and Deliveries
	Full       string           // the code of a 503 that says that no more jobs are taken
	Limited    string           // the code of a 429
	Refuses    bool             // connections may be refused: nobody else's are, as they would be on a service of many clients
}

// use gives what an operation of a rule is used for.
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

// Rules gives the rules of a profile. Each fault that it is about comes at one of the first uses of its operation, whatever the seed,
// which decides at which one. Further ones come as often as the probability says, or for as long as a window lasts, which begins with
// the client's own requests.
func (p Profile) Rules(api API, seed int64) []Rule {
	submissions, lookups := api.Operations[Submissions], api.Operations[Lookups]
	outcomes, streams := api.Operations[Outcomes], api.Operations[Streams]
	d := deal{rand.New(rand.NewPCG(uint64(seed), 0))}
	switch p {
	case FlakyNetwork:
		lost, cut := Effect{Close: AfterCommit}, Effect{CutAfter: new(2)}
		refused, half := Effect{Close: CloseBefore, Reset: true}, Effect{Close: CloseMidBody}
		return slices.Concat(
			d.first(submissions, lost, refused), d.first(lookups, refused, half), d.first(outcomes, half), d.first(streams, cut),
			random(streams, 0.3, cut), random(submissions, 0.08, lost),
			random(all, 0.05, refused), random(all, 0.03, half), random(all, 0.05, Effect{Delay: Duration(time.Second)}))
	case Overloaded:
		full, limited := Effect{Status: 503, Code: api.Full, RetryAfter: new(1)}, Effect{Status: 429, Code: api.Limited, RetryAfter: new(2)}
		return slices.Concat(d.first(submissions, full, limited), d.first(lookups, limited), d.first(outcomes, limited),
			random(submissions, 0.15, full), random(all, 0.15, limited), random(all, 0.2, Effect{Delay: Duration(500 * time.Millisecond)}))
	case MaintenanceWindow:
		cut := Effect{CutAfter: new(1)}
		return slices.Concat(d.first(streams, cut), random(streams, 0.5, cut), []Rule{
			{Match{Nth: 3}, Effect{HTML: true, Status: 503}},
			{Match{Nth: 2, Times: 2, For: Duration(8 * time.Second)}, Effect{Status: 503, RetryAfter: new(2)}},
		})
	case SlowEverything:
		stall := Effect{StallAfter: new(2)}
		return slices.Concat(d.first(streams, stall), random(streams, 0.2, stall),
			[]Rule{{Match{}, Effect{Delay: Duration(700 * time.Millisecond), SlowBytes: 4 << 10}}})
	case Failover:
		half, down := Effect{HalfEventAfter: new(1)}, Effect{Close: CloseBefore, Reset: true}
		if api.Refuses {
			down.Refuse = Duration(2 * time.Second)
		}
		return slices.Concat(d.first(submissions, Effect{Close: AfterCommit}), d.first(streams, half), random(streams, 0.5, half), []Rule{
			{Match{Nth: 2, Times: 1, For: Duration(2 * time.Second)}, down},
			{Match{Nth: 2, Times: 2, For: Duration(4 * time.Second)}, Effect{Status: 503, RetryAfter: new(1)}},
		})
	case DuplicateDeliveries:
		return d.deliveries()
	default:
		return nil
	}
}

// all are all operations but deliveries.
var all = []string{""}

// deal draws in which order faults come.
type deal struct{ *rand.Rand }

// first gives each operation the effects at its first uses, in an order that is drawn.
func (d deal) first(operations []string, effects ...Effect) (rules []Rule) {
	for _, operation := range operations {
		order := d.Perm(len(effects))
		for n, e := range effects {
			rules = append(rules, Rule{Match{Operation: operation, Nth: order[n] + 1}, e})
		}
	}
	return rules
}

// deliveries disturbs the first three deliveries in each way, forges the next ones in the other ways, and disturbs half of the others.
func (d deal) deliveries() []Rule {
	tampers, operation := slices.Clone(Tampers), []string{Delivery}
	d.Shuffle(len(tampers), func(i, j int) { tampers[i], tampers[j] = tampers[j], tampers[i] })
	drop, late := Effect{Drop: true, Delay: Duration(time.Second)}, Effect{Delay: Duration(time.Second)}
	rules := d.first(operation, drop, Effect{Tamper: tampers[0], Repeat: 1, RotatedSecret: true},
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

func random(operations []string, probability float64, e Effect) (rules []Rule) {
	for _, operation := range operations {
		rules = append(rules, Rule{Match{Operation: operation, Probability: probability}, e})
	}
	return rules
}
