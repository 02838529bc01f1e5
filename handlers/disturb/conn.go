package disturb

import (
	"errors"
	"net"
	"sync"

	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// Conn is a connection with an event stream that is disturbed, recorded, or both.
type Conn struct {
	net.Conn
	stream wire.Stream
	close  func() error
	turn   chan struct{} // holds a value while something is written and noted

	mu       sync.Mutex
	exchange *verdict.Exchange // nil: not recorded, or over
}

// NewConn disturbs what is written to a connection, unless e is nil, and notes in the exchange, unless that is nil, what went out.
// It calls done once, after the connection was closed.
func NewConn(c net.Conn, e *fault.Effect, resumed bool, x *verdict.Exchange, done func()) *Conn {
	closed := make(chan struct{})
	s := &Conn{Conn: c, exchange: x, turn: make(chan struct{}, 1), stream: wire.Stream{
		To: c, Shape: &testbed.Shape, Effect: e, Resumed: resumed, Position: stream.PositionEvent, Closed: closed,
	}}
	s.stream.Note = s.note
	s.close = sync.OnceValue(func() error {
		close(closed)
		err := c.Close()
		go s.finish(done) // who closes does not wait for storage
		return err
	})
	return s
}

// Close closes the connection, and lets a stream go that was stalled.
func (s *Conn) Close() error { return s.close() }

// Write writes what the effect leaves of b. It is called by one goroutine.
func (s *Conn) Write(b []byte) (int, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	n, err := s.stream.Write(b)
	if errors.Is(err, wire.ErrEnded) {
		if s.stream.Effect.Reset {
			discard(s.Conn)
		}
		_ = s.Close()
		err = net.ErrClosed
	}
	return n, err
}

func (s *Conn) note(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.stream.Effect; {
	case s.exchange == nil:
	case e != nil && e.Rewrites():
		testbed.Shape.Rewritten(e, data, s.exchange)
	default:
		testbed.Shape.Jobs(data, s.exchange)
	}
}

// finish tells of the end of a stream that is recorded. Nothing is noted any more but what is being written: a client may have read that,
// and hung up, before it is noted.
func (s *Conn) finish(done func()) {
	s.turn <- struct{}{}
	part := s.stream.Part()
	s.mu.Lock()
	x := s.exchange
	s.exchange = nil
	s.mu.Unlock()
	<-s.turn
	if x != nil {
		x.Stream = part
		done()
	}
}
