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

// Latency sums up how long something took.
type Latency struct {
	Count                    int64
	Min, Mean, Max           time.Duration
	P50, P90, P95, P99, P999 time.Duration
	Distribution             []Quantile // ascending; empty in a Snapshot
}

// Quantile says that the share Q of all took at most Value.
type Quantile struct {
	Q     float64 // 0 to 1
	Value time.Duration
}

// distribution is where a percentile plot has its points: close together where few samples are left.
var distribution = []float64{
	0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.985,
	0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 0.9993, 0.9995, 0.9997, 0.9998, 0.9999, 0.99995, 0.99999, 1,
}

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

// distributionOf gives the percentiles that there are enough samples for.
func distributionOf(h *hdrhistogram.Histogram) []Quantile {
	if h.TotalCount() == 0 {
		return nil
	}
	var list []Quantile
	for _, q := range distribution {
		if beyond := (1 - q) * float64(h.TotalCount()); beyond < 1 && q < 1 {
			continue // the same sample as the maximum
		}
		list = append(list, Quantile{Q: q, Value: microseconds(min(h.ValueAtPercentile(q*100), longest.Microseconds()))})
	}
	return list
}

func tailOf(h *hdrhistogram.PackedHistogram) Tail {
	if h == nil {
		return Tail{}
	}
	p := h.ValueAtPercentilesSlice([]float64{50, 99})
	return Tail{Count: h.TotalCount(), P50: microseconds(p[0]), P99: microseconds(min(p[1], longest.Microseconds()))}
}
