package monitoring

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
		l := NewLines(&out, nil)
		for range 3 {
			for i := range 10 {
				_, _ = fmt.Fprintf(l, "line %d\n", i)
			}
			time.Sleep(linesDelay)
			synctest.Wait()
		}
		text, calls := out.got()
		require.Equal(t, 30, strings.Count(text, "\n"))
		require.LessOrEqual(t, calls, 6, "what comes after quiet, and what came within 5 ms")
	})
}

func TestLinesThatAreManyDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		l := NewLines(&out, nil)
		line := []byte(strings.Repeat("x", linesBytes/4) + "\n")
		for range 5 {
			_, _ = l.Write(line)
		}
		synctest.Wait() // and no time passes
		text, _ := out.got()
		require.GreaterOrEqual(t, len(text), 4*len(line))
	})
}

func TestLinesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var out sink
	l := NewLines(&out, nil)
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
		log, err := NewLogger(NewLines(&out, nil), slog.LevelInfo, "json")
		require.NoError(t, err)
		log = log.With("a", 1).WithGroup("g")
		log.Info("first")
		synctest.Wait()
		log.Info("second")
		synctest.Wait()
		text, _ := out.got()
		require.Equal(t, 1, strings.Count(text, "\n"), "only the first came after quiet")
		log.Warn("third")
		text, _ = out.got()
		require.Equal(t, 3, strings.Count(text, "\n"), text)
	})
}

// valve is a reader that can stop to read.
type valve struct {
	sink
	shut chan struct{} // closed when it reads again
}

func (v *valve) Write(b []byte) (int, error) {
	<-v.shut
	return v.sink.Write(b)
}

// A pipe that nobody reads costs lines, never the time of those who log.
func TestNobodyWaitsForAReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := valve{shut: make(chan struct{})}
		registry := prometheus.NewRegistry()
		l := NewLines(&out, registry)
		log, err := NewLogger(l, slog.LevelInfo, "json")
		require.NoError(t, err)
		l.OnDropped(func(lines int) { log.Warn("dropped", "lines", lines) })
		began, text := time.Now(), strings.Repeat("x", 1<<10)
		const lines = 3 * linesLimit >> 10
		for i := range lines {
			if i%100 == 0 {
				log.Error(text)
			}
			log.Info(text)
		}
		require.LessOrEqual(t, time.Since(began), linesPatience, "the first warning hoped that it would be read")
		require.LessOrEqual(t, cap(l.waiting), 2*linesLimit)
		l.Flush()
		require.LessOrEqual(t, time.Since(began), linesPatience+linesLast)

		close(out.shut)
		time.Sleep(time.Second)
		written, _ := out.got()
		require.Contains(t, written, `"msg":"dropped"`)
		families, err := registry.Gather()
		require.NoError(t, err)
		dropped := int(families[0].GetMetric()[0].GetCounter().GetValue())
		require.Contains(t, written, fmt.Sprintf(`"lines":%d`, dropped))
		require.Equal(t, lines+lines/100+1+1, strings.Count(written, "\n")+dropped, "written or counted")
		log.Warn("after that")
		written, _ = out.got()
		require.Contains(t, written, "after that", "a warning is written at once again")
	})
}

type broken struct{}

func (broken) Write(lines []byte) (int, error) { return len(lines) / 2, syscall.EPIPE }

func TestLinesForNobodyAreCounted(t *testing.T) {
	t.Parallel()
	l := NewLines(broken{}, nil)
	told := false
	l.OnDropped(func(int) { told = true })
	for range 10 {
		_, _ = fmt.Fprintln(l, "a line")
	}
	l.Flush()
	require.GreaterOrEqual(t, l.dropped, 5)
	require.False(t, told)
}
