package monitoring

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of what Lines buffers and waits for.
const (
	linesDelay    = 5 * time.Millisecond
	linesBytes    = 64 << 10
	linesLimit    = 4 << 20
	linesPatience = 100 * time.Millisecond // of a warning, once until out is read again
	linesLast     = time.Second            // of the end of the process
)

// Lines writes log lines in batches: a system call for each line is most of the
// cost of a log. A line after 5 ms without one is written at once, and so are
// warnings and errors, see NewLogger; others wait for 5 ms at most, and are lost
// if the process is killed meanwhile.
//
// Who logs does not wait for out, which may be a pipe that nobody reads: one
// goroutine at a time writes to it, and lines that come while 4 MiB are waiting are
// dropped and counted. Only a warning waits for a moment to be written, since
// whoever logs it may die of it; not while out is known to hang.
type Lines struct {
	out io.Writer

	mu       sync.Mutex
	waiting  []byte
	spare    []byte        // the other buffer
	active   bool          // write runs, or will
	timer    *time.Timer   // begins write; nil: it runs, or is about to
	urgent   bool          // write goes on until nothing waits
	hangs    bool          // a warning waited in vain, and not everything was written since
	accepted int64         // bytes, in all
	written  int64         // of these, or lost with an error of out
	progress chan struct{} // closed when written has risen
	flushed  time.Time     // last
	dropped  int           // lines, in all
	told     int           // of these, how many the log tells of
	toldAt   time.Time
	tell     func(lines int)
}

// NewLines makes Lines that write to out. The registry, if there is one, gets the
// count of what is dropped.
func NewLines(out io.Writer, registry prometheus.Registerer) *Lines {
	l := &Lines{out: out, progress: make(chan struct{}), tell: func(int) {}}
	if registry != nil {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "log_lines_dropped_total", Help: "Log lines that were lost because standard error was not read in time, or is closed.",
		}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.dropped)
		}))
	}
	return l
}

// OnDropped has f called, about once a second at most, when lines were dropped and
// out is read again.
func (l *Lines) OnDropped(f func(lines int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = f
}

// Write takes one whole line. It never fails and never waits.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting)+len(line) > linesLimit {
		l.dropped++
		return len(line), nil
	}
	l.waiting = append(l.waiting, line...)
	l.accepted += int64(len(line))
	switch {
	case !l.active && time.Since(l.flushed) >= linesDelay:
		l.active = true
		go l.write()
	case !l.active:
		l.active = true
		l.timer = time.AfterFunc(linesDelay, l.write)
	case len(l.waiting) >= linesBytes:
		l.writeNow()
	}
	return len(line), nil
}

// writeNow does not let write wait for its time. The caller holds the lock.
func (l *Lines) writeNow() {
	if l.timer != nil && l.timer.Stop() {
		l.timer = nil
		go l.write()
	}
}

// write writes what waits; what comes meanwhile waits for its time.
func (l *Lines) write() {
	for again := true; again; {
		l.mu.Lock()
		lines := l.waiting
		l.waiting, l.spare, l.timer = l.spare[:0], nil, nil
		l.mu.Unlock()
		n, err := l.out.Write(lines)
		again = l.wrote(lines, lines[n:], err)
	}
}

// wrote notes that lines were written, apart from the rest if there is an error, and
// reports whether to go on at once.
func (l *Lines) wrote(lines, rest []byte, err error) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushed = time.Now()
	l.written += int64(len(lines))
	close(l.progress)
	l.progress = make(chan struct{})
	if err != nil {
		l.dropped += bytes.Count(rest, []byte{'\n'})
	} else if lost := l.dropped - l.told; lost > 0 && time.Since(l.toldAt) >= time.Second {
		l.told, l.toldAt = l.dropped, l.flushed
		go l.tell(lost)
	}
	if cap(lines) <= 2*linesBytes { // what a burst took is given back
		l.spare = lines[:0]
	}
	switch {
	case len(l.waiting) == 0:
		l.active, l.urgent, l.hangs = false, false, false
	case l.urgent || len(l.waiting) >= linesBytes:
		return true
	default:
		l.timer = time.AfterFunc(linesDelay, l.write)
	}
	return false
}

// Flush has everything written that waits, and returns when that is done; after
// a second in any case.
func (l *Lines) Flush() { l.flush(linesLast, true) }

// flushWarning does the same for a warning: it waits for less, and not at all while
// out is known to hang.
func (l *Lines) flushWarning() { l.flush(linesPatience, false) }

func (l *Lines) flush(patience time.Duration, always bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hangs && !always {
		return
	}
	l.urgent = l.active
	l.writeNow()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for upTo := l.accepted; l.written < upTo; {
		progress := l.progress
		l.mu.Unlock()
		select {
		case <-progress:
			l.mu.Lock()
		case <-timeout.C:
			l.mu.Lock()
			l.hangs = l.active
			return
		}
	}
}
