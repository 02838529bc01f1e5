package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

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
