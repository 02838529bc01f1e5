package conn

import (
	"bytes"
	"strconv"
	"strings"
)

// FramingError says how the bytes of a request break the rules by which its end is found (RFC 9112, sections 2.2, 5, 6
// and 7.1). A proxy in front that is more lenient, or less, would find another end, and take for a request what is a
// body here, or the other way round.
type FramingError string

func (e FramingError) Error() string { return string(e) }

const (
	errLineEnd FramingError = "A line of the request ends without a carriage return, or has one within. End each one with CR LF."
	errFold    FramingError = "A line of the request's header or trailer begins with a space. Send each field on one line."
	errSpace   FramingError = "A field of the request's header has a space before its colon. Leave it out."
	errBoth    FramingError = "The request has more than one Content-Length or Transfer-Encoding. Send one of them, once."
	errLength  FramingError = "The request's Content-Length is no number of bytes."
	errCoding  FramingError = "The request's Transfer-Encoding is not chunked, or not of HTTP/1.1. Send chunked or a Content-Length."
	errChunk   FramingError = "A chunk of the request's body does not begin with its size, or does not end there. Send SIZE CR LF BYTES CR LF."
)

// maxLine bounds a line; servers have smaller bounds for whole headers.
const maxLine = 64 << 10

// framing follows the requests of a connection as they are read, byte by byte where it must. What it lets through has one
// reading only, for each server and each proxy.
type framing struct {
	part    part
	line    []byte // the beginning of a line whose end has not been read
	left    int64  // of the body or the chunk
	length  int64  // Content-Length; -1: none
	chunked bool
	modern  bool // HTTP/1.1
}

// part of a request.
type part int

const (
	requestLine part = iota
	fieldLine
	bodyBytes
	sizeLine
	chunkBytes
	chunkEnd
	trailerLine
)

// pass gives how many of the bytes are right. A bad line lacks its last byte then, so that no server has acted on it.
func (f *framing) pass(b []byte) (int, error) {
	for n := 0; n < len(b); {
		if f.part == bodyBytes || f.part == chunkBytes {
			k := int(min(f.left, int64(len(b)-n)))
			n += k
			f.left -= int64(k)
			f.endBytes()
			continue
		}
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			f.line = append(f.line, b[n:]...)
			if len(f.line) > maxLine {
				return len(b), ErrTooMuch
			}
			return len(b), nil
		}
		line := b[n : n+end]
		n += end
		if len(f.line) > 0 {
			f.line = append(f.line, line...)
			line = f.line
		}
		if err := f.endLine(line); err != nil {
			return n, err
		}
		n++
		f.line = f.line[:0]
	}
	return len(b), nil
}

// endBytes goes on after the last byte of a body or a chunk.
func (f *framing) endBytes() {
	switch {
	case f.left > 0:
	case f.part == chunkBytes:
		f.part = chunkEnd
	default:
		f.part = requestLine
	}
}

// endLine takes a line without its LF.
func (f *framing) endLine(line []byte) error {
	if i := bytes.IndexByte(line, '\r'); i < 0 || i != len(line)-1 {
		return errLineEnd
	}
	line = line[:len(line)-1]
	switch {
	case f.part == chunkEnd:
		if len(line) > 0 {
			return errChunk
		}
		f.part = sizeLine
	case f.part == sizeLine:
		return f.startChunk(line)
	case f.part == requestLine:
		if len(line) > 0 { // else between two requests
			*f = framing{part: fieldLine, line: f.line, length: -1, modern: bytes.HasSuffix(line, []byte(" HTTP/1.1"))}
		}
	case len(line) > 0 && (line[0] == ' ' || line[0] == '\t'):
		return errFold
	case f.part == fieldLine && len(line) > 0:
		return f.takeField(line)
	case len(line) == 0:
		f.endFields()
	}
	return nil
}

// endFields goes on after the header or the trailer.
func (f *framing) endFields() {
	switch {
	case f.part == trailerLine:
		f.part = requestLine
	case f.chunked:
		f.part = sizeLine
	default:
		f.part, f.left = bodyBytes, max(f.length, 0)
		f.endBytes()
	}
	if cap(f.line) > 1<<10 {
		f.line = nil // of a long line, which the connection's next requests need not have
	}
}

func (f *framing) takeField(line []byte) error {
	name, value, found := bytes.Cut(line, []byte(":"))
	if found && len(name) > 0 && (name[len(name)-1] == ' ' || name[len(name)-1] == '\t') {
		return errSpace
	}
	length := bytes.EqualFold(name, []byte("Content-Length"))
	if !length && !bytes.EqualFold(name, []byte("Transfer-Encoding")) {
		return nil
	}
	if f.length >= 0 || f.chunked {
		return errBoth
	}
	text := strings.Trim(string(value), " \t")
	if length {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return errLength
		}
		f.length = int64(n)
		return nil
	}
	if !f.modern || !strings.EqualFold(text, "chunked") {
		return errCoding
	}
	f.chunked = true
	return nil
}

// startChunk takes the line with a chunk's size, of which extensions are ignored.
func (f *framing) startChunk(line []byte) error {
	text, _, _ := strings.Cut(string(line), ";")
	size, err := strconv.ParseUint(strings.TrimRight(text, " \t"), 16, 32)
	if err != nil {
		return errChunk
	}
	f.part, f.left = chunkBytes, int64(size)
	if size == 0 {
		f.part = trailerLine
	}
	return nil
}
