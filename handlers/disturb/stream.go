package disturb

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Stream disturbs an event stream on its way to a connection. Events are told apart by their empty line; comments and the
// head pass as they are.
type Stream struct {
	net.Conn
	effect  *fault.Effect
	resumed bool   // the reader named the last event that it has
	rest    []byte // of an event whose end has not been written
	count   int    // of events so far
	closed  chan struct{}
	close   func() error
}

// NewStream disturbs what is written to a connection.
func NewStream(c net.Conn, e *fault.Effect, resumed bool) *Stream {
	s := &Stream{Conn: c, effect: e, resumed: resumed, closed: make(chan struct{})}
	s.close = sync.OnceValue(func() error {
		close(s.closed)
		return c.Close()
	})
	return s
}

// Close closes the connection, and lets a stream go that has come to a halt.
func (s *Stream) Close() error { return s.close() }

var (
	endOfEvent = []byte("\n\n")
	fieldEvent = []byte("event: ")
	fieldData  = []byte("data: ")
	fieldID    = []byte("id: ")
	fieldRetry = []byte("retry: ")
)

// Write passes on what the effect leaves of b. It is called by one goroutine.
func (s *Stream) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		end := bytes.Index(s.rest, endOfEvent)
		if end < 0 {
			return len(b), nil
		}
		block := s.rest[:end+len(endOfEvent)]
		if err := s.pass(block); err != nil {
			return 0, err
		}
		s.rest = append(s.rest[:0], s.rest[len(block):]...)
	}
}

// eventOf gives the name of a block's event, "" if it has none.
func eventOf(block []byte) string {
	for line := range bytes.Lines(block) {
		if name, ok := bytes.CutPrefix(line, fieldEvent); ok {
			return string(bytes.TrimSpace(name))
		}
	}
	return ""
}

// pass writes a comment, the head, the position, or an event.
func (s *Stream) pass(block []byte) error {
	if name := eventOf(block); name == "" || name == stream.PositionEvent {
		return s.send(block)
	}
	e := s.effect
	n := s.count // events before this one
	s.count++
	switch {
	case e.CommentsOnly:
		return s.send([]byte(":\n\n"))
	case e.StallAfter != nil && n >= *e.StallAfter:
		s.ended(nil)
		<-s.closed // by the reader, or by the end of the process
		return net.ErrClosed
	case e.CutAfter != nil && n >= *e.CutAfter:
		return s.cut(nil)
	case e.HalfEventAfter != nil && n >= *e.HalfEventAfter:
		return s.cut(block[:len(block)/2])
	}
	block = s.rewritten(block)
	if err := s.send(block); err != nil {
		return err
	}
	if s.resumed && n < e.RepeatAfter {
		return s.send(block)
	}
	return nil
}

// rewritten changes the document in an event's data, which is one line.
func (s *Stream) rewritten(block []byte) []byte {
	at := bytes.Index(block, fieldData)
	if !s.effect.Rewrites() || at < 0 {
		return block
	}
	from := at + len(fieldData)
	to := from + bytes.IndexByte(block[from:], '\n')
	out := append(bytes.Clone(block[:from]), Rewrite(s.effect, block[from:to])...)
	return append(out, block[to:]...)
}

// ended notes that it is the fault by which the stream ends, with half of an event.
func (s *Stream) ended(half []byte) {
	if tap, ok := s.Conn.(*Tap); ok {
		tap.mu.Lock()
		defer tap.mu.Unlock()
		part := tap.exchange.Stream
		part.Cut = true
		for line := range bytes.Lines(half) {
			if id, ok := bytes.CutPrefix(line, fieldID); ok && bytes.HasSuffix(id, []byte("\n")) {
				part.Half = string(bytes.TrimSpace(id))
			}
		}
	}
}

func (s *Stream) cut(half []byte) error {
	s.ended(half)
	_ = s.send(half)
	_ = s.Close()
	return net.ErrClosed
}

// send writes slowly if the effect says so.
func (s *Stream) send(b []byte) error { return slowly(s.Conn, b, s.effect.SlowBytes) }

// slowly writes so many bytes a second; all at once if that is 0.
func slowly(c net.Conn, b []byte, perSecond int) error {
	if perSecond == 0 {
		_, err := c.Write(b)
		return err
	}
	const steps = 10 // a second
	piece := max(1, perSecond/steps)
	for len(b) > 0 {
		n := min(piece, len(b))
		began := time.Now()
		if err := c.SetWriteDeadline(began.Add(time.Minute)); err != nil {
			return err
		}
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(perSecond))
		}
	}
	return nil
}
