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
	barWidth       = 20
)

// Live begins to show r on w, until the returned function is called: one redrawn line on a terminal, otherwise a line every 5 seconds.
// tick sets the times; nil: its own timer.
func Live(w io.Writer, r *Recorder, tick <-chan time.Time) (stop func()) {
	terminal := term.Of(w, os.Getenv).Terminal
	status := term.NewStatus(w, terminal)
	if tick == nil {
		tick = time.Tick(map[bool]time.Duration{true: redrawInterval, false: lineInterval}[terminal])
	}
	showing, quit := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-tick:
				line := term.Masked(r.Snapshot().line())
				if status.Show(line); !terminal {
					fmt.Fprintln(w, line)
				}
			case <-showing.Done():
				return
			}
		}
	})
	return func() {
		quit()
		loop.Wait()
		status.Clear()
	}
}

// line formats a snapshot with the most important part first, for narrow terminals.
func (s Snapshot) line() string {
	n, parts := s.Numbers, []string{s.Stage}
	if s.Share >= 0 {
		full := int(min(s.Share, 1) * barWidth)
		parts = append(parts, fmt.Sprintf("[%s] %.0f%%", strings.Repeat("#", full)+strings.Repeat(".", barWidth-full), 100*min(s.Share, 1)))
	}
	parts = append(parts, clockTime(s.Elapsed),
		fmt.Sprintf("sent %s (%s)", grouped(n.Arrivals), rate(n.Arrivals, s.Elapsed)),
		fmt.Sprintf("finished %s (%s)", grouped(total(n.Finished)), rate(total(n.Finished), s.Elapsed)))
	if n.Faults > 0 {
		parts = append(parts, "faults "+grouped(n.Faults))
	}
	if n.Workers > 0 { // they are ours
		parts = append(parts, fmt.Sprintf("workers %d", n.Workers))
	}
	parts = append(parts, "submit p99 "+brief(n.Submit.P99), "finish p99 "+brief(n.Finish.P99), listed(n.Answers, Accepted))
	return strings.TrimSpace(strings.Join(parts, "  "))
}
