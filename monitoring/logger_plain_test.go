package monitoring

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// linesOf is what a JSON logger, and slog's own with the same escapes, write of a
// record.
func linesOf(t *testing.T, with []slog.Attr, group string, r slog.Record) (ours, slogs string) {
	t.Helper()
	var out, expected bytes.Buffer
	logger, err := NewLogger(&out, slog.LevelDebug, "json")
	require.NoError(t, err)
	for _, handler := range []slog.Handler{logger.Handler(), slog.NewJSONHandler(escaper{&expected}, nil)} {
		handler = handler.WithAttrs(with)
		if group != "" {
			handler = handler.WithGroup(group)
		}
		require.NoError(t, handler.Handle(t.Context(), r))
	}
	return out.String(), expected.String()
}

// Whatever a line has, it is the one that slog writes.
func TestPlainLinesAreThoseOfSlog(t *testing.T) {
	t.Parallel()
	values := []slog.Value{
		slog.StringValue(""), slog.StringValue("plain text ~ <>&'"), slog.StringValue(`"quoted" \ path`), slog.StringValue("line\nbreak\x00\x7f"),
		slog.StringValue("é\u0085\u2028"), slog.StringValue("\xff"), slog.StringValue(strings.Repeat("long", 5000)),
		slog.IntValue(0), slog.IntValue(math.MinInt64), slog.Uint64Value(math.MaxUint64), slog.BoolValue(true),
		slog.DurationValue(-time.Hour), slog.Float64Value(1e21), slog.Float64Value(math.Inf(1)), slog.TimeValue(time.Unix(1, 2)),
		slog.AnyValue(errors.New("an error")), slog.AnyValue(nil), slog.AnyValue(slog.LevelWarn), slog.AnyValue([]int{1}),
		slog.GroupValue(slog.Int("a", 1)), slog.GroupValue(),
	}
	times := []time.Time{
		{}, time.Unix(0, 0), time.Now(), time.Date(2026, 3, 1, 12, 0, 0, 120_000_000, time.FixedZone("", 5400)),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for _, key := range []string{"key", "", `a "key"`, "schlüssel"} {
		for _, v := range values {
			for _, at := range times {
				for _, group := range []string{"", "g"} {
					r := slog.NewRecord(at, slog.LevelInfo+1, "a message: "+key, 0)
					r.AddAttrs(slog.Int("n", 1), slog.Attr{Key: key, Value: v}, slog.String("last", "one"))
					ours, slogs := linesOf(t, nil, group, r)
					require.Equal(t, slogs, ours)
					ours, slogs = linesOf(t, []slog.Attr{slog.String("role", "api"), {Key: key, Value: v}}, group, r)
					require.Equal(t, slogs, ours)
				}
			}
		}
	}
}

func BenchmarkPlainLine(b *testing.B) {
	logger, err := NewLogger(io.Discard, slog.LevelInfo, "json")
	require.NoError(b, err)
	attrs := []slog.Attr{
		slog.String("action", "submit"), slog.String("job_id", "019ab0c1-0000-7000-8000-000000000000"), slog.Int("attempt", 1),
		slog.String("current_state", "CREATED"), slog.String("next_state", "QUEUED"), slog.String("work_kind", "SUCCESS_FAST"),
	}
	for b.Loop() {
		r := slog.NewRecord(time.Now(), slog.LevelInfo, "job transition", 0)
		r.AddAttrs(attrs...)
		_ = logger.Handler().Handle(context.Background(), r)
	}
}
