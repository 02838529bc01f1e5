package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Limiter limits the event streams and waiting requests of clients.
type Limiter struct {
	perClient, total int

	ctx    context.Context // canceled by Close
	cancel context.CancelCauseFunc
	open   sync.WaitGroup

	mu       sync.Mutex
	held     int
	byClient map[job.ID]int // number of streams and waiting requests; clients without any are removed
}

// NewLimiter returns a limiter with a limit in total and per client.
func NewLimiter(total, perClient int) *Limiter {
	l := &Limiter{perClient: perClient, total: total, byClient: map[job.ID]int{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that ends when the server shuts down, with Shutdown as its cause.
func (l *Limiter) Context() context.Context { return l.ctx }

// maxRetryAfter is the maximum Retry-After of a refusal by the limiter.
const maxRetryAfter = 5 * time.Second

// A tenth of all places is kept for clients that have no stream or waiting request yet. Otherwise, a few clients could take all places. The
// limit of connections per address restricts an attacker with many clients.
const reserve = 10

// Acquire counts one more stream or waiting request of a client until `release` is called. A second call of `release` does nothing. The
// error is a 429 if the client's limit is reached, and a 503 otherwise.
func (l *Limiter) Acquire(client job.ID) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var full *job.Error
	switch {
	case l.ctx.Err() != nil:
		full = job.Errorf(job.CodeStorageUnavailable, "The server is shutting down.")
	case l.byClient[client] >= l.perClient:
		full = job.Errorf(job.CodeRateLimited, "This client has reached its limit of %d event streams and waiting requests.", l.perClient)
	case l.byClient[client] > 0 && l.held >= l.total-l.total/reserve:
		full = job.Errorf(job.CodeQueueFull,
			"The server has nearly reached its limit of event streams. The remaining ones are reserved for clients without a stream.")
	case l.held >= l.total:
		full = job.Errorf(job.CodeQueueFull, "The server has reached its limit of event streams.")
	}
	if full != nil {
		full.RetryAfter = time.Second + rand.N(maxRetryAfter-time.Second) // random, so that clients do not all return at once
		return nil, full
	}
	l.held++
	l.byClient[client]++
	l.open.Add(1)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held--
		if l.byClient[client]--; l.byClient[client] == 0 {
			delete(l.byClient, client)
		}
		l.open.Done()
	}), nil
}

// Held returns the number of streams and waiting requests, and the number of their clients.
func (l *Limiter) Held() (total, clients int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, len(l.byClient)
}

// Close ends all streams and waiting requests, and refuses new ones.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(Shutdown)
}

// Wait returns when all streams and waiting requests have ended, or ctx ends.
func (l *Limiter) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.open.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
