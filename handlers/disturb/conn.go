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

// Conn is the connection of an event stream. It disturbs the stream, records it, or both.
type Conn struct {
	net.Conn
	stream wire.Stream
	close  func() error
	turn   chan struct{} // semaphore: taken while a write is sent and recorded

	mu       sync.Mutex
	exchange *verdict.Exchange // nil if the stream is not recorded, or its record is finished
}

// NewConn returns a connection that applies the effect `e` to writes, and records them in `x`. Both may be nil. If `x` is not nil, `done`
// is called once, when the connection is closed and `x` is complete.
func NewConn(c net.Conn, e *fault.Effect, resumed bool, x *verdict.Exchange, done func()) *Conn {
	closed := make(chan struct{})
	s := &Conn{Conn: c, exchange: x, turn: make(chan struct{}, 1), stream: wire.Stream{
		To: c, Shape: &testbed.Shape, Effect: e, Resumed: resumed, Position: stream.PositionEvent, Closed: closed,
	}}
	s.stream.Note = s.note
	s.close = sync.OnceValue(func() error {
		close(closed)
		err := c.Close()
		go s.finish(done) // in the background, because `done` stores the exchange, and Close must not wait for storage
		return err
	})
	return s
}

// Close closes the connection, also during a stall.
func (s *Conn) Close() error { return s.close() }

// Write writes b with the changes of the effect. Only one goroutine may call it.
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

// finish completes the record of a stream. It waits for a write in progress, because a client may hang up before the write is recorded.
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
