package monitoring

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkLine is what one usual line costs, from its attributes to Lines.
func BenchmarkLine(b *testing.B) {
	log, err := NewLogger(NewLines(io.Discard, nil), slog.LevelInfo, "json")
	require.NoError(b, err)
	h := log.With("role", "api").Handler()
	b.ReportAllocs()
	for b.Loop() {
		r := slog.NewRecord(time.Now(), slog.LevelInfo, "job transition", 0)
		r.AddAttrs(
			slog.String("action", "submit"), slog.String("request_id", "019a0000-0000-7000-8000-000000000001"),
			slog.String("client_id", "019a0000-0000-7000-8000-000000000002"), slog.String("job_id", "019a0000-0000-7000-8000-000000000003"),
			slog.String("current_state", "CREATED"), slog.String("next_state", "QUEUED"), slog.String("work_kind", "PAYLOAD_SMALL"),
			slog.Int64("duration_ms", 100), slog.String("expected_outcome", "SUCCEEDED"), slog.Int("attempt", 1))
		_ = h.Handle(context.Background(), r)
	}
}
