package report

import (
	"strconv"
	"strings"
	"sync"
)

// terminal is as much of a terminal as the live view needs: it wraps, scrolls,
// moves its cursor and clears.
type terminal struct {
	mu            sync.Mutex
	width, height int
	lines         [][]rune // those that scrolled away too
	row, col      int
	hidden        bool // the cursor
	colors        int  // sequences for colour
	strange       []string
}

func newTerminal(width, height int) *terminal { return &terminal{width: width, height: height} }

func (t *terminal) size() (width, height int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.width, t.height
}

// resize makes the terminal narrower, which wraps what stands on it anew.
func (t *terminal) resize(width int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines [][]rune
	for _, l := range t.lines {
		l = []rune(strings.TrimRight(string(l), " "))
		for len(l) > width {
			lines, l = append(lines, l[:width:width]), l[width:]
		}
		lines = append(lines, l)
	}
	t.width, t.lines, t.row, t.col = width, lines, len(lines)-1, 0
}

// text is all lines without what is empty at the end.
func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, l := range t.lines {
		lines = append(lines, strings.TrimRight(string(l), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(p)
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			t.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}
		r := []rune(text)[0]
		t.put(r)
		text = text[len(string(r)):]
	}
	return len(p), nil
}

func (t *terminal) put(r rune) {
	switch {
	case r == '\r':
		t.col = 0
	case r == '\n':
		t.row, t.col = t.row+1, 0 // as a terminal driver has it
	case r < ' ':
		t.strange = append(t.strange, strconv.QuoteRune(r))
	default:
		if t.col == t.width {
			t.row, t.col = t.row+1, 0
		}
		t.reach()
		t.lines[t.row][t.col] = r
		t.col++
	}
	t.reach()
}

func (t *terminal) reach() {
	for len(t.lines) <= t.row {
		t.lines = append(t.lines, nil)
	}
	for len(t.lines[t.row]) <= t.col {
		t.lines[t.row] = append(t.lines[t.row], ' ')
	}
}

func (t *terminal) control(parameter string, final byte) {
	t.reach()
	switch sequence := parameter + string(final); {
	case final == 'A':
		n, _ := strconv.Atoi(parameter)
		t.row = max(t.row-n, len(t.lines)-t.height, 0)
	case sequence == "K":
		t.lines[t.row] = t.lines[t.row][:t.col]
	case sequence == "J":
		t.lines[t.row] = t.lines[t.row][:t.col]
		t.lines = t.lines[:t.row+1]
	case sequence == "?25l":
		t.hidden = true
	case sequence == "?25h":
		t.hidden = false
	case final == 'm':
		t.colors++
	default:
		t.strange = append(t.strange, sequence)
	}
	t.reach()
}
