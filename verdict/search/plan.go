package search

import (
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	firstRequests = 3  // of each operation get each single fault
	longest       = 8  // steps of a schedule
	drafts        = 24 // of which the one with most that is new is tried
)

// Operation is what the client asks for when nothing is done to it.
type Operation struct {
	Name     string    `json:"operation"`
	Of       fault.Use `json:"of"`
	Requests int       `json:"requests"` // in a run without faults
}

// planner makes the schedules to try: single faults at the first requests, and then in turns walks, pairs, and single faults at later
// requests. The same seed and the same coverage give the same schedules.
type planner struct {
	*rand.Rand
	operations []Operation
	inRow      int             // faults in a row that a client must get over
	planned    map[string]bool // schedules
	orders     map[string]int  // how often faults were planned one after the other
	ends       map[string]bool // kinds of steps that the client takes for the end
	first      []Schedule      // single faults to try before anything else
	later      []Schedule      // and between the others
	known      []Schedule      // that break the client: what has them is not tried
	turn       int
}

func newPlanner(operations []Operation, inRow int, seed int64) *planner {
	p := &planner{
		Rand: rand.New(rand.NewPCG(uint64(seed), 1)), operations: operations, inRow: inRow,
		planned: map[string]bool{}, orders: map[string]int{}, ends: map[string]bool{},
	}
	p.first = p.singles(1)
	for nth := 2; nth <= firstRequests; nth++ {
		p.later = append(p.later, p.singles(nth)...)
	}
	return p
}

// singles has each fault at the nth request of each operation, then those that make the client repeat the request also at its repetition,
// and at last the patient ones, which only first requests have. The rest of the order is drawn.
func (p *planner) singles(nth int) []Schedule {
	var once, twice, patient []Schedule
	for _, o := range p.operations {
		for _, e := range catalogue[o.Of] {
			switch one := newStep(o, nth, e); {
			case nth > o.Requests:
			case cost(&e) >= patience && nth == 1:
				patient = append(patient, Schedule{one})
			case cost(&e) < patience:
				once = append(once, Schedule{one})
				if one.Times = 2; failing(&e) && p.inRow > 1 {
					twice = append(twice, Schedule{one})
				}
			}
		}
	}
	for _, list := range [][]Schedule{once, twice, patient} {
		p.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return slices.Concat(once, twice, patient)
}

// next returns the next schedule to try; ok is false once there seems to be none that was not tried.
func (p *planner) next(seen coverage) (s Schedule, ok bool) {
	for len(p.first) > 0 {
		s, p.first = p.first[0], p.first[1:]
		if p.take(s) {
			return s, true
		}
	}
	for range 20 {
		switch p.turn++; {
		case p.turn%4 == 0 && len(p.later) > 0:
			s, p.later = p.later[0], p.later[1:]
		case p.turn%8 == 6 && len(p.ends) > 0:
			s = p.best(2, seen, true)
		case p.turn%4 == 2:
			s = p.best(1, seen, false)
		default:
			s = p.best(4, seen, false)
		}
		if p.take(s) {
			return s, true
		}
	}
	return nil, false
}

// worth reports whether the schedule may be tried.
func (p *planner) worth(s Schedule) bool {
	return len(s) > 0 && !p.planned[s.key()] && s.failsInRow() <= p.inRow &&
		!slices.ContainsFunc(p.known, func(k Schedule) bool { return s.contains(k) })
}

// take reports whether the schedule may be tried, and notes it.
func (p *planner) take(s Schedule) bool {
	if !p.worth(s) {
		return false
	}
	p.planned[s.key()] = true
	for _, order := range orders(s) {
		p.orders[order]++
	}
	return true
}

// best returns the one of several drafts that has most that is new: faults one after the other that were not planned so, and a fault that
// has not happened in each state of a job. With ended it is one that ends the client.
func (p *planner) best(bursts int, seen coverage, ended bool) (best Schedule) {
	most := -1
	for range drafts {
		s := p.draft(bursts)
		if !p.worth(s) || ended && !p.ends[s[len(s)-1].kind()] {
			continue
		}
		value := 0
		for _, order := range orders(s) {
			if p.orders[order] == 0 {
				value += 2
			}
		}
		for _, step := range s {
			value += 3 - min(3, seen.states(step))
		}
		if value > most {
			best, most = s, value
		}
	}
	return best
}

// draft draws a schedule of some bursts, each of a few requests in a row, of one operation each. After a fault that ends the client nothing
// follows.
func (p *planner) draft(bursts int) Schedule {
	var steps []Step
	taken := map[string]int{} // requests, by operation
	for range bursts {
		o := p.operations[p.IntN(len(p.operations))]
		nth := taken[o.Name] + 1 + p.IntN(2)
		if taken[o.Name] > 0 {
			nth++ // one request gets its answer
			if o.Requests == 1 {
				continue
			}
		}
		length := p.inRow
		if o.Of == fault.Streams {
			length++
		}
		for range length - p.IntN(length)*p.IntN(2) {
			if len(steps) == longest {
				break
			}
			effects := catalogue[o.Of]
			e := effects[p.IntN(len(effects))]
			if cost(&e) >= patience && p.IntN(4) > 0 {
				e = effects[p.IntN(len(effects))]
			}
			steps = append(steps, newStep(o, nth, e))
			taken[o.Name] = nth
			nth++
		}
	}
	s := sorted(steps)
	if at := slices.IndexFunc(s, func(step Step) bool { return p.ends[step.kind()] }); at >= 0 {
		s = s[:at+1]
	}
	return s
}

// orders names the faults that follow one another in a schedule: two, as they are and as what they are to the client, in a row or not;
// and three, as what they are to the client.
func orders(s Schedule) (all []string) {
	for i := range s {
		for j := i + 1; j < len(s); j++ {
			between := " … "
			if s[i].Operation == s[j].Operation && s[j].Nth == s[i].Nth+s[i].Times {
				between = " "
			}
			all = append(all, s[i].kind()+between+s[j].kind(), s[i].class()+between+s[j].class())
			for k := j + 1; k < len(s); k++ {
				all = append(all, s[i].class()+" … "+s[j].class()+" … "+s[k].class())
			}
		}
	}
	return all
}

// class is what a fault is to the client.
func (s Step) class() string {
	e := &s.Effect
	switch {
	case e.Close != "" || e.NextRequest != "":
		return s.Operation + " unanswered"
	case final(e):
		return s.Operation + " denied"
	case e.Status != 0 || e.HTML:
		return s.Operation + " refused"
	case e.Moved != 0:
		return s.Operation + " moved"
	case e.OfStreams():
		return s.Operation + " disturbed"
	}
	return s.Operation + " changed"
}
