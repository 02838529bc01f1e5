package wire

import (
	"net"
	"sync"
	"time"
)

// reopenPause is the pause before another attempt to open an address that is in use.
const reopenPause = 20 * time.Millisecond

// Listener is a TCP listener with a socket that can be closed for a time, as if a server restarted.
type Listener struct {
	Changed func(open bool) // called with false after Refuse closed the socket, and with true before Accept continues; may be nil

	mu     sync.Mutex
	socket net.Listener
	opened chan struct{} // nil while the socket is open; closed when Accept may continue
	closed bool
}

// Listen opens a socket.
func Listen(address string) (*Listener, error) {
	socket, err := net.Listen("tcp", address)
	return &Listener{socket: socket}, err
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket.Addr()
}

// Accept waits for a connection. It also waits while Refuse keeps the socket closed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		socket, opened := l.socket, l.opened
		l.mu.Unlock()
		if opened != nil {
			<-opened
			l.mu.Lock()
			socket = l.socket
			l.mu.Unlock()
		}
		c, err := socket.Accept()
		if err == nil || !l.again(socket) {
			return c, err
		}
	}
}

// again reports whether Accept must try again, because Refuse closed the socket or a new socket replaced it.
func (l *Listener) again(failed net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && (l.opened != nil || l.socket != failed)
}

// Refuse closes the socket for the duration d, so that the system refuses connections. It has no effect while the socket is closed.
func (l *Listener) Refuse(d time.Duration) {
	l.mu.Lock()
	if l.closed || l.opened != nil {
		l.mu.Unlock()
		return
	}
	opened := make(chan struct{})
	l.opened = opened
	_ = l.socket.Close()
	l.mu.Unlock()
	l.changed(false)
	time.AfterFunc(d, func() { l.open(opened) })
}

// Reopen ends Refuse early: it opens the socket at once.
func (l *Listener) Reopen() {
	l.mu.Lock()
	opened := l.opened
	l.mu.Unlock()
	if opened != nil {
		l.open(opened)
	}
}

// open opens the socket again, unless another call already did. If the address is in use, it retries later.
func (l *Listener) open(opened chan struct{}) {
	l.mu.Lock()
	done := l.closed || l.opened != opened
	l.mu.Unlock()
	if done {
		return
	}
	socket, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		time.AfterFunc(reopenPause, func() { l.open(opened) })
		return
	}
	l.changed(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.opened != opened {
		_ = socket.Close()
		return
	}
	l.socket = socket
	l.reopened()
}

// The caller of reopened holds the lock.
func (l *Listener) reopened() {
	if l.opened != nil {
		close(l.opened)
		l.opened = nil
	}
}

func (l *Listener) changed(open bool) {
	if l.Changed != nil {
		l.Changed(open)
	}
}

// Close closes the socket permanently.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	if l.opened != nil { // the socket is already closed
		l.reopened()
		return nil
	}
	return l.socket.Close()
}

// Reset ends a connection with a TCP reset, even if it uses TLS. Unread data is lost.
func Reset(c net.Conn) {
	for upper, ok := c.(interface{ NetConn() net.Conn }); ok; upper, ok = c.(interface{ NetConn() net.Conn }) {
		c = upper.NetConn()
	}
	if tcp, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
