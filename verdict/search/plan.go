package search

import (
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	firstRequests = 3 // of each operation get each single fault
	longest       = 5 // steps of a schedule
)

// Operation is what the client asks for when nothing is done to it.
type Operation struct {
	Name     string    `json:"operation"`
	Of       fault.Use `json:"of"`
	Requests int       `json:"requests"` // in a run without faults
}

// planner makes the schedules to try: single faults, and then pairs and walks in turns. The same seed and the same coverage give the
// same schedules.
type planner struct {
	*rand.Rand
	operations []Operation
	inRow      int             // faults in a row that a client must live through
	planned    map[string]bool // schedules
	pairs      map[string]bool // kinds that follow one another in a schedule
	singles    []Schedule
	known      []Schedule // that break the client: what has them is not tried
	walk       bool       // the next schedule is one
}

func newPlanner(operations []Operation, inRow int, seed int64) *planner {
	p := &planner{
		Rand: rand.New(rand.NewPCG(uint64(seed), 1)), operations: operations, inRow: inRow,
		planned: map[string]bool{}, pairs: map[string]bool{},
	}
	p.singles = p.single()
	return p
}

// single has each fault at each of the first requests, and those that make the client repeat a request also at its repetition. The first
// requests come first; among equals the order is drawn. Patient faults are left to the walks, but for the first requests.
func (p *planner) single() (all []Schedule) {
	var patient []Schedule
	for nth := 1; nth <= firstRequests; nth++ {
		for times := 1; times <= min(2, p.inRow); times++ {
			var round []Schedule
			for _, o := range p.operations {
				if nth > o.Requests {
					continue
				}
				for _, e := range catalogue[o.Of] {
					one := Schedule{{o.Name, o.Of, nth, times, e}}
					switch {
					case times > 1 && !failing(&e):
					case cost(&e) < patience:
						round = append(round, one)
					case nth == 1 && times == 1:
						patient = append(patient, one)
					}
				}
			}
			p.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			all = append(all, round...)
		}
		if nth == 1 {
			all = append(all, patient...)
		}
	}
	return all
}

// next returns the next schedule to try; ok is false once there seems to be none that was not tried.
func (p *planner) next(seen coverage) (s Schedule, ok bool) {
	for len(p.singles) > 0 {
		s, p.singles = p.singles[0], p.singles[1:]
		if p.take(s) {
			return s, true
		}
	}
	p.walk = !p.walk
	for range 200 {
		length := 2
		if p.walk {
			length = 3 + p.IntN(longest-2)
		}
		if s = p.draw(length, seen); p.take(s) {
			return s, true
		}
	}
	return nil, false
}

// take reports whether the schedule is worth trying, and notes it.
func (p *planner) take(s Schedule) bool {
	if len(s) == 0 || p.planned[s.key()] || s.failsInRow() > p.inRow ||
		slices.ContainsFunc(p.known, func(k Schedule) bool { return s.contains(k) }) {
		return false
	}
	p.planned[s.key()] = true
	for i := 1; i < len(s); i++ {
		p.pairs[s[i-1].kind()+s[i].kind()] = true
	}
	return true
}

// draw draws a schedule of some steps. Of a few draws for each step it takes the one that shows most that is new: a pair of faults that
// was not planned, or a fault that has not been seen in some state of a job.
func (p *planner) draw(length int, seen coverage) Schedule {
	var steps []Step
	for len(steps) < length {
		best, most := Step{}, -1
		for range 6 {
			step, value := p.step(steps), 0
			if n := len(steps); n > 0 && !p.pairs[steps[n-1].kind()+step.kind()] {
				value += 2
			}
			if value += 3 - min(3, seen.states(step)); value > most {
				best, most = step, value
			}
		}
		steps = append(steps, best)
	}
	return sorted(steps)
}

// step draws a step that follows others: mostly at the request after that of the last one.
func (p *planner) step(before []Step) Step {
	o, nth := p.operations[p.IntN(len(p.operations))], 1+p.IntN(2)
	if n := len(before); n > 0 && p.IntN(10) < 6 {
		last := before[n-1]
		at := slices.IndexFunc(p.operations, func(o Operation) bool { return o.Name == last.Operation })
		o, nth = p.operations[at], last.Nth+last.Times
		if p.IntN(4) == 0 {
			nth++
		}
	}
	effects := catalogue[o.Of]
	e := effects[p.IntN(len(effects))]
	if cost(&e) >= patience && p.IntN(4) > 0 {
		e = effects[p.IntN(len(effects))]
	}
	return Step{o.Name, o.Of, nth, 1, e}
}
