package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A time series has points of one second. When there would be more than
// maxPoints, two become one: a run of any length takes the same memory.
const (
	firstStep = time.Second
	maxPoints = 600
)

// point is what happened within one step.
type point struct {
	arrivals  int64
	answers   []int64 // by class
	finished  []int64 // by final state
	delivered int64
	failed    int64 // deliveries that the receiver refused
	submit    *hdrhistogram.PackedHistogram
	finish    *hdrhistogram.PackedHistogram
	level     level // at its end
}

// level is what stays until it changes.
type level struct {
	states  []int64 // jobs by state
	workers int64
}

// timeline is the points of a run, from its start on without a gap.
type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
	open   int   // points before it know their level
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

// fill gives all points before t's the level that held so far. It must be
// called before the level changes.
func (l *timeline) fill(t time.Time) {
	for i := l.index(t); l.open < i; l.open++ {
		l.points[l.open].level = l.now.copied()
	}
}

func (v level) copied() level {
	return level{states: append([]int64(nil), v.states...), workers: v.workers}
}

// halve makes one point of each two, and the step twice as long.
func (l *timeline) halve() {
	half := l.points[:0]
	for i := 0; i < len(l.points); i += 2 {
		p := l.points[i]
		if i+1 < len(l.points) {
			p.take(l.points[i+1], i+1 < l.open)
		}
		half = append(half, p)
	}
	clear(l.points[len(half):]) // lets go of their histograms
	l.points, l.open, l.step = half, l.open/2, 2*l.step
}

// take adds the point that follows.
func (p *point) take(next point, leveled bool) {
	p.arrivals += next.arrivals
	p.answers = sum(p.answers, next.answers)
	p.finished = sum(p.finished, next.finished)
	p.delivered += next.delivered
	p.failed += next.failed
	p.submit = merged(p.submit, next.submit)
	p.finish = merged(p.finish, next.finish)
	if leveled {
		p.level = next.level
	}
}

func sum(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	for i, n := range b {
		a[i] += n
	}
	return a
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

// add changes the i-th of the counts, which grow as names are learned.
func add(counts *[]int64, i int, n int64) {
	for len(*counts) <= i {
		*counts = append(*counts, 0)
	}
	(*counts)[i] += n
}

// names are the states and classes met so far, in the order in which they came.
// They are few; should they not be, the rest share the last place.
type names struct {
	list  []string
	index map[string]int
}

const (
	maxNames   = 24
	otherNames = "(other)"
)

func newNames(known ...string) names {
	n := names{index: map[string]int{}}
	for _, name := range known {
		n.of(name)
	}
	return n
}

func (n *names) of(name string) int {
	if i, ok := n.index[name]; ok {
		return i
	}
	if len(n.list) == maxNames {
		return maxNames - 1
	}
	if len(n.list) == maxNames-1 {
		name = otherNames
	}
	n.list = append(n.list, name)
	n.index[name] = len(n.list) - 1
	return len(n.list) - 1
}
