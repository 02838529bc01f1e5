package redisconn

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAsynqLogDoesNotRepeatItself(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewAsynqLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	for range 50 {
		l.Warn("Could not remove task id=", 1, " from queue")
		l.Error("Failed to forward scheduled tasks: ", "x")
		l.Info("Starting processing")
		l.Debug("All queues are empty")
	}
	l.Error("x")
	l.Fatal("it goes on")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], "level=WARN")
	require.Contains(t, lines[0], "component=asynq")
}

func TestAsynqLogRepeatsAfterAWhile(t *testing.T) {
	t.Parallel()
	l := NewAsynqLog(slog.New(slog.DiscardHandler)).(*asynqLog)
	now := time.Unix(1000, 0)
	require.True(t, l.due("a", now))
	require.False(t, l.due("a", now.Add(logEvery-1)))
	require.True(t, l.due("b", now))
	require.True(t, l.due("a", now.Add(logEvery)))
	for i := range 1000 {
		l.due(strings.Repeat("x", i), now)
	}
	require.LessOrEqual(t, len(l.written), 101, "memory is bounded")
}

func TestGoRedisLogIsForDebugging(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := goRedisLog{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Printf(context.Background(), "failed to dial after %d attempts\n", 1)
	require.Contains(t, out.String(), `level=DEBUG msg="failed to dial after 1 attempts"`)
}
