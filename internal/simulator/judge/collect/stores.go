package collect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

var silenceRedis = sync.OnceFunc(logging.Disable) // the library writes to the terminal by itself

// CheckStores tries the stores that are to be read at the end; "" stands for none.
func CheckStores(ctx context.Context, databaseURL, redisURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if databaseURL != "" {
		if _, err := PendingDeliveries(ctx, databaseURL, nil, time.Now()); err != nil {
			return fmt.Errorf("the database cannot be read: %s", strings.Join(strings.Fields(err.Error()), " ")) // on one line
		}
	}
	if redisURL == "" {
		return nil
	}
	rdb, err := openRedis(redisURL)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the Redis server does not answer: %w", err)
	}
	return nil
}

func openRedis(address string) (*redis.Client, error) {
	silenceRedis()
	o, err := redis.ParseURL(address)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may hold a password
		}
		return nil, fmt.Errorf("the address of Redis cannot be used: %w", err)
	}
	o.DialerRetries = 1 // it answers, or it is missing
	return redis.NewClient(o), nil
}

// PendingDeliveries counts the pending deliveries of the clients or, if none is
// named, all those since the given time: the end of a run waits for them.
func PendingDeliveries(ctx context.Context, databaseURL string, clientIDs []string, since time.Time) (n int64, err error) {
	err = connected(ctx, databaseURL, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT count(*) FROM deliveries WHERE state = 'PENDING'
			AND CASE WHEN cardinality($1::uuid[]) > 0 THEN client_id = ANY ($1) ELSE created_at >= $2 END`, clientIDs, since).Scan(&n)
	})
	return n, err
}
