package search

import (
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	firstRequests = 3 // each fault is tried alone at this many requests of an operation
	maxWalkSteps  = 9
)

// Operation is an operation of the API that the client uses in a run without faults.
type Operation struct {
	Name     string    `json:"operation"`
	Of       fault.Use `json:"of"`
	Requests int       `json:"requests"` // number of requests in a run without faults
}

// pair is two faults: the first makes the client send another request, which gets the second.
type pair [2]fault.Effect

// planner generates the schedules to try. First, it tries each fault at the first request of each operation. Then it alternates between
// walks (see walk), pairs on their own, and single faults at later requests. The same seed and the same client lead to the same schedules.
type planner struct {
	*rand.Rand
	operations []Operation
	inRow      int               // number of consecutive faults that a client must handle
	planned    map[string]bool   // keys of the schedules tried so far
	ends       map[string]bool   // kinds of steps that made the client give up
	first      []Schedule        // single faults to try first
	later      []Schedule        // single faults to try between walks
	alone      []Schedule        // pairs that are not part of a walk
	pairs      map[string][]pair // pairs for the next walks, by operation
	redrawn    map[string]bool   // operations that have used all their pairs, and use them again
	again      []Schedule        // shortened schedules to try, without the steps that excuse a failure
	known      []Schedule        // findings; schedules that contain one are not tried
	turn       int               // number of schedules drawn after `first` was empty
}

func newPlanner(operations []Operation, inRow int, seed int64) *planner {
	p := &planner{
		Rand: rand.New(rand.NewPCG(uint64(seed), 1)), operations: operations, inRow: inRow,
		planned: map[string]bool{}, ends: map[string]bool{}, pairs: map[string][]pair{}, redrawn: map[string]bool{},
	}
	p.first, p.later = p.singles(1)
	for nth := 2; nth <= firstRequests; nth++ {
		quick, _ := p.singles(nth)
		p.later = append(p.later, quick...)
	}
	for _, o := range operations {
		p.pairs[o.Name] = p.pairsOf(o, false)
	}
	p.alone = p.pairsAlone()
	return p
}

// singles returns a schedule for each fault at the nth request of each operation, in random order. `patient` has the schedules with faults
// that keep the client waiting (see patientCost); `quick` has the others.
func (p *planner) singles(nth int) (quick, patient []Schedule) {
	for _, o := range p.operations {
		for _, e := range catalogue[o.Of] {
			switch one := newStep(o, nth, e); {
			case nth > o.Requests:
			case cost(&e) >= patientCost:
				patient = append(patient, Schedule{one})
			default:
				quick = append(quick, Schedule{one})
			}
		}
	}
	for _, list := range [][]Schedule{quick, patient} {
		p.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return quick, patient
}

// pairsOf returns pairs of an operation, simpler faults first. If `alone` is true, these pairs cannot be part of a walk. If `alone` is
// false, they can.
func (p *planner) pairsOf(o Operation, alone bool) (all []pair) {
	list := catalogue[o.Of]
	add := func(a, b fault.Effect) {
		unlike := mayEndClient(&a) || mayEndClient(&b) || a.NextRequest != "" || b.NextRequest != "" || cost(&b) >= patientCost
		if unlike == alone && (causesRequest(&a) || o.Of == fault.Deliveries) && cost(&a) < patientCost {
			all = append(all, pair{a, b})
		}
	}
	for i, e := range list {
		from := len(all)
		for _, simpler := range list[:i] {
			add(simpler, e)
			add(e, simpler)
		}
		add(e, e)
		rank := all[from:]
		p.Shuffle(len(rank), func(i, j int) { rank[i], rank[j] = rank[j], rank[i] })
	}
	return all
}

func (p *planner) pairsAlone() (all []Schedule) {
	ranks := map[string]int{}
	for _, o := range p.operations {
		for rank, one := range p.pairsOf(o, true) {
			s := row(o, 1, one[:])
			all, ranks[s.key()] = append(all, s), rank
		}
	}
	slices.SortStableFunc(all, func(x, y Schedule) int { return ranks[x.key()] - ranks[y.key()] })
	return all
}

// row returns a schedule with faults at consecutive requests of an operation. Equal consecutive failures become one step with Times.
func row(o Operation, nth int, effects []fault.Effect) (s Schedule) {
	for i, e := range effects {
		if last := len(s) - 1; last >= 0 && failing(&e) && text(e) == text(s[last].Effect) {
			s[last].Times++
		} else {
			s = append(s, newStep(o, nth+i, e))
		}
	}
	return s
}

// next returns the next schedule to try. If no schedule is left to try, `ok` is false.
func (p *planner) next() (s Schedule, ok bool) {
	for _, list := range []*[]Schedule{&p.again, &p.first} {
		for len(*list) > 0 {
			s, *list = (*list)[0], (*list)[1:]
			if p.take(s) {
				return s, true
			}
		}
	}
	for range 20 {
		switch p.turn++; {
		case p.turn%4 == 0 && len(p.later) > 0:
			s, p.later = p.later[0], p.later[1:]
		case p.turn%4 == 2 && len(p.alone) > 0:
			s, p.alone = p.alone[0], p.alone[1:]
		default:
			s = p.walk()
		}
		if p.take(s) {
			return s, true
		}
	}
	return nil, false
}

// take decides whether to try a schedule. If so, it remembers the schedule as planned. It refuses schedules that were tried, contain a
// finding, end the client early, or fail a request more than `inRow` times.
func (p *planner) take(s Schedule) bool {
	if len(s) == 0 || p.planned[s.key()] || s.failsInRow() > p.inRow ||
		slices.ContainsFunc(s[:len(s)-1], func(step Step) bool { return p.ends[step.kind()] }) ||
		slices.ContainsFunc(p.known, func(k Schedule) bool { return s.contains(k) }) {
		return false
	}
	p.planned[s.key()] = true
	return true
}

// allowedFailure handles a failure of the client that a step of the schedule excuses. The schedule is tried again without such steps,
// because another step may be the cause.
func (p *planner) allowedFailure(s Schedule) {
	if len(s) == 1 {
		p.ends[s[0].kind()] = true
		return
	}
	p.again = append(p.again, slices.DeleteFunc(slices.Clone(s), Step.mayFail))
}

// walk returns a schedule with pairs of several operations. Between two pairs for reads, a fault shows the job as unfinished, so the
// client keeps polling.
func (p *planner) walk() Schedule {
	operations := slices.Clone(p.operations)
	p.Shuffle(len(operations), func(i, j int) { operations[i], operations[j] = operations[j], operations[i] })
	var steps []Step
	for _, o := range operations {
		nth, rows := 1, min(2, o.Requests)
		if p.redrawn[o.Name] {
			nth += p.IntN(min(o.Requests, firstRequests))
		}
		if o.Of == fault.Lookups {
			rows = 2
		}
		for n := range rows {
			if len(steps) >= maxWalkSteps-3 {
				break
			}
			if n > 0 && o.Of == fault.Lookups {
				steps = append(steps, newStep(o, nth, behind))
			}
			if n > 0 {
				nth++ // leave one request undisturbed
			}
			effects := p.draw(o)
			steps = append(steps, row(o, nth, effects)...)
			nth += len(effects)
		}
	}
	return sorted(steps)
}

func (p *planner) draw(o Operation) []fault.Effect {
	if len(p.pairs[o.Name]) == 0 {
		list := p.pairsOf(o, false)
		p.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		p.pairs[o.Name], p.redrawn[o.Name] = list, true
	}
	if len(p.pairs[o.Name]) == 0 {
		return nil
	}
	effects := slices.Clone(p.pairs[o.Name][0][:])
	p.pairs[o.Name] = p.pairs[o.Name][1:]
	if list := catalogue[o.Of]; p.redrawn[o.Name] && p.IntN(4) == 0 { // two random effects
		effects = []fault.Effect{list[p.IntN(len(list))], list[p.IntN(len(list))]}
	}
	for more := p.pairs[o.Name]; len(effects) < p.inRow && len(more) > 0 && p.IntN(2) == 0; more = more[1:] {
		effects = append(effects, more[0][1])
	}
	if o.Of == fault.Streams {
		effects = append(effects, catalogue[o.Of][0])
	}
	return effects
}
