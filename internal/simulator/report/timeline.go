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
	changed        bool  // the level is known; else it is that of the point before
}

// timeline is the points of a run, from its start on without a gap.
type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
	now    level
}

// at gives the point of a time. A time before the start counts as the start.
func (l *timeline) at(t time.Time) *point {
	since := max(t.Sub(l.start), 0)
	for int64(since/l.step) >= maxPoints {
		l.halve()
	}
	i := int(since / l.step)
	for len(l.points) <= i {
		l.points = append(l.points, point{})
	}
	return &l.points[i]
}

// hold notes the level of now, which is not before any time that it was noted at.
func (l *timeline) hold(now time.Time) {
	p := l.at(now)
	p.level, p.changed = l.now, true
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
			if next.changed {
				p.level, p.changed = next.level, true
			}
		}
		half = append(half, p)
	}
	clear(l.points[len(half):]) // lets go of their histograms
	l.points, l.step = half, 2*l.step
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
	for i := range l.points[1:] {
		if !l.points[i+1].changed {
			l.points[i+1].level = l.points[i].level
		}
	}
	counted := func(i int) []int64 { return column(l.points, func(p *point) int64 { return p.counts[i] }) }
	held := func(i int) []int64 { return column(l.points, func(p *point) int64 { return p.level[i] }) }
	named := func(n names, first int, values func(int) []int64) map[string][]int64 {
		lines := map[string][]int64{}
		for i, name := range n {
			lines[name] = values(first + i)
		}
		return lines
	}
	submit := func(p *point) *hdrhistogram.PackedHistogram { return p.submit }
	finish := func(p *point) *hdrhistogram.PackedHistogram { return p.finish }
	latency := func(of func(*point) *hdrhistogram.PackedHistogram, percentile float64) []*float64 {
		return column(l.points, func(p *point) *float64 { return percentileOf(of(p), percentile) })
	}
	return Series{
		StepMS: ms(l.step), Arrivals: counted(arrivals), Taken: counted(taken), NotTaken: counted(notTaken), Workers: held(workers),
		Answers: named(classes, answers, counted), Finished: named(finals, finished, counted), States: named(states, 0, held),
		SubmitP50: latency(submit, 50), SubmitP99: latency(submit, 99), FinishP50: latency(finish, 50), FinishP99: latency(finish, 99),
	}
}

// column takes one value of each point.
func column[T any](points []point, value func(*point) T) []T {
	list := make([]T, len(points))
	for i := range points {
		list[i] = value(&points[i])
	}
	return list
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
func (n names) counts(values []int64) map[string]int64 {
	numbers := map[string]int64{}
	for i, name := range n {
		numbers[name] = values[i]
	}
	return numbers
}
