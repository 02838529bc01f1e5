package report

import (
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A time series has points of one second. Above maxPoints two become one, so the memory does not grow with the run.
const (
	firstStep = time.Second
	maxPoints = 600
)

// counts are numbers of events. The classes of answers follow answers, the final states follow finished.
type counts [finished + maxNames]int64

const (
	arrivals = iota
	taken    // deliveries that the receiver answered with success
	notTaken // and those that it did not
	answers
	finished = answers + maxNames
)

// level is what stays until it changes: jobs by state, and at workers the number of worker processes.
type level [workers + 1]int64

const workers = maxNames

// point is what happened within one step.
type point struct {
	counts
	submit, finish *hdrhistogram.PackedHistogram
	level          level // at its end
}

// timeline is the points of a run, from its start on without a gap.
type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
	open   int   // points before it have their level
	now    level // what the points from open on have until it changes
}

// at gives the point of a time. A time before the start counts as the start.
func (l *timeline) at(t time.Time) *point { return &l.points[l.index(t)] }

// index makes sure that the point is there.
func (l *timeline) index(t time.Time) int {
	since := max(t.Sub(l.start), 0)
	for int64(since/l.step) >= maxPoints {
		l.halve()
	}
	i := int(since / l.step)
	for len(l.points) <= i {
		l.points = append(l.points, point{})
	}
	return i
}

// fill gives all points before t's the level so far. It must be called before the level changes.
func (l *timeline) fill(t time.Time) {
	for i := l.index(t); l.open < i; l.open++ {
		l.points[l.open].level = l.now
	}
}

// halve makes one point of each two, and the step twice as long.
func (l *timeline) halve() {
	half := l.points[:0]
	for i := 0; i < len(l.points); i += 2 {
		p := l.points[i]
		if i+1 < len(l.points) {
			next := &l.points[i+1]
			for k, n := range next.counts {
				p.counts[k] += n
			}
			p.submit, p.finish = merged(p.submit, next.submit), merged(p.finish, next.finish)
			if i+1 < l.open {
				p.level = next.level
			}
		}
		half = append(half, p)
	}
	clear(l.points[len(half):]) // lets go of their histograms
	l.points, l.open, l.step = half, l.open/2, 2*l.step
}

func merged(a, b *hdrhistogram.PackedHistogram) *hdrhistogram.PackedHistogram {
	if a == nil {
		return b
	}
	if b != nil {
		a.Merge(b)
		a.Compact()
	}
	return a
}

// series gives the numbers of all points.
func (l *timeline) series(classes, finals, states names) Series {
	column := func(value func(p *point) int64) []int64 {
		list := make([]int64, len(l.points))
		for i := range l.points {
			list[i] = value(&l.points[i])
		}
		return list
	}
	count := func(i int) []int64 { return column(func(p *point) int64 { return p.counts[i] }) }
	held := func(i int) []int64 { return column(func(p *point) int64 { return p.level[i] }) }
	lines := func(n names, first int, values func(int) []int64) []Line {
		list := make([]Line, len(n))
		for i, name := range n {
			list[i] = Line{name, values(first + i)}
		}
		return list
	}
	s := Series{
		Step: l.step, Arrivals: count(arrivals), Delivered: count(taken), Refused: count(notTaken), Workers: held(workers),
		Answers: lines(classes, answers, count), Finished: lines(finals, finished, count), States: lines(states, 0, held),
		Submit: make([]Tail, len(l.points)), Finish: make([]Tail, len(l.points)),
	}
	for i, p := range l.points {
		s.Submit[i], s.Finish[i] = tailOf(p.submit), tailOf(p.finish)
	}
	return s
}

// names are the states and classes met so far, in the order in which they came. Too many share the last place.
type names []string

const (
	maxNames   = 24
	otherNames = "(other)"
)

func (n *names) index(name string) int {
	if i := slices.Index(*n, name); i >= 0 {
		return i
	}
	switch len(*n) {
	case maxNames:
		return maxNames - 1
	case maxNames - 1:
		name = otherNames
	}
	*n = append(*n, name)
	return len(*n) - 1
}

// counts are the names with their numbers.
func (n names) counts(values []int64) []Count {
	list := make([]Count, len(n))
	for i, name := range n {
		list[i] = Count{Name: name, N: values[i]}
	}
	return list
}
