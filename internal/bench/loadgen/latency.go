package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// NewHistogram is of microseconds, up to a minute.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// Record counts a latency; what is longer than a minute counts as a minute.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), time.Minute.Microseconds())) // it fits
}

// Quantile of a histogram of microseconds.
func Quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}

// Milliseconds converts for a figure.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Round shortens a latency for the log.
func Round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// Latencies are histograms by the status of the answer; status 0 is no answer.
type Latencies map[int]*hdrhistogram.Histogram

func (l Latencies) of(status int) *hdrhistogram.Histogram {
	if l[status] == nil {
		l[status] = NewHistogram()
	}
	return l[status]
}

func (l Latencies) merge(other Latencies) {
	for status, h := range other {
		l.of(status).Merge(h)
	}
}

// all answers with the given statuses.
func (l Latencies) all(statuses ...int) *hdrhistogram.Histogram {
	h := NewHistogram()
	for _, status := range statuses {
		if l[status] != nil {
			h.Merge(l[status])
		}
	}
	return h
}

// Quantile of all answers with the given statuses; 0 if there are none.
func (l Latencies) Quantile(q float64, statuses ...int) time.Duration {
	return Quantile(l.all(statuses...), q)
}
