package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A time series has points of one second. Above maxPoints, pairs are merged, so the memory does not grow with the run.
const (
	firstStep = time.Second
	maxPoints = 600
)

// point is a step of the run.
type point struct {
	Numbers        // at its end
	submit, finish *hdrhistogram.PackedHistogram
}

// timeline is the points of a run, without a gap from its start, and the latencies of the current step.
type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
	open   point
}

// advance completes the steps that are over.
func (l *timeline) advance(now time.Time, numbers Numbers) {
	for !now.Before(l.start.Add(time.Duration(len(l.points)+1) * l.step)) {
		l.end(numbers)
		if len(l.points) == maxPoints {
			l.halve()
		}
	}
}

func (l *timeline) end(numbers Numbers) {
	l.open.Numbers = numbers.clone()
	l.points = append(l.points, l.open)
	l.open = point{}
}

// halve merges pairs of points, and doubles the step.
func (l *timeline) halve() {
	half := l.points[:0]
	for i := 0; i < len(l.points); i += 2 {
		a, b := l.points[i], l.points[i+1]
		half = append(half, point{b.Numbers, merged(a.submit, b.submit), merged(a.finish, b.finish)})
	}
	clear(l.points[len(half):]) // frees their histograms
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

// series returns the series of all points.
func (l *timeline) series() Series {
	last := l.points[len(l.points)-1]
	held := func(value func(point) int64) []int64 { return column(l.points, value) }
	counted := func(value func(point) int64) []int64 {
		values := held(value)
		for i := len(values) - 1; i > 0; i-- {
			values[i] -= values[i-1]
		}
		return values
	}
	named := func(of func(point) map[string]int64, values func(func(point) int64) []int64) map[string][]int64 {
		lines := map[string][]int64{}
		for name := range of(last) {
			lines[name] = values(func(p point) int64 { return of(p)[name] })
		}
		return lines
	}
	submit := func(percentile float64) []*float64 {
		return column(l.points, func(p point) *float64 { return percentileOf(p.submit, percentile) })
	}
	finish := func(percentile float64) []*float64 {
		return column(l.points, func(p point) *float64 { return percentileOf(p.finish, percentile) })
	}
	return Series{
		StepMS: ms(l.step), Arrivals: counted(func(p point) int64 { return p.Arrivals }),
		Taken:     counted(func(p point) int64 { return p.Deliveries.Taken }),
		NotTaken:  counted(func(p point) int64 { return p.Deliveries.NotTaken }),
		Workers:   held(func(p point) int64 { return p.Workers }),
		States:    named(func(p point) map[string]int64 { return p.States }, held),
		Answers:   named(func(p point) map[string]int64 { return p.Answers }, counted),
		Finished:  named(func(p point) map[string]int64 { return p.Finished }, counted),
		SubmitP50: submit(50), SubmitP99: submit(99), FinishP50: finish(50), FinishP99: finish(99),
	}
}

// column has a value for each point.
func column[T any](points []point, value func(point) T) []T {
	list := make([]T, len(points))
	for i, p := range points {
		list[i] = value(p)
	}
	return list
}

// Limits of a histogram. Durations outside count as the limits.
const (
	shortest = time.Microsecond
	longest  = time.Hour
)

// newHistogram makes a histogram exact to three digits, of 180 KB.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(shortest.Microseconds(), longest.Microseconds(), 3)
}

// newSmallHistogram makes a histogram exact to two digits that grows with its content: each point has one.
func newSmallHistogram() *hdrhistogram.PackedHistogram {
	return hdrhistogram.NewPacked(shortest.Microseconds(), longest.Microseconds(), 2)
}

// clamped returns a duration within a histogram's limits, in microseconds.
func clamped(d time.Duration) int64 { return min(max(d, shortest), longest).Microseconds() }

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// latencyOf reads all percentiles of a histogram in one pass.
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

// percentileOf returns milliseconds, nil without measurements.
func percentileOf(h *hdrhistogram.PackedHistogram, percentile float64) *float64 {
	if h == nil {
		return nil
	}
	value := ms(microseconds(min(h.ValueAtPercentile(percentile), longest.Microseconds())))
	return &value
}
