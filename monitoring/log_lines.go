package monitoring

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	linesLimit  = 4 << 20              // bytes of lines that wait
	linesLast   = time.Second          // that the end of the process waits for them
	linesGather = 5 * time.Millisecond // that lines wait for more, which one call then writes
	linesKept   = 64 << 10             // bytes of a buffer that is used again
)

// Lines writes log lines in the background, those that gathered meanwhile by one call: out may be a pipe that is not read,
// and logging does not wait for it. Lines that come while 4 MiB are waiting are dropped and counted.
type Lines struct {
	out  io.Writer
	tell func(lines int)

	mu       sync.Mutex
	waiting  []byte
	spare    []byte        // empty, waiting's next memory
	idle     chan struct{} // closed when all is written; nil: it is
	dropped  int           // lines, in all
	reported int           // of these, how many the log has reported
}

// NewLines makes Lines that write to out. The registry, if any, gets the count of dropped lines.
func NewLines(out io.Writer, registry prometheus.Registerer) *Lines {
	l := &Lines{out: out, tell: func(int) {}}
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

// OnDropped has f called when lines were dropped and out is read again.
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
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.write()
	}
	return len(line), nil
}

// write writes until nothing waits.
func (l *Lines) write() {
	for {
		time.Sleep(linesGather)
		l.mu.Lock()
		lines := l.waiting
		l.waiting, l.spare = l.spare, nil
		if len(lines) == 0 {
			l.spare = lines
			close(l.idle)
			l.idle = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		n, err := l.out.Write(lines)
		l.written(lines, n, err)
	}
}

// written counts the lines lost by a failed write, or reports those dropped earlier.
func (l *Lines) written(lines []byte, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(lines) <= linesKept {
		l.spare = lines[:0]
	}
	if err != nil {
		l.dropped += bytes.Count(lines[n:], []byte{'\n'})
		l.reported = l.dropped
	} else if lost := l.dropped - l.reported; lost > 0 {
		l.reported = l.dropped
		go l.tell(lost)
	}
}

// Flush returns when everything is written, or after a second.
func (l *Lines) Flush() {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	timeout := time.NewTimer(linesLast)
	defer timeout.Stop()
	select {
	case <-idle:
	case <-timeout.C:
	}
}
