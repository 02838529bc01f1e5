package stack

import (
	"net"
	"sync"
	"sync/atomic"
)

// link is one connection through a proxy: the client's and the server's side.
type link struct {
	client, server net.Conn
	once           sync.Once
	gone           chan struct{}               // closed when both sides are
	delayed        atomic.Pointer[delay]       // the latest fault that delayed a piece
	losing         atomic.Pointer[lostAnswers] // the next answer is lost
}

// cut resets both sides, and what is on its way is lost. It reports whether the link was still there.
func (l *link) cut() bool { return l.close(reset) }

func (l *link) close(side func(net.Conn)) (was bool) {
	l.once.Do(func() {
		was = true
		side(l.client)
		side(l.server)
		close(l.gone)
	})
	return was
}

// shut closes a connection whose two directions have ended by themselves.
func shut(conn net.Conn) { _ = conn.Close() }

// reset closes a connection without delivering what is still on its way.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed at any rate
	}
	_ = conn.Close()
}

// lostAnswers is a fault: on each of some links the next answer is lost, so the client does not learn what the server
// did.
type lostAnswers struct {
	mu   sync.Mutex
	over bool
	lost int
	left int           // links whose answer is still to come
	done chan struct{} // closed when all answers are lost
}

// loseAnswers makes the next answer on each of the links be lost.
func loseAnswers(links []*link) *lostAnswers {
	x := &lostAnswers{left: len(links), done: make(chan struct{})}
	for _, l := range links {
		l.losing.Store(x)
	}
	return x
}

// end lets the answers that have not come pass, and returns how many were lost.
func (x *lostAnswers) end() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	return x.lost
}

// loseAnswer cuts the link if its next answer is to be lost. It reports whether the link is gone.
func (l *link) loseAnswer() bool {
	x := l.losing.Swap(nil)
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	if l.cut() {
		x.lost++
		if x.left--; x.left == 0 {
			close(x.done)
		}
	}
	return true
}
