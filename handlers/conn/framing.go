package conn

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// FramingError describes a violation of HTTP's message framing (RFC 9112, sections 2.2, 5, 6 and 7.1). Refusing such requests prevents
// request smuggling, in which a proxy treats part of a body as another request.
type FramingError string

func (e FramingError) Error() string { return string(e) }

const (
	errLine   FramingError = "A line of the request has no carriage return at its end, or has one elsewhere. End each line with CR LF."
	errField  FramingError = "A line of the request's header or trailer has a space before its name or its colon. Remove the space."
	errLength FramingError = "The request's length is ambiguous. Send one Content-Length, or in HTTP/1.1 one Transfer-Encoding: chunked."
	errChunk  FramingError = "A chunk of the request's body is not as long as its size line says. Send each chunk as SIZE CR LF BYTES CR LF."
)

// ErrTooMuch is the error of Conn.Read if a line, the trailers or the chunk extensions of a request are too long.
var ErrTooMuch = errors.New("the request takes too many bytes")

// maxExtra is the maximum total size of the current line, the trailers and the chunk extensions of a request, in bytes. fasthttp itself
// limits headers and bodies.
const maxExtra = 64 << 10

// framing tracks the requests on a connection. It refuses a request if servers or proxies could disagree about where it ends.
type framing struct {
	next    part  // kind of the next line
	left    int64 // body bytes that come before the next line
	line    []byte
	extra   int   // bytes of trailers and chunk extensions
	length  int64 // Content-Length; -1: none
	chunked bool
	modern  bool // HTTP/1.1
}

type part int

const (
	requestLine part = iota
	fieldLine
	sizeLine
	chunkEnd
	trailerLine
)

// pass returns how many bytes the server may read. It leaves out the line feed of an invalid line, so the server never handles that line.
func (f *framing) pass(b []byte) (n int, err error) {
	for n < len(b) {
		if f.left > 0 {
			k := min(f.left, int64(len(b)-n))
			n += int(k)
			f.left -= k
			continue
		}
		line, _, whole := bytes.Cut(b[n:], []byte("\n"))
		f.line = append(f.line, line...)
		n += len(line)
		if f.extra+len(f.line) > maxExtra {
			return n, ErrTooMuch
		}
		if !whole {
			return n, nil
		}
		if err := f.endLine(); err != nil {
			return n, err
		}
		n++
		f.line = f.line[:0]
	}
	return n, nil
}

func (f *framing) endLine() error {
	line, ended := bytes.CutSuffix(f.line, []byte("\r"))
	empty := len(line) == 0
	switch {
	case !ended || bytes.IndexByte(line, '\r') >= 0:
		return errLine
	case f.next == requestLine && !empty: // an empty line is skipped: RFC 9112 allows it between requests
		*f = framing{next: fieldLine, line: f.line, length: -1, modern: bytes.HasSuffix(line, []byte(" HTTP/1.1"))}
	case f.next == chunkEnd && !empty:
		return errChunk
	case f.next == chunkEnd:
		f.next = sizeLine
	case f.next == sizeLine:
		return f.startChunk(line)
	case f.next == fieldLine && empty && f.chunked:
		f.next = sizeLine
	case empty:
		f.next, f.left = requestLine, max(f.length, 0)
		if cap(f.line) > 1<<10 {
			f.line = nil // free its memory: there are many idle connections
		}
	case line[0] == ' ' || line[0] == '\t':
		return errField
	case f.next == fieldLine:
		return f.takeField(line)
	default:
		f.extra += len(line)
	}
	return nil
}

func (f *framing) takeField(line []byte) (err error) {
	name, text, found := bytes.Cut(line, []byte(":"))
	value := string(bytes.Trim(text, " \t"))
	first, isLength := f.length < 0 && !f.chunked, bytes.EqualFold(name, []byte("Content-Length"))
	isCoding := bytes.EqualFold(name, []byte("Transfer-Encoding"))
	switch {
	case found && len(bytes.TrimRight(name, " \t")) < len(name):
		return errField
	case isLength && first:
		var n uint64
		if n, err = strconv.ParseUint(value, 10, 63); err != nil {
			return errLength
		}
		f.length = int64(n)
	case isCoding && first && f.modern && strings.EqualFold(value, "chunked"):
		f.chunked = true
	case isLength || isCoding:
		return errLength
	}
	return nil
}

func (f *framing) startChunk(line []byte) error {
	size, extension, _ := strings.Cut(string(line), ";")
	n, err := strconv.ParseUint(strings.TrimRight(size, " \t"), 16, 32)
	if err != nil {
		return errChunk
	}
	f.extra += len(extension) + max(0, len(size)-16)
	f.next, f.left = chunkEnd, int64(n)
	if n == 0 {
		f.next = trailerLine
	}
	return nil
}
