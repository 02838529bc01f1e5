package report

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
)

const (
	redrawInterval = 250 * time.Millisecond // on a terminal, the same line redrawn
	lineInterval   = 5 * time.Second        // elsewhere, a new line each time
	speedWindow    = 5 * time.Second
	barWidth       = 20
)

// Live shows a running run. It owns one goroutine, which Stop ends.
type Live struct {
	r        *Recorder
	w        io.Writer
	terminal bool
	status   *term.Status
	seen     []Snapshot // of the last seconds

	quit context.CancelFunc
	loop sync.WaitGroup
}

// StartLive begins to show r on w: one redrawn line on a terminal, otherwise a line every 5 seconds and for each new stage. tick sets the
// times; nil: its own timer.
func StartLive(w io.Writer, r *Recorder, tick <-chan time.Time) *Live {
	terminal := term.Of(w, os.Getenv).Terminal
	l := &Live{r: r, w: w, terminal: terminal, status: term.NewStatus(w, terminal)}
	if tick == nil {
		tick = time.Tick(map[bool]time.Duration{true: redrawInterval, false: lineInterval}[terminal])
	}
	showing, quit := context.WithCancel(context.Background())
	l.quit = quit
	select {
	case <-r.turned: // to a previous stage
	default:
	}
	l.loop.Go(func() {
		for {
			select {
			case <-tick:
				l.show()
			case <-r.turned:
				l.show()
			case <-showing.Done():
				return
			}
		}
	})
	return l
}

func (l *Live) show() {
	line := term.Masked(l.line(l.r.Snapshot()))
	if l.status.Show(line); !l.terminal {
		fmt.Fprintln(l.w, line)
	}
}

// Stop ends the view, and removes its line from a terminal.
func (l *Live) Stop() {
	l.quit()
	l.loop.Wait()
	l.status.Clear()
}

// line formats a snapshot with the most important part first, for narrow terminals. Rates are those of the last seconds.
func (l *Live) line(s Snapshot) string {
	l.seen = append(l.seen, s)
	for len(l.seen) > 2 && s.Elapsed-l.seen[1].Elapsed >= speedWindow {
		l.seen = l.seen[1:]
	}
	before := Snapshot{}
	if len(l.seen) > 1 {
		before = l.seen[0]
	}
	n, took := s.Numbers, s.Elapsed-before.Elapsed
	parts := []string{
		s.Stage, progress(s),
		fmt.Sprintf("sent %s (%s)", grouped(n.Arrivals), rate(n.Arrivals-before.Numbers.Arrivals, took)),
		fmt.Sprintf("finished %s (%s)", grouped(total(n.Finished)), rate(total(n.Finished)-total(before.Numbers.Finished), took)),
	}
	if n.Faults > 0 {
		parts = append(parts, "faults "+grouped(n.Faults))
	}
	if n.Workers > 0 { // they are ours
		parts = append(parts, fmt.Sprintf("workers %d", n.Workers))
	}
	parts = append(parts, "submit p99 "+brief(n.Submit.P99), "finish p99 "+brief(n.Finish.P99), listed(n.Answers, Accepted))
	return strings.TrimSpace(strings.Join(parts, "  "))
}

// progress formats how much of the stage is done, and its duration.
func progress(s Snapshot) string {
	if s.Share < 0 {
		return clockTime(s.InStage)
	}
	full := int(min(s.Share, 1) * barWidth)
	bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	return fmt.Sprintf("[%s] %.0f%% %s", bar, 100*min(s.Share, 1), clockTime(s.InStage))
}
