package report

import (
	"maps"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A time series has points of one second. Above maxPoints two become one, so the memory does not grow with the run.
const (
	firstStep = time.Second
	maxPoints = 600
)

// The groups of what is counted.
const (
	arrivals = "arrivals"
	taken    = "taken"     // deliveries that the receiver answered with success
	notTaken = "not taken" // and those that it did not
	answers  = "answers"   // by class
	finished = "finished"  // by final state
	jobs     = "jobs"      // by state, now
	workers  = "workers"   // now
)

// counts are numbers of things, by group and name.
type counts map[key]int64

type key struct{ group, name string }

// of gives the names of a group with their numbers.
func (c counts) of(group string) map[string]int64 {
	numbers := map[string]int64{}
	for k, n := range c {
		if k.group == group {
			numbers[k.name] = n
		}
	}
	return numbers
}

// point is what happened within one step.
type point struct {
	counts
	submit, finish *hdrhistogram.PackedHistogram
	level          counts // what there was at its end; nil: as at that of the point before
}

// timeline is the points of a run, from its start on without a gap.
type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
	now    counts // what stays until it changes
}

// at gives the point of a time. A time before the start counts as the start.
func (l *timeline) at(t time.Time) *point {
	since := max(t.Sub(l.start), 0)
	for int64(since/l.step) >= maxPoints {
		l.halve()
	}
	i := int(since / l.step)
	for len(l.points) <= i {
		l.points = append(l.points, point{counts: counts{}})
	}
	return &l.points[i]
}

// change changes a level of now, which is not before any time that it was changed at.
func (l *timeline) change(now time.Time, group, name string, by int64) {
	k, p := key{group, name}, l.at(now)
	if l.now[k] += by; p.level == nil {
		p.level = maps.Clone(l.now)
	}
	p.level[k] = l.now[k]
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
			if next.level != nil {
				p.level = next.level
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

// series gives the numbers of all points, of the names in total.
func (l *timeline) series(total counts) Series {
	for i := range l.points[1:] {
		if l.points[i+1].level == nil {
			l.points[i+1].level = l.points[i].level
		}
	}
	counted := func(k key) []int64 { return column(l.points, func(p *point) int64 { return p.counts[k] }) }
	held := func(k key) []int64 { return column(l.points, func(p *point) int64 { return p.level[k] }) }
	named := func(group string, names counts, values func(key) []int64) map[string][]int64 {
		lines := map[string][]int64{}
		for name := range names.of(group) {
			lines[name] = values(key{group, name})
		}
		return lines
	}
	submit := func(p *point) *hdrhistogram.PackedHistogram { return p.submit }
	finish := func(p *point) *hdrhistogram.PackedHistogram { return p.finish }
	latency := func(of func(*point) *hdrhistogram.PackedHistogram, percentile float64) []*float64 {
		return column(l.points, func(p *point) *float64 { return percentileOf(of(p), percentile) })
	}
	return Series{
		StepMS: ms(l.step), Arrivals: counted(key{group: arrivals}), Taken: counted(key{group: taken}), NotTaken: counted(key{group: notTaken}),
		Workers: held(key{group: workers}), States: named(jobs, l.now, held),
		Answers: named(answers, total, counted), Finished: named(finished, total, counted),
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

// The limits of a histogram. Shorter and longer times count as the limits.
const (
	shortest = time.Microsecond
	longest  = time.Hour
)

// newHistogram is exact to three digits, which takes 180 KB.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(shortest.Microseconds(), longest.Microseconds(), 3)
}

// newSmallHistogram is exact to two digits and as large as what it holds: each point of the time series has one.
func newSmallHistogram() *hdrhistogram.PackedHistogram {
	return hdrhistogram.NewPacked(shortest.Microseconds(), longest.Microseconds(), 2)
}

// clamped is what a histogram can take, in microseconds.
func clamped(d time.Duration) int64 { return min(max(d, shortest), longest).Microseconds() }

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// latencyOf reads a histogram once for all percentiles.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	p := h.ValueAtPercentilesSlice([]float64{50, 90, 95, 99, 99.9})
	return Latency{
		Count: h.TotalCount(), Min: microseconds(h.Min()), Max: microseconds(min(h.Max(), longest.Microseconds())),
		Mean: time.Duration(h.Mean() * float64(time.Microsecond)),
		P50:  microseconds(p[0]), P90: microseconds(p[1]), P95: microseconds(p[2]), P99: microseconds(p[3]), P999: microseconds(p[4]),
	}
}

// percentileOf gives milliseconds, nil where nothing was measured.
func percentileOf(h *hdrhistogram.PackedHistogram, percentile float64) *float64 {
	if h == nil {
		return nil
	}
	value := ms(microseconds(min(h.ValueAtPercentile(percentile), longest.Microseconds())))
	return &value
}
