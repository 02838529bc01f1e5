package scenario

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Intent is one planned request, and what the client will do with its jobs: poll, cancel, retry.
type Intent struct {
	Index   int64         // number of the intent, from 1
	N       int64         // number of the intent's first ticket (planned submission), from 1
	Tickets int           // number of tickets: the items of a batch, or a single job and its copies with different keys
	At      time.Duration // planned send time, from the start of the run; 0 in a closed loop
	Tenant  int           // from 0
	Work    *Work         // entry of Scenario.Mix; must not be changed
	Kind    string        // "" for EmitEvent and for batches
	Kinds   []string      // kind of each item of a batch; nil for EmitEvent
	Key     string        // idempotency key; the keys of copies come from CopyKey
	Ahead   time.Duration // only for Deferred: time from the send time to execution_at
	Cancel  CancelIntent
	Retries int  // maximum number of retries if the job fails
	Copies  int  // additional copies of the request
	SameKey bool // the copies have the same key, so only one job is created
	AtOnce  bool // the copies are sent at the same time
	Polled  bool
}

// CancelIntent says when to cancel a job. The zero value means never.
type CancelIntent struct {
	In    string // the state to wait for; "": the job is not canceled
	After time.Duration
}

// CopyKey returns the idempotency key of the copy with number c. Copies are numbered from 1.
func (i *Intent) CopyKey(c int) string {
	if i.SameKey {
		return i.Key
	}
	return i.Key + "-" + strconv.Itoa(c)
}

// Plan returns the intents of a scenario one by one. It is safe for concurrent use. Its memory does not depend on the number of intents.
type Plan struct {
	mu       sync.Mutex
	scenario Scenario
	sequence []entry   // only for InTurn: entries in the order of use, repeated endlessly
	bounds   []float64 // bounds[i] is the sum of the weights of Mix[0] to Mix[i]
	arrivals arrivals
	source   rand.PCG   // gets a new seed for each intent
	random   *rand.Rand // draws from source
	index    int64      // number of intents returned so far
	tickets  int64      // number of tickets assigned so far
}

// Plan returns a new plan, which begins with the first intent. The scenario must come from Parse or Load. Before the call, Seed, Duration,
// Jobs and Tenants may be changed.
func (s *Scenario) Plan() *Plan {
	p := &Plan{scenario: *s, arrivals: newArrivals(s)}
	p.random = rand.New(&p.source)
	var sum float64
	for n := range s.Mix {
		w := &s.Mix[n]
		sum += w.Weight
		p.bounds = append(p.bounds, sum)
		switch {
		case s.Pick != InTurn:
		case len(w.Kinds) == 0 || w.Batch > 0: // a batch has one entry, not one for each kind
			p.sequence = append(p.sequence, entry{work: w})
		default:
			for _, kind := range w.Kinds {
				p.sequence = append(p.sequence, entry{w, kind})
			}
		}
	}
	return p
}

// entry is an entry of the mix and one of its kinds. For batches and EMIT_EVENT, the kind is "".
type entry struct {
	work *Work
	kind string
}

func (p *Plan) choose(by chances) (*Work, string) {
	if p.sequence != nil {
		t := p.sequence[(p.index-1)%int64(len(p.sequence))]
		return t.work, t.kind
	}
	want := by.entry * p.bounds[len(p.bounds)-1]
	n := 0
	for n < len(p.bounds)-1 && want >= p.bounds[n] {
		n++
	}
	w := &p.scenario.Mix[n]
	if len(w.Kinds) == 0 {
		return w, ""
	}
	return w, w.Kinds[int(by.kind*float64(len(w.Kinds)))]
}

// items returns the kinds of a batch's items. With InTurn, the items use the entry's kinds in order. After the last kind, the first one
// follows.
func (p *Plan) items(w *Work) []string {
	items := make([]string, w.Batch)
	for i := range items {
		k := i
		if p.scenario.Pick == Weighted {
			k = p.random.IntN(len(w.Kinds))
		}
		items[i] = w.Kinds[k%len(w.Kinds)]
	}
	return items
}

// Next returns the next intent. It returns false after Scenario.Jobs intents, or at the end of Scenario.Duration in an open loop. In a
// closed loop without Jobs, it never returns false.
func (p *Plan) Next() (Intent, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scenario.Jobs > 0 && p.index >= p.scenario.Jobs {
		return Intent{}, false
	}
	at, ok := p.arrivals.next()
	if !ok {
		return Intent{}, false
	}
	p.index++
	i := p.draw(p.roll())
	i.At = at
	p.tickets += int64(i.Tickets)
	return i, true
}

// Tickets returns the number of tickets in the intents that Next has returned.
func (p *Plan) Tickets() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tickets
}

// chances has the random numbers of an intent, in [0, 1). All numbers are drawn even if some are not used. So a changed share does not
// change other random choices.
type chances struct {
	tenant, entry, kind, ahead, cancel, after, retry, duplicate, poll float64
	key                                                               uint64
}

func (p *Plan) roll() chances {
	p.source.Seed(p.scenario.Seed, uint64(p.index))
	r := p.random
	return chances{
		tenant: r.Float64(), entry: r.Float64(), kind: r.Float64(), ahead: r.Float64(), cancel: r.Float64(),
		after: r.Float64(), retry: r.Float64(), duplicate: r.Float64(), poll: r.Float64(), key: r.Uint64(),
	}
}

func (p *Plan) draw(c chances) Intent {
	e, kind := p.choose(c)
	i := Intent{
		Index: p.index, N: p.tickets + 1, Tickets: max(e.Batch, 1),
		Tenant: int(c.tenant * float64(p.scenario.Tenants)),
		Work:   e, Kind: kind, Key: fmt.Sprintf("%016x%012x", c.key, p.index), Ahead: e.Ahead.at(c.ahead),
		Polled: c.poll < float64(p.scenario.Readers.Poll),
	}
	if e.Batch > 0 && len(e.Kinds) > 0 {
		i.Kind, i.Kinds = "", p.items(e)
	}
	if e.Cancel != nil && c.cancel < float64(e.Cancel.Share) {
		i.Cancel = CancelIntent{In: e.Cancel.In, After: e.Cancel.After.at(c.after)}
	}
	if e.Retry != nil && c.retry < float64(e.Retry.Share) {
		i.Retries = e.Retry.Max
	}
	if d := e.Duplicate; d != nil && c.duplicate < float64(d.Share) {
		i.Copies, i.SameKey, i.AtOnce = d.Copies, d.Key == SameKey, d.AtOnce
		if !i.SameKey {
			i.Tickets += d.Copies // never for a batch, because its copies have the same key
		}
	}
	return i
}

func (r Range) at(share float64) time.Duration {
	return r.Min + time.Duration(share*float64(r.Max-r.Min))
}

// arrivals computes the send times of an open loop. In a closed loop, all send times are 0.
//
// The next arrival is due when the integral of the rate has grown by one gap. For evenly spaced arrivals, each gap is 1. For a Poisson
// process, gaps are random with an exponential distribution. This also works for ramps and changes of phase.
type arrivals struct {
	phases []Phase
	limit  time.Duration
	random *rand.Rand

	phase int // current phase
	start time.Duration
	area  float64 // integral of the rate from the start of the phase to the next arrival
	burst int     // number of jobs that bursts of the current phase have sent so far
}

const longest = 7 * 24 * time.Hour

// An arrival less than areaError before the end of a phase belongs to the next phase, because such a difference is a rounding error.
const areaError = 1e-9

func newArrivals(s *Scenario) arrivals {
	a := arrivals{phases: s.Arrival.Open, limit: cmp.Or(s.Duration, longest)}
	a.random = rand.New(rand.NewPCG(s.Seed, math.MaxUint64)) // a random stream of its own: the streams 1, 2, ... belong to the intents
	if first := slices.IndexFunc(a.phases, Phase.hasRate); first >= 0 && a.phases[first].Poisson {
		a.area = a.random.ExpFloat64() // a Poisson process starts with a random gap; evenly spaced arrivals start at 0
	}
	return a
}

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

// reaches returns the time in the phase at which the integral of the rate is `area`. The rate is r(t) = From + (To-From)·t/For. The
// quadratic formula is written so that it also works for a constant rate.
func (p *Phase) reaches(area float64) time.Duration {
	if area == 0 {
		return 0
	}
	slope := (p.To - p.From) / p.For.Seconds()
	seconds := 2 * area / (p.From + math.Sqrt(max(0, p.From*p.From+2*slope*area)))
	return min(time.Duration(seconds*float64(time.Second)), p.For-1)
}
