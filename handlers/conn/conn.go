// Package conn keeps what fasthttp's own limits do not: room for new connections while others hold many open, one reading of where a
// request ends, answers that arrive although a body was not read, and word of clients that hang up.
package conn

import (
	"container/list"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	OnClose   atomic.Pointer[func()] // called once by Close; nil: nothing
	Next      any                    // what a request leaves for the next one
	EndsAfter atomic.Bool            // the side that sends ends after the answer, while reading goes on

	listener *Listener
	used     atomic.Bool // something was read
	answered atomic.Bool // and the next request not yet waited for
	drain    atomic.Pointer[bounds]
	ahead    []byte // what WhenGone has read; the next Read returns it
	framing  framing
	refused  error // of what was read last: no more is read

	// Protected by the listener's mutex.
	source    netip.Addr // not valid if connections of its address are not counted
	forgotten bool
	in        *list.List    // of idle connections; nil: a request is under way
	element   *list.Element // in it
}

// Refused returns why nothing more is read: ErrTooMuch, a FramingError, or nil. Servers hide what Read said.
func (c *Conn) Refused() error { return c.refused }

// Begin keeps the connection from being closed to make room for others. End must follow when the request's answer is made, unless the
// connection stays in use.
func (c *Conn) Begin() {
	c.answered.Store(false)
	c.move(nil)
}

// End notes that the answer is made. The connection is idle as soon as the next request is waited for: by then the answer has been sent.
func (c *Conn) End() { c.answered.Store(true) }

// move puts the connection into a list of idle ones, or with nil in none.
func (c *Conn) move(idle *list.List) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.forgotten {
		return
	}
	c.enter(idle)
	if idle != nil && time.Now().Before(c.listener.refuses) {
		c.listener.end(c)
	}
}

// enter puts the connection at the end of a list, and takes it out of the one that it is in.
func (c *Conn) enter(idle *list.List) {
	if c.in != nil {
		c.in.Remove(c.element)
	}
	if c.in = idle; idle != nil {
		c.element = idle.PushBack(c)
	}
}

// Read reads what the client sends, as far as it is framed as requests must be.
func (c *Conn) Read(b []byte) (n int, err error) {
	if c.answered.CompareAndSwap(true, false) {
		c.move(&c.listener.kept)
		if c.EndsAfter.Load() {
			c.closeWrite()
		}
	}
	if c.refused != nil {
		return 0, c.refused
	}
	if len(c.ahead) > 0 {
		n = copy(b, c.ahead)
		c.ahead = c.ahead[n:]
	} else {
		n, err = c.Conn.Read(b)
		c.used.Store(true)
	}
	n, c.refused = c.framing.pass(b[:n])
	if n == 0 && c.refused != nil {
		err = c.refused
	}
	return n, err
}

// WhenGone calls gone if the client hangs up before stop is called. Meanwhile the connection must not be read: the request was read to
// its end. A client that already sends the next one is not watched any further.
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

// bounds of what is read of a request that is refused.
type bounds struct {
	bytes int64
	time  time.Duration
}

// DrainOnClose makes Close read so much of what the client still sends. Closing with unread bytes resets the connection, which can
// destroy the answer on its way.
func (c *Conn) DrainOnClose(bytes int64, atMost time.Duration) { c.drain.Store(&bounds{bytes, atMost}) }

// Close ends the connection; after an unread request only once the client has stopped sending, or the bounds are reached.
func (c *Conn) Close() error {
	defer func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.forget(c)
	}()
	if f := c.OnClose.Swap(nil); f != nil {
		(*f)()
	}
	if limit := c.drain.Swap(nil); limit != nil {
		c.closeWrite()
		_ = c.SetReadDeadline(time.Now().Add(limit.time))
		_, _ = io.CopyN(io.Discard, c.Conn, limit.bytes)
	}
	return c.Conn.Close()
}

func (c *Conn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// Discard makes Close throw away what the client has not taken, instead of leaving it to the kernel to offer for minutes.
func (c *Conn) Discard() {
	c.drain.Store(nil)
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}
