package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

// Reconnecting.
const (
	maxSilence       = 45 * time.Second // three heartbeats
	defaultReconnect = 2 * time.Second  // until the service says otherwise
	minReconnect     = 100 * time.Millisecond
	maxReconnect     = 30 * time.Second
	lasting          = 10 * time.Second // a connection that lasts so long ends a series of failures
)

// stream is one run of Stream.
type stream struct {
	c       *Client
	o       StreamOptions
	request *request
	yield   func(Message, error) bool

	lastID    string        // of the last complete frame that had one
	reconnect time.Duration // as the service last said
	connected bool          // at least once
	failures  int           // connections in a row that did not last
	ending    bool          // the last message may be the job's last
	immediate bool          // it reconnected without a wait in this series
}

var (
	errStop   = errors.New("the stream has ended, or its reader stopped")
	errSilent = errors.New("nothing came, not even a heartbeat")
)

// follow connects until the stream is over.
func (s *stream) follow(ctx context.Context) error {
	err := s.c.retry(ctx, s.request, func(int) error { return s.connection(ctx) }, func(err error, _ int) (time.Duration, bool) {
		asked, passing := mayPass(err)
		if !passing || ctx.Err() != nil || !s.connected && s.failures >= s.c.maxTries {
			return 0, false
		}
		return s.wait(err, asked), true
	})
	switch {
	case errors.Is(err, errStop):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func (s *stream) wait(err error, asked time.Duration) time.Duration {
	if s.ending && !s.immediate && errors.Is(err, io.EOF) {
		s.immediate = true
		return 0 // the job has ended: the next answer will say so
	}
	// Up to half of it more, at random: a restart disconnects many readers at once.
	whole := exponential(s.reconnect, max(s.reconnect, maxReconnect), s.failures)
	return max(whole, min(asked, maxRetryDelay)) + time.Duration(s.c.rand()*float64(whole)/2)
}

// connection connects once and reads to the end of the connection.
func (s *stream) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.failures++
	silence := time.AfterFunc(s.c.stall, func() { cancel(errSilent) })
	defer silence.Stop()

	s.request.set("Accept", "text/event-stream")
	if s.lastID != "" {
		s.request.set("Last-Event-Id", s.lastID)
	}
	response, err := s.c.roundTrip(ctx, s.request)
	if err != nil {
		return s.request.lost(err, s.failures)
	}
	defer response.Body.Close()
	silence.Stop()
	body := &watchedReader{response.Body, silence, s.c.stall}
	a := &answer{status: response.StatusCode, header: response.Header, tries: s.failures, received: s.c.now()}
	switch {
	case a.status == http.StatusNoContent:
		return errStop
	case a.status != http.StatusOK:
		a.body, _ = io.ReadAll(io.LimitReader(body, maxAnswer)) // status and headers count, even if the body is cut off
		return s.request.refusal(a)
	case mediaType(a.header.Get("Content-Type")) != "text/event-stream":
		return s.request.unexpected(a, "it is not an event stream")
	}
	s.connected = true
	began := s.c.now()
	err = s.read(newFrameReader(body))
	if s.c.now().Sub(began) >= lasting {
		s.failures, s.immediate = 1, false // this end is the first of another series
	}
	switch {
	case errors.Is(err, errStop):
		return err
	case errors.Is(err, errLongLine) || errors.Is(err, errLongEvent) || errors.Is(err, errNotUTF8):
		a.tries = 1
		return s.request.unexpected(a, err.Error()) // another connection would not help
	}
	return s.request.lost(err, s.failures)
}

// read yields the messages of one connection.
func (s *stream) read(frames *frameReader) error {
	reported := s.o.OnConnect == nil
	if !reported && (s.o.JobID != "" || s.lastID != "") {
		reported = true
		s.o.OnConnect(s.lastID)
	}
	for {
		f, err := frames.next()
		if err != nil {
			return err
		}
		if f.retry > 0 {
			s.reconnect = min(max(f.retry, minReconnect), maxReconnect)
		}
		repeated := f.id != "" && f.id == s.lastID
		position := f.event == "position" // at which a stream of all events begins
		if f.id != "" && (position || !f.hasData) {
			s.lastID = f.id
		}
		if !reported {
			reported = true
			s.o.OnConnect(s.lastID)
		}
		if !f.hasData || position || repeated {
			continue
		}
		s.lastID = cmp.Or(f.id, s.lastID)
		m := Message{ID: f.id, Name: cmp.Or(f.event, "message"), Data: f.data, ReceivedAt: s.c.now(), client: s.c}
		s.ending = s.o.JobID != "" && (m.IsOutcome() || m.Name == "job-retries-exhausted")
		if !s.yield(m, nil) {
			return errStop
		}
	}
}

// watchedReader ends a connection that is silent too long; the time spent handling a message does not count.
type watchedReader struct {
	io.Reader
	silence *time.Timer
	limit   time.Duration
}

func (w *watchedReader) Read(p []byte) (int, error) {
	w.silence.Reset(w.limit)
	n, err := w.Reader.Read(p)
	w.silence.Stop()
	return n, err
}

// Bounds of an event stream. An event has up to 256 KiB of a client's data,
// which JSON's escapes can make six times as long.
const (
	maxLine  = 2 << 20
	maxEvent = 4 << 20
)

var (
	errLongLine  = errors.New("a line of the event stream is too long")
	errLongEvent = errors.New("an event of the stream is too long")
	errNotUTF8   = errors.New("the event stream is not UTF-8")
)

// frame is the lines between two empty ones of an event stream.
type frame struct {
	id      string // "" if it has none
	event   string
	data    []byte
	hasData bool
	retry   time.Duration // 0 if it has none
}

// frameReader reads server-sent events (HTML standard, section 9.2.6). A frame
// counts only with the empty line after it: what a lost connection cut off is
// sent again.
type frameReader struct {
	r      *bufio.Reader
	line   []byte
	begun  bool // the first line was read: only that one may have a byte order mark
	skipLF bool // the last line ended in CR: an LF that follows belongs to it
}

func newFrameReader(r io.Reader) *frameReader { return &frameReader{r: bufio.NewReader(r)} }

// next gives the next frame that has anything but comments. It does not wait
// for a byte after the frame's end.
func (f *frameReader) next() (frame, error) {
	var current frame
	for {
		line, err := f.readLine()
		if err != nil {
			return frame{}, err
		}
		if len(line) > 0 {
			if err := current.field(line); err != nil {
				return frame{}, err
			}
			continue
		}
		if current.hasData || current.id != "" || current.retry > 0 {
			return current, nil
		}
		current = frame{} // a lone event name is dropped
	}
}

// readLine gives a line without its end, which is CR, LF or both; it is valid until the next call.
func (f *frameReader) readLine() ([]byte, error) {
	f.line = f.line[:0]
	for {
		b, err := f.r.ReadByte()
		if err != nil {
			return nil, err
		}
		afterCR := f.skipLF
		f.skipLF = b == '\r'
		switch {
		case b == '\n' && afterCR:
		case b == '\n' || b == '\r':
			return f.whole()
		case len(f.line) == maxLine:
			return nil, errLongLine
		default:
			f.line = append(f.line, b)
		}
	}
}

func (f *frameReader) whole() ([]byte, error) {
	if !utf8.Valid(f.line) {
		return nil, errNotUTF8
	}
	line := f.line
	if !f.begun {
		f.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line, nil
}

// field takes a line of a frame, "name: value"; one that begins with a colon is a comment.
func (f *frame) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "event":
		f.event = string(value)
	case "data":
		if len(f.data)+len(value)+1 > maxEvent {
			return errLongEvent
		}
		if f.hasData {
			f.data = append(f.data, '\n')
		}
		f.data, f.hasData = append(f.data, value...), true
	case "id":
		// An empty id would reset the position.
		if id := string(value); id != "" && fieldValue(id) {
			f.id = id
		}
	case "retry":
		if ms, ok := wholeNumber(string(value)); ok {
			f.retry = time.Duration(min(max(1, ms), uint64(longestAsked/time.Millisecond))) * time.Millisecond
		}
	}
	return nil
}
