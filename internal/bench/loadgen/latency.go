package loadgen

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/stack"
)

// NewHistogram is of microseconds, up to a minute.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// Record counts a latency; what is longer than a minute counts as a minute.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), time.Minute.Microseconds())) // it fits
}

// Quantile of a histogram of microseconds, in milliseconds.
func Quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1000
}

// Paced sends requests at a constant rate, whatever becomes of the ones before, and
// gives the times from when each was due to its answer.
func Paced(ctx context.Context, rate float64, during time.Duration, send func(i int) error) (*hdrhistogram.Histogram, error) {
	latency := NewHistogram()
	var mu sync.Mutex
	group, sending := errgroup.WithContext(ctx)
	started := time.Now()
	for i := range int(rate * during.Seconds()) {
		due := started.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if !stack.Sleep(sending, time.Until(due)) {
			break
		}
		group.Go(func() error {
			err := send(i)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			Record(latency, took)
			return err
		})
	}
	return latency, cmp.Or(group.Wait(), ctx.Err())
}
