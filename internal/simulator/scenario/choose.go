package scenario

import "math/rand/v2"

// chooser picks the entry of the mix, and the kind, of an intent.
type chooser struct {
	entries []entry
	bounds  []float64 // running sum of the weights
	turns   []turn    // what comes after what; nil: by the weights
}

type turn struct {
	entry int
	kind  string
}

// entry is a Work with the kinds of its batches' items drawn beforehand, of which a batch takes a stretch.
type entry struct {
	*Work
	items []string // nil: jobs by themselves, or without a kind
}

// stretches is how many different ones an entry's batches have.
const stretches = 4096

func newChooser(s *Scenario) chooser {
	var c chooser
	var sum float64
	for n := range s.Mix {
		w := &s.Mix[n]
		c.entries = append(c.entries, entry{Work: w, items: itemsOf(s, n)})
		sum += w.Weight
		c.bounds = append(c.bounds, sum)
		switch {
		case s.Pick != InTurn:
		case len(w.Kinds) == 0 || w.Batch > 0: // a batch is one turn
			c.turns = append(c.turns, turn{entry: n})
		default:
			for _, kind := range w.Kinds {
				c.turns = append(c.turns, turn{n, kind})
			}
		}
	}
	return c
}

// itemsOf lines up kinds for the batches of entry n: by chance, or in turn, so that a batch long enough has all of
// them.
func itemsOf(s *Scenario, n int) []string {
	w := &s.Mix[n]
	if w.Batch == 0 || len(w.Kinds) == 0 {
		return nil
	}
	random := rand.New(rand.NewPCG(^s.Seed, uint64(n)))
	items := make([]string, stretches+w.Batch)
	for i := range items {
		k := i
		if s.Pick == Weighted {
			k = random.IntN(len(w.Kinds))
		}
		items[i] = w.Kinds[k%len(w.Kinds)]
	}
	return items
}

// choose picks for the intent of the index, from 1.
func (c *chooser) choose(index int64, by chances) (*entry, string) {
	if c.turns != nil {
		t := c.turns[(index-1)%int64(len(c.turns))]
		return &c.entries[t.entry], t.kind
	}
	want := by.entry * c.bounds[len(c.bounds)-1]
	n := 0
	for n < len(c.bounds)-1 && want >= c.bounds[n] {
		n++
	}
	e := &c.entries[n]
	if len(e.Kinds) == 0 {
		return e, ""
	}
	return e, e.Kinds[int(by.kind*float64(len(e.Kinds)))]
}
