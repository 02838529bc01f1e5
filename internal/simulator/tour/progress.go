package tour

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	liveInterval  = 200 * time.Millisecond // on a terminal, one line rewritten
	plainInterval = 5 * time.Second        // elsewhere, one line each time
	namesShown    = 3
)

// progress shows how far the tour is. It owns one goroutine, which stop ends;
// its other methods may be called from any goroutine.
type progress struct {
	w     io.Writer
	live  bool
	width int // of the terminal
	began time.Time
	kinds []*kindPlay

	mu        sync.Mutex
	states    map[string]string // last state seen of each unfinished kind
	done      map[string]bool
	different int

	quit, ended chan struct{}
	once        sync.Once
}

// startProgress starts showing progress on w: live if w is a terminal.
func startProgress(w io.Writer, kinds []*kindPlay) *progress {
	p, interval := newProgress(w, kinds), plainInterval
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.live, interval = true, liveInterval
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			p.width = width
		}
	}
	go p.loop(interval)
	return p
}

func newProgress(w io.Writer, kinds []*kindPlay) *progress {
	return &progress{
		w: w, began: time.Now(), kinds: kinds, states: map[string]string{}, done: map[string]bool{},
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
}

func (p *progress) loop(interval time.Duration) {
	defer close(p.ended)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		p.print()
		select {
		case <-ticker.C:
		case <-p.quit:
			if p.live {
				fmt.Fprint(p.w, "\r\x1b[K") // leave an empty line for the table
			}
			return
		}
	}
}

func (p *progress) print() {
	line := p.line(time.Since(p.began))
	if !p.live {
		fmt.Fprintln(p.w, line)
		return
	}
	if p.width > 0 && len(line) >= p.width {
		line = line[:p.width-1]
	}
	fmt.Fprint(p.w, "\r\x1b[K"+line)
}

// line says how many kinds are finished and names some that are not.
func (p *progress) line(elapsed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []string
	for _, k := range p.kinds {
		if p.done[k.Kind] {
			continue
		}
		name := k.Kind
		if state := p.states[k.Kind]; state != "" {
			name += " " + state
		}
		waiting = append(waiting, name)
	}
	line := fmt.Sprintf("%s  %d of %d kinds finished", elapsed.Round(time.Second), len(p.done), len(p.kinds))
	if p.different > 0 {
		line += fmt.Sprintf(", %d differ", p.different)
	}
	if len(waiting) == 0 {
		return line
	}
	shown := waiting[:min(namesShown, len(waiting))]
	line += "; waiting for " + strings.Join(shown, ", ")
	if more := len(waiting) - len(shown); more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// see notes the state in which a kind's job was last seen.
func (p *progress) see(kind, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states[kind] = state
}

// finish notes that a kind is through.
func (p *progress) finish(kind string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[kind] = true
	if !ok {
		p.different++
	}
}

// stop ends the display and returns when nothing more will be written.
func (p *progress) stop() {
	p.once.Do(func() { close(p.quit) })
	<-p.ended
}
