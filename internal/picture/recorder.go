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
	sample    = 20 * time.Millisecond            // how often a text is looked for
	frame     = 160 * time.Millisecond           // how long a frame is shown at least
	longest   = 1500 * time.Millisecond          // the longest pause
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

// recorder notes what programs print to terminals, and when.
type recorder struct {
	env []string
	dir string

	mu      sync.Mutex
	printed [2][]byte
	real    time.Time     // when something was printed last
	now     time.Duration // the same in the picture
	film    film
	open    map[[2]int]int // pane and row -> the version that is shown
}

func newRecorder(dir string, env []string) *recorder {
	return &recorder{env: env, dir: dir, open: map[[2]int]int{}}
}

// terminal is one of the recorder's.
type terminal struct {
	r    *recorder
	pane int
}

// Write takes what a program prints.
func (t terminal) Write(text []byte) (int, error) {
	t.r.print(t.pane, text, time.Now())
	return len(text), nil
}

// print compares a terminal with how it was before. Pauses are cut; what changes within a frame is shown with it.
func (r *recorder) print(pane int, text []byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.real.IsZero() {
		r.now += min(at.Sub(r.real), longest)
	}
	r.real, r.printed[pane] = at, append(r.printed[pane], text...)
	now := r.now.Truncate(frame)
	for row, line := range shown(r.printed[pane]) {
		place := [2]int{pane, row}
		i, isShown := r.open[place]
		switch {
		case isShown && slices.Equal(r.film.versions[i].line, line), !isShown && line == nil:
			continue
		case isShown && r.film.versions[i].from == now:
			r.film.versions[i].line = line
			continue
		case isShown:
			r.film.versions[i].to = now
			delete(r.open, place)
		}
		if line != nil {
			r.open[place] = len(r.film.versions)
			r.film.versions = append(r.film.versions, version{pane: pane, row: row, from: now, line: line})
		}
	}
	r.film.length = now + frame + ends
}

// text is all that was printed, without looks.
func (r *recorder) text(pane int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sequence.ReplaceAllString(string(r.printed[pane]), "")
}

// run types a command into a pane and runs it there.
func (r *recorder) run(ctx context.Context, pane int, command string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := terminal{r, pane}
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
	side, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: columns})
	if err != nil {
		return err
	}
	defer func() { _ = side.Close() }()
	_, _ = io.Copy(s, side) // an error says that the program has ended
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w; it showed:\n%s", command, err, r.text(pane))
	}
	return nil
}

// await waits until the top pane shows a text, and gives its groups.
func (r *recorder) await(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for sought := regexp.MustCompile(pattern); ; {
		if found := sought.FindStringSubmatch(r.text(top)); found != nil {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%q is not shown: %w; this is:\n%s", pattern, ctx.Err(), r.text(top))
		case <-time.After(sample):
		}
	}
}

// environ is the environment of the commands: it has nothing of this place but the way to the programs.
func environ(bin string, own ...string) []string {
	return append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TERM=xterm", "TZ=UTC", "LC_ALL=C", "GREP_COLORS=mt=32"}, own...)
}
