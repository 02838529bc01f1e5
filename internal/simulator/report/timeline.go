package report

import (
	"cmp"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A time series begins with one point per second. When it has maxPoints points, each pair of points is merged, and later steps last twice
// as long. This limits memory use.
const (
	firstStep = time.Second
	maxPoints = 600
)

// point has the totals at the end of a step. `submit` and `finish` are histograms of the latencies measured during the step; nil if there
// are none.
type point struct {
	Numbers
	submit, finish *hdrhistogram.PackedHistogram
}

type timeline struct {
	start  time.Time
	step   time.Duration
	points []point
}

// advance ends the steps that are over at `now`. The caller must hold r.mu.
func (r *Recorder) advance(now time.Time) {
	l := &r.line
	for !now.Before(l.start.Add(time.Duration(len(l.points)+1) * l.step)) {
		r.endStep()
		if len(l.points) < maxPoints {
			continue
		}
		for i := range maxPoints / 2 {
			a, b := l.points[2*i], l.points[2*i+1]
			l.points[i] = point{b.Numbers, merged(a.submit, b.submit), merged(a.finish, b.finish)}
		}
		clear(l.points[maxPoints/2:]) // so that the histograms of removed points can be freed
		l.points, l.step = l.points[:maxPoints/2], 2*l.step
	}
}

func (r *Recorder) endStep() {
	r.line.points = append(r.line.points, point{r.now.clone(), r.submit.step, r.finish.step})
	r.submit.step, r.finish.step = nil, nil
}

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
	return Series{
		StepMS: ms(l.step), Arrivals: counted(func(p point) int64 { return p.Arrivals }),
		Taken:     counted(func(p point) int64 { return p.Deliveries.Taken }),
		NotTaken:  counted(func(p point) int64 { return p.Deliveries.NotTaken }),
		Workers:   held(func(p point) int64 { return p.Workers }),
		States:    named(func(p point) map[string]int64 { return p.States }, held),
		Answers:   named(func(p point) map[string]int64 { return p.Answers }, counted),
		Finished:  named(func(p point) map[string]int64 { return p.Finished }, counted),
		SubmitP50: column(l.points, func(p point) *float64 { return percentileOf(p.submit, 50) }),
		SubmitP99: column(l.points, func(p point) *float64 { return percentileOf(p.submit, 99) }),
		FinishP50: column(l.points, func(p point) *float64 { return percentileOf(p.finish, 50) }),
		FinishP99: column(l.points, func(p point) *float64 { return percentileOf(p.finish, 99) }),
	}
}

func column[T any](points []point, value func(point) T) []T {
	list := make([]T, len(points))
	for i, p := range points {
		list[i] = value(p)
	}
	return list
}

// Limits of a histogram. Durations outside these limits are recorded as the nearest limit.
const (
	shortest = time.Microsecond
	longest  = time.Hour
)

// latencies has histograms of the whole run (three significant digits) and of the current step (two). `step` is nil until a duration is
// recorded in the current step.
type latencies struct {
	all  *hdrhistogram.Histogram
	step *hdrhistogram.PackedHistogram
}

func newLatencies() latencies {
	return latencies{all: hdrhistogram.New(shortest.Microseconds(), longest.Microseconds(), 3)}
}

func (l *latencies) add(took time.Duration) {
	if l.step == nil {
		l.step = hdrhistogram.NewPacked(shortest.Microseconds(), longest.Microseconds(), 2)
	}
	n := min(max(took, shortest), longest).Microseconds() // within the limits, so recording cannot fail
	_, _ = l.all.RecordValue(n), l.step.RecordValue(n)
}

func merged(a, b *hdrhistogram.PackedHistogram) *hdrhistogram.PackedHistogram {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	a.Merge(b)
	a.Compact()
	return a
}

// percentileOf returns a percentile in milliseconds, or nil without measurements.
func percentileOf(h *hdrhistogram.PackedHistogram, percentile float64) *float64 {
	if h == nil {
		return nil
	}
	return new(ms(microseconds(min(h.ValueAtPercentile(percentile), longest.Microseconds()))))
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func (l latencies) sum() Latency {
	if l.all.TotalCount() == 0 {
		return Latency{}
	}
	p := l.all.ValueAtPercentilesSlice([]float64{50, 90, 95, 99, 99.9})
	return Latency{
		Count: l.all.TotalCount(), Min: microseconds(l.all.Min()), Max: microseconds(min(l.all.Max(), longest.Microseconds())),
		Mean: time.Duration(l.all.Mean() * float64(time.Microsecond)),
		P50:  microseconds(p[0]), P90: microseconds(p[1]), P95: microseconds(p[2]), P99: microseconds(p[3]), P999: microseconds(p[4]),
	}
}
