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

func TestLinesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewLines(&out, nil)
	var writers sync.WaitGroup
	const each = 2000
	for w := range 8 {
		writers.Go(func() {
			for i := range each {
				_, _ = fmt.Fprintf(l, "%d %d\n", w, i)
			}
		})
	}
	writers.Wait()
	l.Flush()
	next := map[int]int{}
	for line := range strings.Lines(out.String()) {
		var w, i int
		_, err := fmt.Sscanf(line, "%d %d", &w, &i)
		require.NoError(t, err, line)
		require.Equal(t, next[w], i, "of writer %d", w)
		next[w]++
	}
	for w := range 8 {
		require.Equal(t, each, next[w])
	}
}

// valve is a reader that can stop to read.
type valve struct {
	bytes.Buffer
	shut chan struct{} // closed when it reads again
}

func (v *valve) Write(b []byte) (int, error) {
	<-v.shut
	return v.Buffer.Write(b)
}

// A pipe that nobody reads costs lines, never the time of those who log: the bubble's clock stands still.
func TestNobodyWaitsForAReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := valve{shut: make(chan struct{})}
		registry := prometheus.NewRegistry()
		l := NewLines(&out, registry)
		log := must(NewLogger(l, slog.LevelInfo, "json"))(t)
		l.OnDropped(func(lines int) { log.Warn("dropped", "lines", lines) })
		began, text := time.Now(), strings.Repeat("x", 1<<10)
		const lines = 3 * linesLimit >> 10
		for range lines {
			log.Error(text)
		}
		require.Zero(t, time.Since(began))
		require.LessOrEqual(t, len(l.waiting), linesLimit)
		l.Flush()
		require.Equal(t, linesLast, time.Since(began))

		close(out.shut)
		synctest.Wait()
		written := out.String()
		families := must(registry.Gather())(t)
		dropped := int(families[0].GetMetric()[0].GetCounter().GetValue())
		require.Contains(t, written, fmt.Sprintf(`"msg":"dropped","lines":%d}`, dropped))
		require.Equal(t, lines+1, strings.Count(written, "\n")+dropped, "written or counted")
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
