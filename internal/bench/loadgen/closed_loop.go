package loadgen

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// Closed is a closed loop: each client submits its next job when the one before is
// answered and the gate lets it through.
type Closed struct {
	Clients int
	During  time.Duration // 0: until Jobs are submitted
	Jobs    int           // 0: until During is over
	Gate    *Gate         // nil: always open
}

// Load is what the clients saw.
type Load struct {
	Accepted int
	Took     time.Duration
	Latency  *hdrhistogram.Histogram // of accepted requests
}

// Rate is per second.
func (l Load) Rate() float64 { return float64(l.Accepted) / l.Took.Seconds() }

// Quantile of the latency.
func (l Load) Quantile(q float64) time.Duration { return Quantile(l.Latency, q) }

// Submit submits jobs. A client that fails ends the others.
func (c Closed) Submit(ctx context.Context, to Target) (Load, error) {
	client := NewClient(c.Clients)
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	if c.Gate != nil {
		defer context.AfterFunc(ctx, c.Gate.unlock)()
		defer time.AfterFunc(c.During, c.Gate.unlock).Stop()
	}
	var mu sync.Mutex
	total := Load{Latency: NewHistogram()}
	started := time.Now()
	var begun atomic.Int64
	over := func(now time.Time) bool {
		return c.During > 0 && now.Sub(started) >= c.During || c.Jobs > 0 && begun.Add(1) > int64(c.Jobs)
	}
	for range c.Clients {
		group.Go(func() error {
			accepted, latency, err := c.submitUntil(ctx, NewSubmission(client, to), over)
			mu.Lock()
			defer mu.Unlock()
			total.Accepted += accepted
			total.Latency.Merge(latency)
			return err
		})
	}
	err := group.Wait()
	total.Took = time.Since(started)
	return total, err
}

func (c Closed) submitUntil(ctx context.Context, s Submission, over func(time.Time) bool) (int, *hdrhistogram.Histogram, error) {
	latency := NewHistogram()
	for accepted := 0; ; accepted++ {
		if err := c.Gate.enter(ctx); err != nil {
			return accepted, latency, err
		}
		sent := time.Now()
		if over(sent) {
			return accepted, latency, nil
		}
		if err := s.Send(); err != nil {
			return accepted, latency, err
		}
		Record(latency, time.Since(sent))
	}
}
