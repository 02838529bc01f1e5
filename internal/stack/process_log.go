package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	maxLogBytes  = 8 << 20 // a log beyond this is cut
	keptLogBytes = 1 << 20 // to its newest part of this size
	tailBytes    = 4 << 10
	tailLines    = 15
	logIndent    = "\n  | "
)

// openLog returns the file that takes what processes print, one run after another, and its present size. They write to it
// directly: a pipe would block them whenever their parent is paused. A log that has grown too large is cut to its newest part.
// A process may go on writing to it: it appends, so it continues at the new end.
func openLog(path string) (f *os.File, size int64, err error) {
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return nil, 0, err
	}
	if size, _ = f.Seek(0, io.SeekEnd); size <= maxLogBytes { // what cannot be sought in, such as a terminal, has no size
		return f, size, nil
	}
	kept, err := io.ReadAll(io.NewSectionReader(f, size-keptLogBytes, keptLogBytes))
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(kept)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, keptLogBytes, nil
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
	from := max(0, size-tailBytes)
	if p.offset <= size { // else the log was cut
		from = max(from, p.offset)
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
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
