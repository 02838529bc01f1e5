package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
)

func TestLineIsThatOfSlog(t *testing.T) {
	t.Parallel()
	times := regexp.MustCompile(`"time":"[^"]+"`)
	logged := func(write func(*slog.Logger)) string {
		var out bytes.Buffer
		write(slog.New(slog.NewJSONHandler(&out, nil)).With("role", "api"))
		require.Regexp(t, times, out.String())
		return times.ReplaceAllString(out.String(), "")
	}
	attrs := []slog.Attr{slog.String("a", "b\n"), slog.Int("n", 1), slog.Bool("t", true), slog.String("x", ""), slog.Any("y", nil), slog.Group("", slog.Int("z", 2))}
	require.Equal(t,
		logged(func(l *slog.Logger) { l.LogAttrs(context.Background(), slog.LevelInfo, "said", attrs...) }),
		logged(func(l *slog.Logger) { telemetry.Line(context.Background(), l, "said", attrs...) }))
}

func TestLineIsLeftOutBelowTheLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.Line(context.Background(), slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})), "said")
	require.Empty(t, out.String())
}
