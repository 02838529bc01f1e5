package judge

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Reach finds out whether the stores answer that the judge is to read at the end.
// "" stands for none.
func Reach(ctx context.Context, databaseURL, redisURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if databaseURL != "" {
		if _, err := PendingDeliveries(ctx, databaseURL); err != nil {
			return fmt.Errorf("the database cannot be read: %w", err)
		}
	}
	if redisURL == "" {
		return nil
	}
	o, err := redis.ParseURL(redisURL)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may hold a password
		}
		return fmt.Errorf("the address of Redis cannot be used: %w", err)
	}
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("Redis does not answer: %w", err)
	}
	return nil
}

// PendingDeliveries counts the deliveries in the database that are not settled:
// whoever waits for the end of a run has to wait for them too.
func PendingDeliveries(ctx context.Context, databaseURL string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE state = 'PENDING'").Scan(&n)
	return n, err
}
