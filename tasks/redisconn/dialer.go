package redisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

var errCutOff = errors.New("the connection to Redis was cut off to stop")

// Cutter dials the connections of a client and can cut them all. It is there
// for a Redis that hangs: an asynq server waits without a timeout for the answer
// to its first subscription, and would then never stop.
type Cutter struct {
	dialNext func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	conns map[*cutConn]struct{}
	isCut bool
}

// NewCutter makes a cutter for a client of its own.
func (r *Redis) NewCutter() *Cutter {
	return &Cutter{
		dialNext: redis.NewDialer(&redis.Options{DialTimeout: r.Timeout, TLSConfig: r.address.TLSConfig}),
		conns:    map[*cutConn]struct{}{},
	}
}

// Dial is the Dialer of the client's options.
func (c *Cutter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
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

// Cut breaks every connection and refuses new ones.
func (c *Cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for conn := range c.conns {
		_ = conn.Conn.Close()
	}
}

type cutConn struct {
	net.Conn
	cutter *Cutter
}

func (c *cutConn) Close() error {
	c.cutter.mu.Lock()
	delete(c.cutter.conns, c)
	c.cutter.mu.Unlock()
	return c.Conn.Close()
}

// rawConn lets go-redis see the socket, by which it recognizes a connection that
// Redis has closed before it uses it.
type rawConn struct {
	*cutConn
	syscall.Conn
}
