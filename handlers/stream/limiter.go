package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Limiter bounds what clients hold open: event streams and waiting requests. A shutdown waits until all of them are closed.
type Limiter struct {
	perClient, total int

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	open   sync.WaitGroup

	mu       sync.Mutex
	held     int
	byClient map[job.ID]int // only clients that hold any
}

// NewLimiter makes a limiter for so many at once, and for so many of one client.
func NewLimiter(total, perClient int) *Limiter {
	l := &Limiter{perClient: perClient, total: total, byClient: map[job.ID]int{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context ends when the server shuts down, with Shutdown as its cause.
func (l *Limiter) Context() context.Context { return l.ctx }

// maxRetryAfter is the longest wait that is advised when the limit is reached.
const maxRetryAfter = 5 * time.Second

// reserve: this part of all is for clients that hold nothing yet, so that few clients leave some to the others. An address's
// connections limit how many it can hold with clients of its own.
const reserve = 10

// Acquire counts one more for a client until release is called, which may come twice. The error is a 429 where the client itself
// holds too many, and a 503 otherwise.
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
			"The server has nearly reached its limit of event streams. The remaining ones are for clients without a stream.")
	case l.held >= l.total:
		full = job.Errorf(job.CodeQueueFull, "The server has reached its limit of event streams.")
	}
	if full != nil {
		full.RetryAfter = time.Second + rand.N(maxRetryAfter-time.Second) // spread, so that they do not all come back at once
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

// Held counts what is held now, and the clients that hold it.
func (l *Limiter) Held() (total, clients int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, len(l.byClient)
}

// Close ends all that is held, and refuses more.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(Shutdown)
}

// Wait returns once nothing is held, or ctx ends.
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
