// Package conn adds what fasthttp lacks. It limits the number of connections, and closes idle connections to make room for new ones. It
// checks request framing strictly. It delivers responses even if the request body is unread, and detects clients that hang up.
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
	OnClose   atomic.Pointer[func()] // called once by Close; may be nil
	Next      any                    // a handler can store a value here for the next request on this connection
	EndsAfter atomic.Bool            // if true, the write side is closed after the response, but reading continues

	listener *Listener
	used     atomic.Bool
	answered atomic.Bool // the response is complete, and the next read has not started
	drain    atomic.Pointer[bounds]
	ahead    []byte // bytes read by WhenGone, for the next Read
	framing  framing
	refused  error // why Read has stopped reading; nil while Read still reads

	// Protected by the listener's mutex.
	source    netip.Addr // address or network that the limit per address counts, see Source; zero: the limit does not apply
	forgotten bool
	in        *list.List // the idle list that contains this connection; nil during a request
	element   *list.Element
}

// Refused returns why reading has stopped: ErrTooMuch, a FramingError, or nil. Handlers need this because fasthttp hides the error that
// Read returned.
func (c *Conn) Refused() error { return c.refused }

// Begin marks the connection as busy, so that it is not closed to make room for new connections. Call End when the response is complete,
// except after the start of a stream.
func (c *Conn) Begin() {
	c.answered.Store(false)
	c.move(nil)
}

// End marks the response as complete. The connection becomes idle at the next Read, because only then the response has surely been sent.
func (c *Conn) End() { c.answered.Store(true) }

// move puts the connection into the list `idle`, or into no list if `idle` is nil. For some time after Listener.Refuse, move closes
// connections that become idle.
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

func (c *Conn) enter(idle *list.List) {
	if c.in != nil {
		c.in.Remove(c.element)
	}
	if c.in = idle; idle != nil {
		c.element = idle.PushBack(c)
	}
}

// Read reads from the client as long as the requests are framed correctly.
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

// WhenGone calls `gone` if the client hangs up before a call of `stop`. Call WhenGone after the whole request has been read. Call `stop`
// before the next Read. WhenGone stops watching when the client sends its next request.
func (c *Conn) WhenGone(gone func()) (stop func()) {
	if len(c.ahead) > 0 {
		return func() {}
	}
	_ = c.SetReadDeadline(time.Time{})
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
		_ = c.SetReadDeadline(time.Unix(1, 0)) // a deadline in the past ends the read
		<-done
		_ = c.SetReadDeadline(time.Time{})
	}
}

type bounds struct {
	bytes int64
	time  time.Duration
}

// DrainOnClose makes Close read what the client still sends, within the given bounds. Closing with unread bytes resets the connection,
// which can destroy the response on its way.
func (c *Conn) DrainOnClose(bytes int64, atMost time.Duration) { c.drain.Store(&bounds{bytes, atMost}) }

// Close closes the connection. After DrainOnClose it first waits until the client stops sending or the bounds are reached.
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

// Discard makes Close drop unsent data. Otherwise the kernel would retransmit it for minutes.
func (c *Conn) Discard() {
	c.drain.Store(nil)
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}
