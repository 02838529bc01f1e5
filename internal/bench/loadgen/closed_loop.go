package loadgen

import (
	"cmp"
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

// Submit submits jobs. A client that fails ends the others.
func (c Closed) Submit(ctx context.Context, to Target) (Load, error) {
	client := NewClient(c.Clients)
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	timed := ctx
	if c.During > 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeout(ctx, c.During)
		defer cancel()
	}
	var mu sync.Mutex
	var begun atomic.Int64
	total := Load{Latency: NewHistogram()}
	started := time.Now()
	for range c.Clients {
		group.Go(func() error {
			own, err := c.submitUntil(timed, NewSubmission(client, to), &begun)
			mu.Lock()
			defer mu.Unlock()
			total.Latency.Merge(own)
			return cmp.Or(err, ctx.Err())
		})
	}
	err := group.Wait()
	total.Accepted, total.Took = int(total.Latency.TotalCount()), time.Since(started)
	return total, err
}

// submitUntil submits until the context ends, all jobs are begun or one fails.
func (c Closed) submitUntil(ctx context.Context, s Submission, begun *atomic.Int64) (*hdrhistogram.Histogram, error) {
	accepted := NewHistogram()
	for c.Gate.enter(ctx) == nil && (c.Jobs == 0 || begun.Add(1) <= int64(c.Jobs)) {
		sent := time.Now()
		if err := s.Send(); err != nil {
			return accepted, err
		}
		Record(accepted, time.Since(sent))
	}
	return accepted, nil
}

// Gate bounds the jobs that are submitted and have not finished. A nil gate is open.
type Gate struct {
	unfinished chan struct{}
	finished   int
}

// NewGate lets so many jobs through before the first has finished.
func NewGate(bound int) *Gate { return &Gate{unfinished: make(chan struct{}, bound)} }

// enter waits until one more may be submitted.
func (g *Gate) enter(ctx context.Context) error {
	if g != nil {
		select {
		case g.unfinished <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Update sets how many have finished in all. It is called by one goroutine.
func (g *Gate) Update(finished int) {
	for ; g.finished < finished; g.finished++ {
		select {
		case <-g.unfinished:
		default: // the job did not come through the gate
		}
	}
}
