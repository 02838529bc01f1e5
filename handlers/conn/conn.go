// Package conn wraps the connections of an HTTP server: their number is bounded,
// one whose last request was not read to its end is drained before it closes, a
// waiting request learns when its client hangs up, and a shutdown closes
// connections on which nothing has come.
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

// Conn drains what the client still sends, within bounds, before it closes a
// connection whose last request was not read to its end.
type Conn struct {
	net.Conn
	// OnClose is called once by Close, if it is set.
	OnClose atomic.Pointer[func()]
	// Next is for who serves requests, to tell of the next one.
	Next any
	// EndsAfter ends what is sent once the answer is, while reading goes on.
	EndsAfter atomic.Bool

	listener *Listener
	used     atomic.Bool // something was read
	answered atomic.Bool // and the next request not yet waited for
	drain    atomic.Pointer[bounds]
	ahead    []byte // what WhenGone has read; the next Read gives it

	// Used by who reads.
	framing framing
	bounded bool
	left    int   // that may be read before the request is answered, if bounded
	refused error // of what was read last: no more is read

	// Guarded by the listener's mutex.
	source    netip.Addr // not valid if connections of its address are not counted
	forgotten bool
	in        *list.List    // of idle connections; nil: a request is under way
	element   *list.Element // in it
}

// Begin says that a request is under way: the connection is not closed to make
// room for others. End must follow when its answer is made, unless the
// connection is in use from then on.
func (c *Conn) Begin() {
	c.answered.Store(false)
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leave()
}

// AtMost bounds what is read until the request is answered: framing and trailers
// of a body in chunks have no length of their own.
func (c *Conn) AtMost(bytes int) { c.bounded, c.left = true, bytes }

// ErrTooMuch is the error of a Read beyond AtMost.
var ErrTooMuch = errors.New("the request takes too many bytes")

// Refused is why nothing more is read: ErrTooMuch, a FramingError, or nil. Servers hide what Read said.
func (c *Conn) Refused() error {
	if c.refused == nil && c.bounded && c.left <= 0 {
		return ErrTooMuch
	}
	return c.refused
}

// End says that the answer is made. The connection is idle as soon as the next
// request is waited for: by then the answer has been sent.
func (c *Conn) End() { c.answered.Store(true) }

// idle notes that the next request is waited for.
func (c *Conn) idle() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.forgotten {
		c.leave()
		c.enter(&c.listener.kept)
		if time.Now().Before(c.listener.refuses) {
			c.listener.end(c)
		}
	}
}

// Read reads what the client sends, as far as it is framed as requests must be.
func (c *Conn) Read(b []byte) (int, error) {
	if c.answered.CompareAndSwap(true, false) {
		c.idle()
		c.bounded = false
		if c.EndsAfter.Load() {
			c.closeWrite()
		}
	}
	if err := c.Refused(); err != nil {
		return 0, err
	}
	n, err := c.read(b)
	n, c.refused = c.framing.pass(b[:n])
	if n == 0 && c.refused != nil {
		err = c.refused
	}
	return n, err
}

func (c *Conn) read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.left -= n
	if !c.used.Load() {
		c.used.Store(true)
	}
	return n, err
}

// WhenGone calls gone if the client hangs up before stop is called. Meanwhile
// the connection must not be read: a request is being handled that was read to its end. A
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

// bounds of what is read of a request that is refused.
type bounds struct {
	bytes int64
	time  time.Duration
}

// DrainOnClose says that the client sends more than was read, and how much of
// that Close shall read. Closing with unread bytes resets the connection, which
// can destroy the answer on its way.
func (c *Conn) DrainOnClose(bytes int64, atMost time.Duration) { c.drain.Store(&bounds{bytes, atMost}) }

// Close ends the connection; after an unread request only once the client has
// stopped sending, or the bounds are reached.
func (c *Conn) Close() error {
	defer c.forget()
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

// Discard makes Close throw away what the client has not taken, instead of
// leaving it to the kernel to offer for minutes.
func (c *Conn) Discard() {
	c.drain.Store(nil)
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
}

func (c *Conn) forget() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.forget(c)
}
