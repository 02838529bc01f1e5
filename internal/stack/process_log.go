package stack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

const (
	maxLogBytes   = 8 << 20 // a log beyond this is cut
	keptLogBytes  = 1 << 20 // to its newest part of this size
	logTrimPeriod = 30 * time.Second
	tailBytes     = 4 << 10
	tailLines     = 15
	logIndent     = "\n  | "
)

// openLog returns the file that takes what processes print, one run after another, and its present size. They write to it
// directly: a pipe would block them whenever their parent is paused.
func openLog(path string) (*os.File, int64, error) {
	if err := trimLog(path); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return f, size, err
}

// trimLog cuts a log that has grown too large to its newest part. The process may go on writing: it appends, so it continues
// at the new end.
func trimLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() <= maxLogBytes {
		return err
	}
	kept, err := io.ReadAll(io.NewSectionReader(f, info.Size()-keptLogBytes, keptLogBytes))
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.Write(kept)
	return err
}

func (p *Process) boundLog() {
	for {
		select {
		case <-p.exited:
			return
		case <-time.After(logTrimPeriod):
			_ = trimLog(p.log) // tried again the next time
		}
	}
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
