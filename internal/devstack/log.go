package devstack

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
	maxLogBytes    = 8 << 20 // a log beyond this is cut
	keptLogBytes   = 1 << 20 // to its newest part of this size
	logTrimPeriod  = 30 * time.Second
	tailBytes      = 4 << 10
	tailLines      = 15
	errorLogIndent = "\n  | "
)

// serverLog is the file that takes what a server prints. The server writes to
// it directly, not through this process: a pipe would block the server whenever
// its parent is paused.
type serverLog struct {
	path string
}

// open returns the file for appending, cut to its bound, and its present size.
func (l serverLog) open() (*os.File, int64, error) {
	if err := l.trim(); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// trim cuts a log that has grown too large to its newest part. The server may
// go on writing: it appends, so it continues at the new end.
func (l serverLog) trim() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND, 0)
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

// since returns the newest part of what was written after offset, at most
// tailBytes. An unreadable log reads as empty: it only adorns other errors.
func (l serverLog) since(offset int64) string {
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-tailBytes)
	if offset <= info.Size() {
		from = max(from, offset)
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	return string(text)
}

// explain adds the last lines of output to err.
func (l serverLog) explain(err error, output string) error {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	text := strings.Join(lines, errorLogIndent)
	if text == "" {
		return fmt.Errorf("%w (nothing in %s)", err, l.path)
	}
	return fmt.Errorf("%w; the last lines of %s:%s%s", err, l.path, errorLogIndent, text)
}
