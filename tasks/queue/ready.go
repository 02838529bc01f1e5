package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrRefused is returned if Redis responds but refuses writes.
var ErrRefused = errors.New("it refuses writes")

const (
	readyKept = time.Second
	readyLife = time.Minute // expiry of the key that Ready writes
)

// Ready returns an error unless Redis accepts writes to each queue. In a cluster, the queues may be on different servers. Each call must
// name the same queues, because the result is cached for a second.
func (q *Queue) Ready(ctx context.Context, queues ...string) error {
	q.ready.mu.Lock()
	defer q.ready.mu.Unlock()
	if time.Since(q.ready.at) < readyKept {
		return q.ready.err
	}
	err := q.tryWrites(ctx, queues)
	if !errors.Is(ctx.Err(), context.Canceled) { // if the caller gave up, the error says nothing about Redis
		q.ready.at, q.ready.err = time.Now(), err
	}
	return err
}

func (q *Queue) tryWrites(ctx context.Context, queues []string) error {
	for _, name := range queues {
		err := q.redis.Client.Set(ctx, "forgerun:{"+name+"}:ready", 1, readyLife).Err()
		var refused redis.Error
		if errors.As(err, &refused) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if err != nil {
			return q.redis.Failed("ready", err)
		}
	}
	return nil
}
