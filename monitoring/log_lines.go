package monitoring

import (
	"io"
	"sync"
	"time"
)

// Bounds of what Lines buffers.
const (
	linesDelay = 5 * time.Millisecond
	linesBytes = 64 << 10
)

// Lines writes log lines in batches: a system call for each line is most of the
// cost of a log. A line after 5 ms without one is written at once, and so are
// warnings and errors, see NewLogger; others wait for 5 ms at most, and are lost
// if the process is killed meanwhile. When 64 KiB are waiting, Write blocks.
type Lines struct {
	out     io.Writer
	writing sync.Mutex // held while out is written to; taken before mu

	mu      sync.Mutex
	waiting []byte
	spare   []byte    // the other buffer
	flushed time.Time // last
}

// NewLines makes Lines that write to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Write takes whole lines. It never fails: errors of out are dropped.
func (l *Lines) Write(lines []byte) (int, error) {
	l.mu.Lock()
	first, quiet := len(l.waiting) == 0, time.Since(l.flushed) >= linesDelay
	l.waiting = append(l.waiting, lines...)
	full := len(l.waiting) >= linesBytes
	l.mu.Unlock()
	switch {
	case full, first && quiet:
		l.Flush()
	case first:
		time.AfterFunc(linesDelay, l.Flush)
	}
	return len(lines), nil
}

// Flush writes what waits, in order, and returns when that is done.
func (l *Lines) Flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	lines := l.waiting
	l.waiting, l.spare, l.flushed = l.spare[:0], nil, time.Now()
	l.mu.Unlock()
	if len(lines) > 0 {
		_, _ = l.out.Write(lines)
	}
	l.mu.Lock()
	l.spare = lines[:0]
	l.mu.Unlock()
}
