package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redrawInterval = 250 * time.Millisecond // on a terminal, a block drawn anew
	lineInterval   = 5 * time.Second        // elsewhere, one line each time
)

// LiveOptions says what a live view shows besides the numbers. The zero value is fine.
type LiveOptions struct {
	Scenario string
	Duration time.Duration    // of the load; 0: without
	Jobs     int64            // submissions that end it; 0: without
	Tick     <-chan time.Time // when to show anew; nil: by itself
}

// Live shows a run while it goes on. It owns one goroutine, which Stop ends.
//
// Whatever else is to appear on the same terminal is written to the Live: such
// lines stand above the block and scroll away, whole lines only.
type Live struct {
	r      *Recorder
	o      LiveOptions
	screen screen // without a size: lines instead of a block

	mu      sync.Mutex
	w       io.Writer
	pending []byte // start of a line that is written to the Live
	speed   speed
	stopped bool

	quit, ended chan struct{}
	once        sync.Once
}

// StartLive begins to show r on w: a block drawn in place on a terminal, otherwise a line every 5 seconds.
func StartLive(w io.Writer, r *Recorder, o LiveOptions) *Live {
	size := sizeOf(w)
	l := newLive(w, r, o, size)
	if size != nil {
		l.screen.color = os.Getenv("NO_COLOR") == ""
	}
	go l.loop()
	return l
}

// newLive draws a block if there is a terminal of some size, and lines otherwise.
func newLive(w io.Writer, r *Recorder, o LiveOptions, size func() (width, height int)) *Live {
	return &Live{
		r: r, o: o, w: w, screen: screen{size: size},
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
}

// sizeOf gives the size of a terminal that can move its cursor, or nil.
func sizeOf(w io.Writer) func() (width, height int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24
		}
		return width, height
	}
}

func (l *Live) loop() {
	defer close(l.ended)
	tick := l.o.Tick
	if tick == nil {
		interval := redrawInterval
		if l.screen.size == nil {
			interval = lineInterval
		}
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-tick:
			l.show()
		case <-l.quit:
			return
		}
	}
}

func (l *Live) show() {
	s := l.r.Snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.speed.update(s)
	if l.screen.size == nil {
		fmt.Fprintln(l.w, l.line(s))
		return
	}
	l.screen.draw(l.w, l.block(s))
}

// Write puts whole lines above the block. The rest of a line waits for its end.
func (l *Live) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.screen.size == nil || l.stopped {
		return l.w.Write(text)
	}
	l.pending = append(l.pending, text...)
	end := bytes.LastIndexByte(l.pending, '\n') + 1
	if end == 0 {
		return len(text), nil
	}
	err := l.screen.above(l.w, l.pending[:end])
	l.pending = append(l.pending[:0], l.pending[end:]...)
	return len(text), err
}

// Stop ends the view, removes the block and shows the cursor. Afterwards a Write goes straight through. It may be
// called twice.
func (l *Live) Stop() {
	l.once.Do(func() {
		close(l.quit)
		<-l.ended
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopped = true
		if l.screen.size != nil {
			l.screen.end(l.w)
			_, _ = l.w.Write(l.pending)
		}
	})
}

// speed is how fast things went over the last seconds, not since the start.
type speed struct {
	seen               []Snapshot
	arrivals, finished float64 // per second
}

const speedWindow = 5 * time.Second

func (v *speed) update(s Snapshot) {
	v.seen = append(v.seen, s)
	for len(v.seen) > 2 && s.At.Sub(v.seen[1].At) >= speedWindow {
		v.seen = v.seen[1:]
	}
	first := Snapshot{}
	took := s.Elapsed
	if len(v.seen) > 1 {
		first = v.seen[0]
		took = s.At.Sub(first.At)
	}
	v.arrivals = perSecond(s.Numbers.Arrivals-first.Numbers.Arrivals, took)
	v.finished = perSecond(total(s.Numbers.Finished)-total(first.Numbers.Finished), took)
}
