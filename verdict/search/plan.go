package search

import (
	"math/rand/v2"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	firstRequests = 3 // of each operation get each single fault
	longest       = 9 // steps of a walk
)

// Operation is a kind of request that the client sends without faults.
type Operation struct {
	Name     string    `json:"operation"`
	Of       fault.Use `json:"of"`
	Requests int       `json:"requests"` // in a run without faults
}

// pair is a fault that makes the client ask again, and the fault of the request that follows.
type pair [2]fault.Effect

// planner makes the schedules to try: each fault at the first request of each operation, and then in turns walks, pairs that stand alone,
// and single faults at later requests. The same seed and the same client give the same schedules.
type planner struct {
	*rand.Rand
	operations []Operation
	inRow      int               // faults in a row that a client must get over
	planned    map[string]bool   // schedules
	ends       map[string]bool   // kinds of steps that the client takes for the end
	first      []Schedule        // single faults to try before anything else
	later      []Schedule        // and between the others
	alone      []Schedule        // pairs that no other fault may follow
	pairs      map[string][]pair // for the next walks, by operation
	redrawn    map[string]bool   // operations whose pairs were all in a walk
	known      []Schedule        // that break the client: what has them is not tried
	turn       int
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

// singles has each fault at the nth request of each operation, in an order that is drawn, with the patient ones apart.
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

// pairsOf has the pairs of an operation, those of simpler faults first: either the ones that may be part of a walk, or the others.
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

// pairsAlone has the pairs of all operations that are not for walks, those of simpler faults first.
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

// row has faults at requests of an operation one after the other. A fault that comes again at once is one step.
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

// next returns the next schedule to try; ok is false once there seems to be none that was not tried.
func (p *planner) next() (s Schedule, ok bool) {
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

// take reports whether the schedule may be tried, and notes it. After a fault that ends the client nothing can follow.
func (p *planner) take(s Schedule) bool {
	if len(s) == 0 || p.planned[s.key()] || s.failsInRow() > p.inRow ||
		slices.ContainsFunc(s[:len(s)-1], func(step Step) bool { return p.ends[step.kind()] }) ||
		slices.ContainsFunc(p.known, func(k Schedule) bool { return s.contains(k) }) {
		return false
	}
	p.planned[s.key()] = true
	return true
}

// walk has pairs of some operations. A client that polls reads on between two pairs, as the job has not ended for it yet; and after a pair
// a stream breaks once more.
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
			if len(steps) >= longest-3 {
				break
			}
			if n > 0 && o.Of == fault.Lookups {
				steps = append(steps, newStep(o, nth, behind))
			}
			if n > 0 {
				nth++ // one request gets its answer
			}
			effects := p.draw(o)
			steps = append(steps, row(o, nth, effects)...)
			nth += len(effects)
		}
	}
	return sorted(steps)
}

// draw returns the next pair of an operation, with what comes after it.
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
	if list := catalogue[o.Of]; p.redrawn[o.Name] && p.IntN(4) == 0 { // any two
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
