package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"
)

const (
	sample    = 20 * time.Millisecond            // how often the terminals are looked at
	frame     = 160 * time.Millisecond           // how long a frame is shown at least
	longest   = 1500 * time.Millisecond          // and at most, but for the last one
	keystroke = 18 * time.Millisecond            // between two characters that are typed
	shorter   = 200 * time.Millisecond           // before a command is typed, and before its output
	ends      = 4500 * time.Millisecond          // how long the last frame is shown
	patience  = 5 * time.Minute                  // for a command or for what it shows
	colours   = "alias grep='grep --color=auto'" // as shells of users have it
	prompt    = "\x1b[32m$\x1b[0m "
)

// The panes.
const (
	top = iota
	low
)

// version is a line of a terminal while it did not change.
type version struct {
	pane, row int
	from, to  time.Duration // to is 0 of what is there at the end
	line      []span
}

// film is what the terminals showed.
type film struct {
	versions []version
	length   time.Duration
}

// recorder looks at terminals while programs run in them.
type recorder struct {
	panes [2]*screen
	env   []string
	dir   string

	mu    sync.Mutex
	speed float64       // how much faster than it was the picture shows what happens now
	now   time.Duration // in the picture
	last  time.Duration // frame that differs from the one before
	film  film
	open  map[[2]int]int // pane and row -> the version that is shown

	stop, stopped chan struct{}
}

func newRecorder(dir string, env []string) *recorder {
	return &recorder{
		panes: [2]*screen{{}, {}}, env: env, dir: dir, speed: 1, open: map[[2]int]int{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

func (r *recorder) loop() {
	defer close(r.stopped)
	ticker := time.NewTicker(sample)
	defer ticker.Stop()
	for before := time.Now(); ; {
		select {
		case <-r.stop:
			return
		case at := <-ticker.C:
			r.pass(at.Sub(before))
			before = at
		}
	}
}

// pass lets time go by in the picture, unless a frame has been there for long, and takes the next frame when it is due.
func (r *recorder) pass(real time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = min(r.now+time.Duration(float64(real)/r.speed), r.last+longest)
	if r.now >= r.last+frame || len(r.film.versions) == 0 {
		r.take()
	}
}

// take compares the terminals with the frame before.
func (r *recorder) take() {
	for p, pane := range r.panes {
		for row, line := range pane.shown() {
			at := [2]int{p, row}
			i, shown := r.open[at]
			if shown && slices.Equal(r.film.versions[i].line, line) || !shown && line == nil {
				continue
			}
			if r.last = r.now; shown {
				r.film.versions[i].to = r.now
				delete(r.open, at)
			}
			if line != nil {
				r.open[at] = len(r.film.versions)
				r.film.versions = append(r.film.versions, version{pane: p, row: row, from: r.now, line: line})
			}
		}
	}
}

// end takes the last frame.
func (r *recorder) end() film {
	close(r.stop)
	<-r.stopped
	r.now = r.last + frame
	r.take()
	r.film.length = r.now + ends
	return r.film
}

func (r *recorder) setSpeed(speed float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.speed = speed
}

// run types a command into a pane and runs it there.
func (r *recorder) run(ctx context.Context, pane int, command string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := r.panes[pane]
	_, _ = s.Write([]byte(prompt))
	time.Sleep(shorter)
	for _, char := range command {
		_, _ = s.Write([]byte(string(char)))
		time.Sleep(keystroke)
	}
	time.Sleep(shorter)
	_, _ = s.Write([]byte("\r\n"))

	cmd := exec.CommandContext(ctx, "sh", "-c", colours+"\n"+command)
	cmd.Env, cmd.Dir = r.env, r.dir
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: columns})
	if err != nil {
		return err
	}
	defer func() { _ = terminal.Close() }()
	_, _ = io.Copy(s, terminal) // an error says that the program has ended
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w; it showed:\n%s", command, err, s.text())
	}
	return nil
}

// await waits until the top pane shows a text, and gives its groups.
func (r *recorder) await(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for sought := regexp.MustCompile(pattern); ; {
		if found := sought.FindStringSubmatch(r.panes[top].text()); found != nil {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%q is not shown: %w; this is:\n%s", pattern, ctx.Err(), r.panes[top].text())
		case <-time.After(sample):
		}
	}
}

// environ is the environment of the commands: it has nothing of this place but the way to the programs.
func environ(bin string, own ...string) []string {
	return append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=xterm", "TZ=UTC", "LC_ALL=C", "GREP_COLORS=mt=32"}, own...)
}
