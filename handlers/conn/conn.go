// Package conn wraps the connections of an HTTP server: one whose last request
// was not read to its end is drained before it closes, a waiting request learns
// when its client hangs up, and a shutdown closes connections on which nothing
// has come.
package conn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of what is drained. Closing with unread bytes would reset the
// connection and could destroy the answer on its way.
const (
	drainBytes = 8 << 20
	drainTime  = 2 * time.Second
)

// silentGrace is how long, at shutdown, a connection on which nothing has come
// yet may still bring the request for which it was opened.
const silentGrace = 250 * time.Millisecond

// Listener makes Conns and knows those on which nothing has come yet: HTTP
// clients open connections in advance, and fasthttp's shutdown would wait for
// them. Its Close may come twice.
type Listener struct {
	net.Listener
	once sync.Once
	err  error

	mu     sync.Mutex
	silent map[*Conn]struct{}
}

// NewListener wraps a listener.
func NewListener(l net.Listener) *Listener {
	return &Listener{Listener: l, silent: map[*Conn]struct{}{}}
}

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(accepted), nil
}

func (l *Listener) wrap(accepted net.Conn) *Conn {
	c := &Conn{Conn: accepted, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent[c] = struct{}{}
	return c
}

// Close closes the listener once, and after a grace the silent connections.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.err = l.Listener.Close()
		time.AfterFunc(silentGrace, l.closeSilent)
	})
	return l.err
}

func (l *Listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.silent {
		_ = c.Conn.Close()
	}
}

// Conn drains what the client still sends, within bounds, before it closes a
// connection whose last request was not read to its end.
type Conn struct {
	net.Conn
	// OnClose is called once by Close, if it is set.
	OnClose atomic.Pointer[func()]

	listener *Listener
	used     atomic.Bool // something was read, or the connection is closed
	drain    atomic.Bool
	ahead    []byte // what WhenGone has read; the next Read gives it
}

// Read reads what the client sends.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.markUsed()
	return n, err
}

// WhenGone calls gone if the client hangs up before stop is called. Meanwhile
// nobody else may read: a request is being handled that was read to its end. A
// client that sends the next one already is not watched any further.
func (c *Conn) WhenGone(gone func()) (stop func()) {
	if len(c.ahead) > 0 {
		return func() {}
	}
	_ = c.SetReadDeadline(time.Time{}) // not that of the request; the next one sets its own
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		n, err := c.Conn.Read(b[:])
		c.ahead = b[:n]
		if n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			gone()
		}
	}()
	return func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // long past: it wakes the read
		<-done
		_ = c.SetReadDeadline(time.Time{})
	}
}

func (c *Conn) markUsed() {
	if c.used.CompareAndSwap(false, true) {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		delete(c.listener.silent, c)
	}
}

// DrainOnClose says that the client has sent more than was read.
func (c *Conn) DrainOnClose() { c.drain.Store(true) }

// Close ends the connection; after an unread request only once the client has
// stopped sending, or the bounds are reached.
func (c *Conn) Close() error {
	c.markUsed()
	if f := c.OnClose.Swap(nil); f != nil {
		(*f)()
	}
	if c.drain.CompareAndSwap(true, false) {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, c.Conn, drainBytes)
	}
	return c.Conn.Close()
}

// Discard makes Close throw away what the client has not taken, instead of
// leaving it to the kernel to offer for minutes.
func (c *Conn) Discard() {
	c.drain.Store(false)
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}
