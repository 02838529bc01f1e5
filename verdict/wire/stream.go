package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
)

// ErrEnded reports that a fault has ended a stream. The caller must close the connection.
var ErrEnded = errors.New("a fault ended the stream")

// maxBlock is the maximum size of an event that is buffered until it is complete. A longer event passes unchanged, and the jobs in it are
// not recorded.
const maxBlock = 1 << 20

// unread is the time that a client may need to read an event. If a fault cuts the stream, the client may lose the events that were sent
// less than this time before the cut.
const unread = 50 * time.Millisecond

func read(at time.Time) bool { return time.Since(at) >= unread }

// Stream passes an event stream on, applies a fault, and records the sent events. Comments pass unchanged.
type Stream struct {
	To       io.Writer
	Shape    *Shape            // required if Effect is not nil
	Effect   *fault.Effect     // nil: only record the stream
	Resumed  bool              // whether the reader sent the id of its last event
	Position string            // name of the events that carry nothing but an id for Last-Event-ID; faults do not count these events
	Note     func(data []byte) // receives the original data of each sent event; may be nil
	Closed   <-chan struct{}   // ends a stalled stream

	rest  []byte // incomplete block
	begun bool   // whether the retry line of Effect.StreamRetry was sent
	count int

	mu    sync.Mutex
	part  verdict.Part
	fresh []time.Time // when the ids of the last 50 ms were sent
}

// Part returns the record of the sent events so far.
func (s *Stream) Part() *verdict.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.part
	part.IDs = slices.Clone(part.IDs)
	return &part
}

// Write writes b to To, changed by Effect. Only one goroutine may call it.
func (s *Stream) Write(b []byte) (int, error) {
	n := len(b)
	if s.Effect != nil && s.Effect.Close == fault.AfterCommit { // the client gets nothing
		s.ended(nil)
		return 0, ErrEnded
	}
	if s.Effect == nil {
		var err error
		if n, err = s.To.Write(b); err != nil {
			return n, err
		}
	}
	s.rest = append(s.rest, b[:n]...)
	for {
		end := endOfBlock(s.rest)
		if end < 0 && len(s.rest) < maxBlock {
			return len(b), nil
		}
		if end < 0 {
			end = len(s.rest)
		}
		if err := s.block(s.rest[:end]); err != nil {
			return 0, err
		}
		s.rest = append(s.rest[:0], s.rest[end:]...)
	}
}

// Flush passes on the incomplete last block at the end of a stream.
func (s *Stream) Flush() error {
	if s.Effect == nil || len(s.rest) == 0 {
		return nil
	}
	_, err := s.To.Write(s.rest)
	s.rest = nil
	return err
}

func (s *Stream) block(block []byte) error {
	if s.Effect != nil {
		return s.pass(block)
	}
	s.note(parse(block))
	return nil
}

func (s *Stream) pass(block []byte) error {
	e := s.Effect
	if e.StreamRetry > 0 && !bytes.HasPrefix(block, []byte("HTTP/")) {
		if block = withoutRetry(block); !s.begun {
			s.begun = true
			if err := s.send(fmt.Appendf(nil, "retry: %d\n\n", e.StreamRetry)); err != nil {
				return err
			}
		}
	}
	if !s.isEvent(parse(block)) {
		return s.send(block)
	}
	n := s.count
	s.count++
	switch {
	case e.CommentsOnly:
		return s.send([]byte(":\n\n"))
	case e.StallAfter != nil && n >= *e.StallAfter:
		s.ended(nil)
		<-s.Closed
		return ErrEnded
	case e.CutAfter != nil && n >= *e.CutAfter:
		s.ended(nil)
		return ErrEnded
	case e.HalfEventAfter != nil && n >= *e.HalfEventAfter:
		half := block[:len(block)/2]
		s.ended(half)
		_ = Slowly(s.To, half, e.SlowBytes, s.Closed)
		return ErrEnded
	}
	if err := s.send(block); err != nil {
		return err
	}
	if s.Resumed && n < e.RepeatAfter {
		if err := s.send(block); err != nil {
			return err
		}
	}
	if e.ExtraEvents { // readers must ignore unknown types
		return Slowly(s.To, []byte("id: later\x00version\nevent: forgerun.later-version\ndata: {}\n\n"), e.SlowBytes, s.Closed)
	}
	return nil
}

// withoutRetry returns a block without its retry lines. The result is empty if the block has no other lines.
func withoutRetry(block []byte) []byte {
	if parse(block).retry == 0 {
		return block
	}
	var kept []byte
	for line := range lines(block) {
		if !bytes.HasPrefix(line, []byte("retry:")) {
			kept = append(append(kept, line...), '\n')
		}
	}
	if len(kept) > 0 {
		kept = append(kept, '\n')
	}
	return kept
}

func lines(block []byte) iter.Seq[[]byte] {
	return bytes.FieldsFuncSeq(block, func(r rune) bool { return r == '\n' || r == '\r' })
}

func (s *Stream) send(block []byte) error {
	if err := Slowly(s.To, s.rewritten(block), s.Effect.SlowBytes, s.Closed); err != nil {
		return err
	}
	s.note(parse(block))
	return nil
}

// rewritten applies the effect to the document in the block. Data of several lines is not changed.
func (s *Stream) rewritten(block []byte) []byte {
	data := parse(block).data
	if !s.Effect.Rewrites() || len(data) == 0 {
		return block
	}
	return bytes.Replace(bytes.Clone(block), data, s.Shape.Rewrite(s.Effect, data), 1)
}

func (s *Stream) note(f fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part.Retry = cmp.Or(f.retry, s.part.Retry)
	if f.hasID {
		if len(s.part.IDs) == verdict.MaxShown {
			s.part.IDs = slices.Delete(s.part.IDs, 0, 1)
		}
		s.part.IDs = append(s.part.IDs, redact.Keep(string(f.id)))
		s.fresh = append(slices.DeleteFunc(s.fresh, read), time.Now())
	}
	if !s.isEvent(f) {
		return
	}
	s.part.Events++
	if s.Note != nil {
		s.Note(f.data)
	}
}

// ended records that the fault ended the stream. `half` is the part of a cut event that was sent, or nil.
func (s *Stream) ended(half []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part.Cut = true
	if s.Effect.StallAfter == nil { // unlike a stall, a cut can make readers lose data that they have not read yet
		s.part.Late = min(len(slices.DeleteFunc(s.fresh, read)), len(s.part.IDs))
	}
	if last := bytes.LastIndexAny(half, "\r\n"); last >= 0 {
		s.part.Half = redact.Keep(string(parse(half[:last+1]).id))
	}
}

func (s *Stream) isEvent(f fields) bool {
	return f.hasData && (s.Position == "" || f.event != s.Position)
}

type fields struct {
	event   string
	id      []byte
	hasID   bool
	data    []byte // nil if the data has several lines
	hasData bool
	retry   int // ms
}

func parse(block []byte) (f fields) {
	for line := range lines(block) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			f.event = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 { // readers ignore an id with NUL
				f.id, f.hasID = value, true
			}
		case "data":
			if f.data = value; f.hasData {
				f.data = nil
			}
			f.hasData = true
		case "retry":
			f.retry, _ = strconv.Atoi(string(value)) // like clients, ignore an invalid number
		}
	}
	return f
}

// endOfBlock returns the index after the first block and its empty line, or -1 if the block is incomplete. Lines end with LF, CR LF or
// CR.
func endOfBlock(b []byte) int {
	end := -1
	for _, empty := range []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r\n"} {
		if at := bytes.Index(b, []byte(empty)); at >= 0 && (end < 0 || at+len(empty) < end) {
			end = at + len(empty)
		}
	}
	return end
}
