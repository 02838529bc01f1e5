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
	defaultReconnect = 2 * time.Second  // until the service sends `retry`
	minReconnect     = 100 * time.Millisecond
	maxReconnect     = 30 * time.Second
	lasting          = 10 * time.Second // a connection that lasted this long resets `failures`
)

type stream struct {
	c       *Client
	o       StreamOptions
	request *request
	yield   func(Message, error) bool

	lastID    string // id of the last complete frame that has one
	reconnect time.Duration
	connected bool
	failures  int  // consecutive connections that lasted less than `lasting`
	ending    bool // the latest message may be the last message of the job
	immediate bool // the last reconnect was immediate, so the next one must wait; reset after a connection of `lasting`
}

var (
	errStop   = errors.New("the stream has ended, or its reader stopped")
	errSilent = errors.New("no data arrived, not even a heartbeat")
)

func (s *stream) follow(ctx context.Context) error {
	err := s.c.retry(ctx, s.request, func(int) error { return s.connection(ctx) }, func(err error, _ int) (time.Duration, bool) {
		_, asked, passing := mayPass(err)
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
		return 0 // reconnect at once, to learn whether the job has ended (204)
	}
	// A restart disconnects many readers at once. A random extra wait spreads their reconnects.
	whole := exponential(s.reconnect, max(s.reconnect, maxReconnect), s.failures)
	return max(whole, min(asked, maxRetryDelay)) + time.Duration(s.c.rand()*float64(whole)/2)
}

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
	a := &fullResponse{status: response.StatusCode, header: response.Header, tries: s.failures, received: s.c.now()}
	switch {
	case a.status == http.StatusNoContent:
		return errStop
	case a.status != http.StatusOK:
		a.body, _ = io.ReadAll(io.LimitReader(body, maxResponse)) // a refusal is valid even if its body is cut off
		return s.request.refusal(a)
	case mediaType(a.header.Get("Content-Type")) != "text/event-stream":
		return s.request.unexpected(a, "it is not an event stream")
	}
	s.connected = true
	began := s.c.now()
	err = s.read(newFrameReader(body))
	if s.c.now().Sub(began) >= lasting {
		s.failures, s.immediate = 1, false
	}
	switch {
	case errors.Is(err, errStop):
		return err
	case errors.Is(err, bufio.ErrTooLong) || errors.Is(err, errLongEvent) || errors.Is(err, errNotUTF8):
		a.tries = 1
		return s.request.unexpected(a, err.Error()) // reconnecting would not help
	}
	return s.request.lost(err, s.failures)
}

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
		position := f.event == "position" // a stream of all jobs begins with a `position` event
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

// watchedReader restarts a timer at each read. The timer closes a silent connection. The timer stops between reads, while the program
// handles a message.
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

// Size limits of an event stream. An event has up to 256 KiB of data, which JSON escapes can make six times as long.
const (
	maxLine  = 2 << 20
	maxEvent = 4 << 20
)

var (
	errLongEvent = errors.New("an event of the stream is too long")
	errNotUTF8   = errors.New("the event stream is not UTF-8")
)

// frame is one event of the stream: the fields up to a blank line.
type frame struct {
	id      string
	event   string
	data    []byte
	hasData bool
	retry   time.Duration // 0: not given
}

// frameReader reads server-sent events (HTML standard, section 9.2.6). A frame is dropped if it is cut off before its blank line. After a
// reconnect, the service sends it again.
type frameReader struct {
	lines *bufio.Scanner
	begun bool // the first line, which may begin with a byte order mark, has been read
}

// newFrameReader splits r into lines that end in CR, LF or both. A line that ends in CR is returned at once, without waiting for a
// possible LF.
func newFrameReader(r io.Reader) *frameReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine+2)
	afterCR := false
	lines.Split(func(data []byte, _ bool) (advance int, line []byte, err error) {
		begin := 0
		if afterCR && bytes.HasPrefix(data, []byte{'\n'}) {
			begin = 1
		}
		end := bytes.IndexAny(data[begin:], "\r\n")
		if end < 0 {
			return 0, nil, nil // drop an incomplete line
		}
		end += begin
		afterCR = data[end] == '\r'
		return end + 1, data[begin:end], nil
	})
	return &frameReader{lines: lines}
}

func (f *frameReader) next() (frame, error) {
	var current frame
	for f.lines.Scan() {
		line := f.lines.Bytes()
		if !utf8.Valid(line) {
			return frame{}, errNotUTF8
		}
		if !f.begun {
			f.begun = true
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		switch {
		case len(line) > 0:
			if err := current.field(line); err != nil {
				return frame{}, err
			}
		case current.hasData || current.id != "" || current.retry > 0:
			return current, nil
		default:
			current = frame{} // an event name without data is dropped
		}
	}
	return frame{}, cmp.Or(f.lines.Err(), io.EOF)
}

// A line that begins with a colon is a comment.
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
		// Ignore an empty id: by the SSE standard, it would reset the last event id.
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
