package verdict

import (
	"slices"
	"sort"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// record is a Record with the indexes that rules use to find related exchanges.
type record struct {
	Record
	exchanges []exchange // sorted by start
	sent      []exchange // deliveries with a fault, including dropped deliveries
	journal   *journal
	runs      map[string]*Run

	reads     map[place]group     // reads of each resource by each reader, without streams
	shared    map[uint64]bool     // connections that served several requests
	hints     map[string]jobHints // deliveries and stream events by job; key "": events that name no job
	open      map[string]spans    // by job: times in which the client may have seen the end of the job; key "": the end of any job
	ends      map[string]ends     // by job, batch or bulk operation: responses and deliveries that showed the end
	disturbed map[attempt]disturbance
}

type exchange struct {
	*kept
	place int // line number of the exchange in the journal
	era   int // number of resets before the exchange
}

type target struct{ method, path, query string }

func targetOf(x *exchange) target { return target{x.Method, x.Path, x.Query} }

type attempt struct {
	delivery string
	number   int
}

type disturbance struct {
	effect  *fault.Effect
	dropped bool
}

func (r *record) index() {
	r.runs = map[string]*Run{}
	for i := range r.Runs {
		r.runs[r.Runs[i].ID] = &r.Runs[i]
	}
	r.countEras()
	if r.Standards && len(r.Attempts) == 0 { // notifications that are not recorded may tell the client that a job ended
		r.each(func(x *exchange) { r.Elsewhere = r.Elsewhere || x.Receiver })
	}
	r.disturbed = map[attempt]disturbance{}
	for i := range r.sent {
		x := &r.sent[i]
		d := r.disturbed[attempt{x.Delivery, x.Number}]
		d.dropped = d.dropped || x.Fault.Drop
		if !x.extra() {
			d.effect = x.Fault
		}
		r.disturbed[attempt{x.Delivery, x.Number}] = d
	}
	r.indexReaders()
	r.indexHints()
	r.open, r.ends = map[string]spans{}, map[string]ends{}
	r.each(func(x *exchange) {
		if x.Stream != nil && x.Stream.Open {
			r.open[x.Job] = append(r.open[x.Job], span{x.Start, x.End()})
		}
		if !x.Arrived() {
			return
		}
		for _, id := range x.Final {
			r.ends[id] = append(r.ends[id], end{exchange: x})
		}
		for _, id := range x.MaybeFinal {
			r.open[id] = append(r.open[id], span{x.Start, x.End()})
		}
		if x.More {
			r.open[""] = append(r.open[""], span{x.Start, x.End()})
		}
	})
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Final && a.Error == "" {
			r.ends[a.JobID] = append(r.ends[a.JobID], end{attempt: a})
		}
	}
	sortSpans(r.open)
	for _, all := range r.ends {
		slices.SortStableFunc(all, func(x, y end) int { return x.until().Compare(y.until()) })
	}
}

func (r *record) countEras() {
	var resets []time.Time
	r.each(func(x *exchange) {
		if x.Role == Reset && x.Status/100 == 2 {
			resets = append(resets, x.End())
		}
	})
	slices.SortFunc(resets, time.Time.Compare)
	r.each(func(x *exchange) {
		x.era = sort.Search(len(resets), func(i int) bool { return resets[i].After(x.Start) })
	})
}

func (r *record) each(f func(x *exchange)) {
	for i := range r.exchanges {
		f(&r.exchanges[i])
	}
}

// group is a list of exchanges, sorted by start.
type group []*exchange

// indexed groups the exchanges by keys. The function `keys` calls `add` with each key of x.
func indexed[K comparable](r *record, keys func(x *exchange, add func(K))) map[K]group {
	groups := map[K]group{}
	r.each(func(x *exchange) {
		keys(x, func(key K) {
			if g := groups[key]; len(g) == 0 || g[len(g)-1] != x {
				groups[key] = append(g, x)
			}
		})
	})
	return groups
}

func (g group) after(x *exchange) group {
	over := x.End()
	return g[sort.Search(len(g), func(i int) bool { return g[i].place > x.place && g[i].Start.After(over) }):]
}

func (g group) next(x *exchange) *exchange {
	if later := g.after(x); len(later) > 0 {
		return later[0]
	}
	return nil
}

// since returns the first exchange that began after the start of x, or nil if there is none. It ignores the end of x, because the recorded
// end is too late if the client hung up.
func (g group) since(x *exchange) *exchange {
	for _, y := range g[sort.Search(len(g), func(i int) bool { return g[i].place > x.place }):] {
		if y.Start.After(x.Start) {
			return y
		}
	}
	return nil
}

func earliest(all ...*exchange) (first *exchange) {
	for _, x := range all {
		if x != nil && (first == nil || x.place < first.place) {
			first = x
		}
	}
	return first
}

type span struct{ from, until time.Time }

// spans are sorted by start. Each span ends no earlier than the spans before it.
type spans []span

func sortSpans[K comparable](all map[K]spans) {
	for _, s := range all {
		slices.SortFunc(s, func(x, y span) int { return x.from.Compare(y.from) })
		for i := 1; i < len(s); i++ {
			if s[i].until.Before(s[i-1].until) {
				s[i].until = s[i-1].until
			}
		}
	}
}

func (s spans) overlap(since, until time.Time) bool {
	n := sort.Search(len(s), func(i int) bool { return !s[i].from.Before(until) })
	return n > 0 && s[n-1].until.After(since)
}

func (s spans) begin(since, until time.Time) bool {
	n := sort.Search(len(s), func(i int) bool { return s[i].from.After(since) })
	return n < len(s) && s[n].from.Before(until)
}

// end is an exchange or an attempt that showed a final state.
type end struct {
	exchange *exchange
	attempt  *Attempt
}

// from returns the earliest moment at which the client may have seen the end. For a stream, this is the start of the stream.
func (e end) from() time.Time {
	if e.exchange != nil && e.exchange.Stream != nil {
		return e.exchange.Start
	}
	return e.until()
}

func (e end) until() time.Time {
	if e.exchange != nil {
		return e.exchange.End()
	}
	return e.attempt.At
}

// ends are sorted by the time that end.until returns.
type ends []end

// since returns the first end that the client may have seen after `moment`. `at` is the earliest time at which the client may have seen
// this end, but never before `moment`.
func (all ends) since(moment time.Time) (first end, at time.Time) {
	n := sort.Search(len(all), func(i int) bool { return !all[i].until().Before(moment) })
	for _, e := range all[n:] {
		from := e.from()
		if from.Before(moment) {
			from = moment
		}
		if first == (end{}) || from.Before(at) {
			first, at = e, from
		}
	}
	return first, at
}
