package scenario

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// arrivals returns the send times of an open loop, and zeros for a closed one.
//
// A rate is the density of arrivals over time. An arrival is due each time the integral of the rate grows by a gap: 1 for even arrivals,
// a random value for a Poisson process. So constant rates, ramps and changes between phases need no special case, and the number of
// arrivals over any time matches the integral.
type arrivals struct {
	phases []Phase
	limit  time.Duration
	random *rand.Rand

	phase int           // the current one
	start time.Duration // when it started
	area  float64       // the integral since then, at the next arrival
	burst int           // sent jobs of the phase's bursts
}

// longest is the longest run.
const longest = 7 * 24 * time.Hour

// A phase that ends a rounding error after an arrival's time does not contain it.
const areaError = 1e-9

func newArrivals(s *Scenario) arrivals {
	a := arrivals{phases: s.Arrival.Open, limit: cmp.Or(s.Duration, longest)}
	a.random = rand.New(rand.NewPCG(s.Seed, math.MaxUint64)) // no intent has this index
	if first := slices.IndexFunc(a.phases, Phase.hasRate); first >= 0 && a.phases[first].Poisson {
		a.area = a.random.ExpFloat64() // even arrivals begin at once
	}
	return a
}

// next returns the time of the next arrival, or false if that is not before the end.
func (a *arrivals) next() (time.Duration, bool) {
	if len(a.phases) == 0 {
		return 0, true
	}
	for a.start < a.limit {
		p := &a.phases[a.phase]
		if within, ok := a.inPhase(p); ok {
			return a.start + within, a.start+within < a.limit
		}
		a.start += p.For
		a.phase, a.burst = (a.phase+1)%len(a.phases), 0
	}
	return 0, false
}

func (p Phase) hasRate() bool { return p.From+p.To > 0 }

func (a *arrivals) inPhase(p *Phase) (time.Duration, bool) {
	if p.Burst > 0 {
		at := time.Duration(a.burst/p.Burst) * p.Every
		a.burst++
		return at, at < p.For
	}
	whole := (p.From + p.To) / 2 * p.For.Seconds()
	if a.area >= whole-areaError {
		a.area = max(0, a.area-whole)
		return 0, false
	}
	at := p.reaches(a.area)
	if p.Poisson {
		a.area += a.random.ExpFloat64()
	} else {
		a.area++
	}
	return at, true
}

// reaches returns when the integral of the phase's rate r(t) = From + (To-From)·t/For is area: the root of a quadratic equation, in the
// form that also works for a constant rate.
func (p *Phase) reaches(area float64) time.Duration {
	if area == 0 {
		return 0
	}
	slope := (p.To - p.From) / p.For.Seconds()
	seconds := 2 * area / (p.From + math.Sqrt(max(0, p.From*p.From+2*slope*area)))
	return min(time.Duration(seconds*float64(time.Second)), p.For-1)
}
