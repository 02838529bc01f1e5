package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrRefused is of a Redis that answers, and takes no writes.
var ErrRefused = errors.New("it refuses writes")

const (
	readyKept = time.Second // for so long Ready remembers what it found, however often it is asked
	readyLife = time.Minute // of what it writes
)

// Ready reports whether Redis takes writes where these queues are: in a cluster other servers may work. It is asked for the same
// queues each time.
func (q *Queue) Ready(ctx context.Context, queues ...string) error {
	q.ready.mu.Lock()
	defer q.ready.mu.Unlock()
	if time.Since(q.ready.at) < readyKept {
		return q.ready.err
	}
	err := q.tryWrites(ctx, queues)
	if !errors.Is(ctx.Err(), context.Canceled) { // the caller still waits
		q.ready.at, q.ready.err = time.Now(), err
	}
	return err
}

func (q *Queue) tryWrites(ctx context.Context, queues []string) error {
	for _, name := range queues {
		err := q.redis.Client.Set(ctx, "forgerun:{"+name+"}:ready", 1, readyLife).Err()
		var refused redis.Error // an answer, unlike a broken connection
		if errors.As(err, &refused) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if err != nil {
			return q.redis.Failed("ready", err)
		}
	}
	return nil
}
