package testbed

import (
	"time"

	"github.com/forgerun/forgerun/job"
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

// Operations with a meaning for profiles.
const (
	opSubmit       = "submitJob"
	opJobEvents    = "jobEvents"
	opClientEvents = "clientEvents"
)

// Rules gives the rules of a profile that begins now.
func (p Profile) Rules(now time.Time) []Rule {
	switch p {
	case FlakyNetwork:
		return append(streams(0.3, Effect{CutAfter: new(2)}),
			random(opSubmit, 0.08, Effect{Close: AfterCommit}),
			random("", 0.05, Effect{Close: CloseBefore}),
			random("", 0.03, Effect{Close: CloseMidBody}),
			random("", 0.05, Effect{Delay: Duration(time.Second)}))
	case Overloaded:
		return []Rule{
			random(opSubmit, 0.15, Effect{Code: job.CodeQueueFull, RetryAfter: new(1)}),
			random("", 0.15, Effect{Code: job.CodeRateLimited, RetryAfter: new(2)}),
			random("", 0.2, Effect{Delay: Duration(500 * time.Millisecond)}),
		}
	case MaintenanceWindow:
		window := Match{From: after(now, 3*time.Second), Until: after(now, 11*time.Second)}
		odd := window
		odd.Every = 4
		return append(streams(0.5, Effect{CutAfter: new(1)}),
			Rule{odd, Effect{HTML: true, Status: 503}},
			Rule{window, Effect{Status: 503, RetryAfter: new(2)}})
	case SlowEverything:
		return append(streams(0.2, Effect{StallAfter: new(2)}),
			Rule{Match{}, Effect{Delay: Duration(700 * time.Millisecond), SlowBytes: 4 << 10}})
	case Failover:
		return append(streams(1, Effect{HalfEventAfter: new(1)})[:2:2],
			Rule{Match{From: after(now, 2*time.Second), Until: after(now, 4*time.Second)}, Effect{Close: CloseBefore}},
			Rule{Match{From: after(now, 4*time.Second), Until: after(now, 8*time.Second)}, Effect{Status: 503, RetryAfter: new(1)}},
			Rule{Match{Operation: opSubmit, Nth: 2}, Effect{Close: AfterCommit}})
	case DuplicateDeliveries:
		return deliveries()
	default:
		return nil
	}
}

// deliveries disturbs seven deliveries of ten.
func deliveries() (rules []Rule) {
	for _, t := range Tampers {
		rules = append(rules, random(Delivery, 0.06, Effect{Tamper: t}))
	}
	return append(rules,
		random(Delivery, 0.1, Effect{RotatedSecret: true}),
		random(Delivery, 0.15, Effect{Drop: true, Delay: Duration(time.Second)}),
		random(Delivery, 0.15, Effect{Delay: Duration(time.Second)}),
		random(Delivery, 0.05, Effect{Padding: 512 << 10}),
		random(Delivery, 0.5, Effect{Repeat: 1}))
}

// streams disturbs the event streams, of jobs and of clients.
func streams(probability float64, e Effect) []Rule {
	return []Rule{random(opJobEvents, probability, e), random(opClientEvents, probability, e)}
}

func random(operation string, probability float64, e Effect) Rule {
	return Rule{Match{Operation: operation, Probability: probability}, e}
}

func after(now time.Time, d time.Duration) *job.Time {
	at := now.Add(d)
	return job.TimeOf(&at)
}
