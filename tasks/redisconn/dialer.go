package redisconn

import (
	"context"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// DialUntil returns a dialer that closes its connections when ctx ends. asynq's server waits for its first subscription without a
// timeout. While Redis hangs, only closing the connection ends this wait. Closing the client does not close connections that are still
// being opened.
func (r *Redis) DialUntil(ctx context.Context) func(context.Context, string, string) (net.Conn, error) {
	next := redis.NewDialer(&redis.Options{DialTimeout: r.Timeout, TLSConfig: r.address.TLSConfig})
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		dialed, err := next(dialing, network, addr)
		if err != nil {
			return nil, err
		}
		conn := cutConn{dialed, context.AfterFunc(ctx, func() { _ = dialed.Close() })}
		if raw, ok := dialed.(syscall.Conn); ok {
			return rawConn{conn, raw}, nil
		}
		return conn, nil
	}
}

type cutConn struct {
	net.Conn
	forget func() bool
}

func (c cutConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// rawConn keeps the method SyscallConn, by which go-redis detects closed connections.
type rawConn struct {
	cutConn
	syscall.Conn
}
