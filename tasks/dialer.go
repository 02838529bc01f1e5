package tasks

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var errCutOff = errors.New("the connection to Redis was cut off to stop")

// cutter dials the connections of a client and can cut them all. It is there
// for a Redis that hangs: an asynq server waits without a timeout for the answer
// to its first subscription, and would then never stop.
type cutter struct {
	dialNext func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	conns map[*cutConn]struct{}
	isCut bool
}

func newCutter(timeout time.Duration, t *tls.Config) *cutter {
	return &cutter{
		dialNext: redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: t}),
		conns:    map[*cutConn]struct{}{},
	}
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialed, err := c.dialNext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &cutConn{Conn: dialed, cutter: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = dialed.Close()
		return nil, errCutOff
	}
	c.conns[conn] = struct{}{}
	if raw, ok := dialed.(syscall.Conn); ok {
		return rawConn{conn, raw}, nil
	}
	return conn, nil
}

// cut breaks every connection and refuses new ones.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for conn := range c.conns {
		_ = conn.Conn.Close()
	}
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c *cutConn) Close() error {
	c.cutter.mu.Lock()
	delete(c.cutter.conns, c)
	c.cutter.mu.Unlock()
	return c.Conn.Close()
}

// rawConn lets go-redis see the socket, by which it tells a connection that
// Redis closed before it uses it.
type rawConn struct {
	*cutConn
	raw syscall.Conn
}

func (c rawConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }
