package monitoring

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sink keeps what it is given, and how often.
type sink struct {
	mu    sync.Mutex
	text  bytes.Buffer
	calls int
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.text.Write(b)
}

func (s *sink) got() (text string, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.calls
}

func TestLinesGoTogetherAndSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		l := NewLines(&out)
		for range 3 {
			for i := range 10 {
				_, _ = fmt.Fprintf(l, "line %d\n", i)
			}
			time.Sleep(linesDelay)
			synctest.Wait()
		}
		text, calls := out.got()
		require.Equal(t, 30, strings.Count(text, "\n"))
		require.Equal(t, 4, calls, "the first line comes after quiet")
	})
}

func TestLinesThatAreManyDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		l := NewLines(&out)
		line := []byte(strings.Repeat("x", linesBytes/4) + "\n")
		for range 5 {
			_, _ = l.Write(line)
		}
		text, calls := out.got()
		require.Len(t, text, 5*len(line))
		require.Equal(t, 2, calls)
	})
}

func TestLinesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var out sink
	l := NewLines(&out)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 2000 {
				_, _ = fmt.Fprintf(l, "%d %d\n", w, i)
				if i%100 == 0 {
					l.Flush()
				}
			}
		})
	}
	writers.Wait()
	l.Flush()
	text, _ := out.got()
	next := map[string]int{}
	for line := range strings.Lines(text) {
		var w string
		var i int
		_, err := fmt.Sscanf(line, "%s %d", &w, &i)
		require.NoError(t, err, line)
		require.Equal(t, next[w], i, "of writer %s", w)
		next[w]++
	}
	for w, n := range next {
		require.Equal(t, 2000, n, w)
	}
	require.Len(t, next, 8)
}

// Whoever logs a warning may die of it.
func TestWarningsDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		log, err := NewLogger(NewLines(&out), slog.LevelInfo, "json")
		require.NoError(t, err)
		log = log.With("a", 1).WithGroup("g")
		log.Info("first")
		log.Info("second")
		text, _ := out.got()
		require.Equal(t, 1, strings.Count(text, "\n"), "only the first came after quiet")
		log.Warn("third")
		text, _ = out.got()
		require.Equal(t, 3, strings.Count(text, "\n"), text)
	})
}
