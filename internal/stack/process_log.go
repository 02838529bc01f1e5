package stack

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	maxLogBytes = 8 << 20 // a log beyond this is put aside
	tailBytes   = 4 << 10
	tailLines   = 15
	logIndent   = "\n  | "
)

// openLog returns the file that takes what processes print, one run after another, and its present size. They write to it
// directly: a pipe would block them whenever their parent is paused. A log that has grown too large becomes the one old log.
func openLog(path string) (f *os.File, size int64, err error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		_ = os.Rename(path, path+".old") // else it grows on
	}
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		size, _ = f.Seek(0, io.SeekEnd) // what cannot be sought in, such as a terminal, has no size
	}
	return f, size, err
}

// Output is the end of what this run has written to its log, at most tailBytes. An unreadable log reads as empty: it only
// explains other errors.
func (p *Process) Output() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size, _ := f.Seek(0, io.SeekEnd)
	text, _ := io.ReadAll(io.NewSectionReader(f, max(p.offset, size-tailBytes), tailBytes))
	return string(text)
}

// Explain adds the last lines of this run's log to an error.
func (p *Process) Explain(err error) error {
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	text := strings.Join(lines[max(0, len(lines)-tailLines):], logIndent)
	if text == "" {
		return fmt.Errorf("%w (nothing in %s)", err, p.log)
	}
	return fmt.Errorf("%w; the last lines of %s:%s%s", err, p.log, logIndent, text)
}
