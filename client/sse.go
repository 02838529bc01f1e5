package client

import (
	"bytes"
	"errors"
	"io"
	"time"
	"unicode/utf8"
)

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

// frame is what stands between two empty lines of an event stream.
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
	r      io.Reader
	buf    [4096]byte
	unread []byte
	line   []byte
	begun  bool // the first line was read: only that one may have a byte order mark
	skipLF bool // the last line ended in CR: an LF that follows belongs to it
}

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
		current = frame{} // an event's name alone means nothing
	}
}

// readLine gives a line without its end, which is CR, LF or both. It is valid
// until the next call.
func (f *frameReader) readLine() ([]byte, error) {
	f.line = f.line[:0]
	for {
		for len(f.unread) > 0 {
			b := f.unread[0]
			f.unread = f.unread[1:]
			after := f.skipLF
			f.skipLF = b == '\r'
			switch {
			case b == '\n' && after:
			case b == '\n' || b == '\r':
				return f.whole()
			case len(f.line) == maxLine:
				return nil, errLongLine
			default:
				f.line = append(f.line, b)
			}
		}
		n, err := f.r.Read(f.buf[:])
		f.unread = f.buf[:n]
		if n == 0 && err != nil {
			return nil, err
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

// field takes a line of a frame: "name: value". A line that begins with a
// colon is a comment.
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
		// An empty id would forget the position, and with it what was read.
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
