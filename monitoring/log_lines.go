package monitoring

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	linesLimit  = 4 << 20              // maximum size of the waiting lines, in bytes
	linesLast   = time.Second          // maximum wait of Flush
	linesGather = 5 * time.Millisecond // how long a line waits, so that one write can contain several lines
	linesKept   = 64 << 10             // maximum size of a reused buffer, in bytes
)

// Lines writes log lines in the background. All waiting lines are written with one call of the output's Write. Logging never waits, even
// if no program reads the output. A line that arrives while 4 MiB are waiting is dropped and counted.
type Lines struct {
	out  io.Writer
	tell func(lines int)

	mu       sync.Mutex
	waiting  []byte
	spare    []byte
	idle     chan struct{} // closed when all lines are written; nil if no line waits
	dropped  int
	reported int // number of dropped lines that were reported in the log
}

// NewLines makes a Lines that writes to out. The registry, if it is not nil, gets the count of dropped lines.
func NewLines(out io.Writer, registry prometheus.Registerer) *Lines {
	l := &Lines{out: out, tell: func(int) {}}
	if registry != nil {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "log_lines_dropped_total", Help: "Log lines lost because standard error was not read in time or is closed.",
		}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.dropped)
		}))
	}
	return l
}

// OnDropped sets the function to call after lines were dropped. The next successful write calls it with the number of these lines.
func (l *Lines) OnDropped(f func(lines int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = f
}

// Write accepts one whole line. It never fails and never waits.
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

func (l *Lines) written(lines []byte, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(lines) <= linesKept {
		l.spare = lines[:0]
	}
	if err != nil {
		l.dropped += bytes.Count(lines[n:], []byte{'\n'})
	} else if lost := l.dropped - l.reported; lost > 0 {
		l.reported = l.dropped
		go l.tell(lost)
	}
}

// Flush waits until everything is written, at most a second.
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
