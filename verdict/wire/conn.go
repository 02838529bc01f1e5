package wire

import (
	"net"
	"sync"
	"sync/atomic"
)

// net/http writes this before it reads the body of a request with "Expect: 100-continue".
const askForBody = "HTTP/1.1 100 Continue\r\n\r\n"

// Watched is a listener that wraps its connections in Conn.
type Watched struct{ net.Listener }

// Accept waits for a connection.
func (w Watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c}, nil
}

// Conn is a connection of a client. Arrives reports incoming bytes before they are read.
type Conn struct {
	net.Conn
	mu    sync.Mutex  // locked during a read
	first []byte      // the byte read by Arrives, for the next Read
	quiet atomic.Bool // whether to drop the next "100 Continue"
}

// NetConn returns the wrapped connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the sending side.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Read reads from the connection. After Arrives, it first returns the byte that Arrives took.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Arrives returns a channel that is closed when more bytes arrive or the connection ends. Do not call it during a Read.
func (c *Conn) Arrives() <-chan struct{} {
	arrived := make(chan struct{})
	c.mu.Lock()
	go func() {
		defer close(arrived)
		defer c.mu.Unlock()
		if len(c.first) == 0 {
			one := make([]byte, 1)
			n, _ := c.Conn.Read(one) // the next Read returns the error again
			c.first = one[:n]
		}
	}()
	return arrived
}

// Unasked makes Write drop the next "100 Continue". Call it if the client sends the body without waiting.
func (c *Conn) Unasked() { c.quiet.Store(true) }

// Write writes p, unless it is a "100 Continue" to drop.
func (c *Conn) Write(p []byte) (int, error) {
	if c.quiet.Load() && string(p) == askForBody && c.quiet.CompareAndSwap(true, false) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
